"""A phrasebook without end: English sentences and their only French translation, drawn from a small grammar.

Every English sentence has exactly one translation here, so that an exact match is a fair measure: "you" is vous, "they"
is ils, "it" doesn't occur, and neither does a sentence whose French needs a gender that English hides ("I arrived").
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from saccade.data.text.corpus import Pair
from saccade.lab.phrasebook import phrases, words
from saccade.lab.phrasebook.forms import (
    IL,
    JE,
    Adjective,
    Noun,
    Verb,
    elide,
    english_number,
    french_number,
    pairs,
    plural_of_french,
    verbs,
    with_s,
)
from saccade.lab.phrasebook.phrases import Phrase

SHORTEST, LONGEST = 4, 12  # English words
ETRE, AVOIR, ALLER = (verbs(table)[0] for table in (words.ETRE, words.AVOIR, words.ALLER))
BE = ("am", "is", "are")
WHO = Phrase("who", "qui")


class Mood(NamedTuple):
    """A verb's mood: its English helpers (for I, he, the others) and lead, its French auxiliary, and its times."""

    helpers: tuple[str, str, str]
    lead: str
    auxiliary: Verb | None
    times: str


PRESENT = Mood(("do", "does", "do"), "", None, "present")
PAST = Mood(("did", "did", "did"), "", None, "past")
FUTURE = Mood(BE, "going to", ALLER, "future")
BEING = Mood(BE, "", None, "present")
MODALS = [
    Mood((name, name, name), "", verb, "future")
    if (name := verb.english) in ("can", "must")
    else Mood(PRESENT.helpers, name, verb, "future" if name in ("want to", "hope to") else "present")
    for verb in verbs(words.MODALS)
]


class VerbModifier(NamedTuple):
    """A word after the finite verb (pas, jamais, souvent ...), or nothing."""

    english: str = ""
    french: str = ""
    is_negative: bool = False


NEGATIONS = [VerbModifier(english, french, True) for english, french in pairs(words.NEGATIONS)]
FREQUENCIES = [VerbModifier(english, french) for english, french in pairs(words.FREQUENCIES)]


class Clause(NamedTuple):
    """A sentence before its words are put in order. A participle with avoir agrees with `agreement`."""

    form: str  # statement, question, who, where, when, why, what
    subject: Phrase
    mood: Mood
    verb: Verb
    slot: VerbModifier = VerbModifier()
    clitic: str = ""
    agreement: Phrase | None = None
    english_tail: str = ""
    french_tail: str = ""

    def then(self, *tails: tuple[str, str]) -> Clause:
        english, french = (" ".join(filter(None, side)) for side in zip(*tails, strict=True)) if tails else ("", "")
        return self._replace(
            english_tail=f"{self.english_tail} {english}".strip(), french_tail=f"{self.french_tail} {french}".strip()
        )


def in_english(clause: Clause) -> str:
    """Write the clause in English: subject, helper, adverb, verb; a question swaps subject and helper."""
    helper = clause.mood.helpers[{JE: 0, IL: 1}.get(clause.subject.person, 2)]
    main = f"{clause.mood.lead} {clause.verb.english}".strip()
    turned = clause.form not in ("statement", "who")
    if helper in ("do", "does", "did") and not turned and clause.slot.english != "not":
        helper, main = "", _inflect(clause, main)
    first = [helper, clause.subject.english] if turned else [clause.subject.english, helper]
    asked = clause.form if turned and clause.form != "question" else ""
    said = " ".join(filter(None, [asked, *first, clause.slot.english, main, clause.english_tail]))
    return _finish(said.replace("can not ", "cannot "), "." if clause.form == "statement" else "?")


def _inflect(clause: Clause, main: str) -> str:
    if clause.mood is PAST:
        return clause.verb.past
    return with_s(main) if clause.subject.person == IL else main


def in_french(clause: Clause) -> str:
    """Write the clause in French: subject, ne, clitic, finite verb, pas, then participle, or clitic and infinitive."""
    finite, rest = _french_verb(clause)
    near, far = ("", clause.clitic) if clause.mood.auxiliary else (clause.clitic, "")
    ne = "ne" if clause.slot.is_negative else ""
    parts = [_question_words(clause), clause.subject.french, ne, near, finite, clause.slot.french, far, rest]
    said = elide(" ".join(filter(None, [*parts, clause.french_tail])))
    return _finish(said, "." if clause.form == "statement" else " ?")


def _french_verb(clause: Clause) -> tuple[str, str]:
    """Return the finite verb, and the infinitive or participle after it."""
    verb, person = clause.verb, clause.subject.person
    if clause.mood.auxiliary:
        return clause.mood.auxiliary.present[person], verb.infinitive
    if clause.mood is not PAST:
        return verb.present[person], ""
    with_etre = verb.with_etre or verb.is_reflexive
    agreement = clause.subject if with_etre else clause.agreement
    return (ETRE if with_etre else AVOIR).present[person], _participle(verb.participle, agreement)


def _participle(participle: str, agreement: Phrase | None) -> str:
    if agreement is None:
        return participle
    ended = participle + ("e" if agreement.gender == "f" else "")
    return plural_of_french(ended) if agreement.is_plural else ended


def _question_words(clause: Clause) -> str:
    if clause.form in ("statement", "who"):
        return ""
    asked = {"question": "", "what": "que", **dict(pairs(words.QUESTION_WORDS))}[clause.form]
    return f"{asked} est-ce que".strip()


def _finish(text: str, end: str) -> str:
    return text[0].upper() + text[1:] + end


def opening(dice: random.Random, verb: Verb, doers: tuple[str, ...], *, forms: str = "who where when why") -> Clause:
    """Draw the form, subject, mood and adverb of a sentence."""
    chance = dice.random()
    form = "statement" if chance < 0.66 else "question" if chance < 0.86 else dice.choice(forms.split())
    subject = WHO if form == "who" else phrases.subject(dice, doers)
    clause = Clause(form, subject, _mood(dice, verb, subject), verb)
    if verb.is_reflexive:
        clause = clause._replace(clitic=words.REFLEXIVE_PRONOUNS.split()[subject.person])
    return clause._replace(slot=_slot(dice, clause))


def _mood(dice: random.Random, verb: Verb, subject: Phrase) -> Mood:
    chance = dice.random()
    hides_gender = (verb.with_etre or verb.is_reflexive) and not subject.gender
    if chance < 0.25 and verb.past and not hides_gender:
        return PAST
    if chance < 0.4:
        return FUTURE
    return dice.choice(MODALS) if chance < 0.6 and verb.past else PRESENT


def _slot(dice: random.Random, clause: Clause) -> VerbModifier:
    chance = dice.random()
    if clause.form in ("statement", "who") and chance < 0.35:
        return dice.choice(NEGATIONS[:2] if clause.mood is PAST else NEGATIONS)
    return dice.choice(FREQUENCIES) if clause.mood in (PRESENT, BEING) and chance > 0.8 else VerbModifier()


def circumstances(
    dice: random.Random, clause: Clause, *, somewhere: bool = True, together: bool = False
) -> list[tuple[str, str]]:
    """Draw a place or company, and a time; each of them is optional."""
    found = []
    if somewhere and clause.form != "where" and dice.random() < 0.35:
        found.append(phrases.place(dice))
    elif together and dice.random() < 0.3:
        found.append(phrases.company(dice, clause.subject))
    if not clause.slot.english and clause.form != "when" and dice.random() < 0.5:
        found.append(phrases.time(dice, clause.mood.times))
    return found


def transitive(dice: random.Random) -> Clause:
    """Draw a sentence with a direct object: a noun, or a pronoun that precedes the French verb."""
    doers, things, table = dice.choices(TRANSITIVE, [len(row[2]) for row in TRANSITIVE])[0]
    clause = opening(dice, dice.choice(table), doers)
    if dice.random() < (0.5 if "person" in things else 0.1):
        clause = with_clitic(dice, clause, persons="person" in things)
    else:
        whom = phrases.thing(dice, things, "negated" if clause.slot.is_negative else "full")
        clause = clause.then((whom.english, whom.french))
    return clause.then(*circumstances(dice, clause, somewhere=dice.random() < 0.4))


def with_clitic(dice: random.Random, clause: Clause, *, persons: bool) -> Clause:
    """Add a direct object pronoun; in the past its gender must be known, because the participle shows it."""
    allowed = ("him", "her", "them") if clause.mood is PAST else ("me", "you", "him", "her", "us", "them")
    pronoun = phrases.other_than(dice, clause.subject)
    if not persons or pronoun.english_object not in allowed:
        pronoun = next(row for row in phrases.PRONOUNS if row.english_object == "them")
    return clause._replace(clitic=pronoun.direct, agreement=pronoun.subject()).then((pronoun.english_object, ""))


def asked_what(dice: random.Random) -> Clause:
    """Draw a question with what: What does she buy?"""
    doers, _, table = dice.choice([row for row in TRANSITIVE if "person" not in row[1]])
    clause = opening(dice, dice.choice(table), doers)
    subject = phrases.subject(dice, doers) if clause.form == "who" else clause.subject
    clause = Clause("what", subject, clause.mood, clause.verb)
    return clause.then(*circumstances(dice, clause, somewhere=False))


def to_someone(dice: random.Random) -> Clause:
    """Draw a sentence of a verb with à, whose pronoun is lui or leur."""
    clause = opening(dice, dice.choice(TO_SOMEONE), ("person",))
    if dice.random() < 0.5:
        pronoun = phrases.other_than(dice, clause.subject)
        clause = clause._replace(clitic=pronoun.indirect).then((pronoun.english_object, ""))
    else:
        whom = phrases.thing(dice, ("person",), "definite")
        clause = clause.then((whom.english, f"à {whom.french}"))
    return clause.then(*circumstances(dice, clause))


def giving(dice: random.Random) -> Clause:
    """Draw a sentence in which somebody gives something to someone."""
    clause = opening(dice, dice.choice(GIVING), ("person",))
    what = phrases.thing(dice, ("thing", "text", "clothes"), "negated" if clause.slot.is_negative else "full")
    if dice.random() < 0.6:
        pronoun = phrases.other_than(dice, clause.subject)
        clause = clause._replace(clitic=pronoun.indirect)
        clause = clause.then((pronoun.english_object, ""), (what.english, what.french))
    else:
        whom = phrases.thing(dice, ("person",), "definite")
        clause = clause.then((what.english, what.french), (f"to {whom.english}", f"à {whom.french}"))
    return clause.then(*circumstances(dice, clause, somewhere=False)) if dice.random() < 0.3 else clause


def tasting(dice: random.Random) -> Clause:
    """Draw a sentence about a taste: French has an article here, also after a negation."""
    clause = opening(dice, dice.choice(TASTES), ("person",), forms="who why")
    what = phrases.thing(dice, ("food", "meal", "drink", "animal", "text"), "general")
    return clause.then((what.english, what.french))


def playing(dice: random.Random) -> Clause:
    """Draw a sentence about an instrument (with de) or a game (with à)."""
    clause = opening(dice, dice.choice(PLAYING), ("person",))
    if dice.random() < 0.5:
        instrument = phrases.any_noun(dice, ("instrument",))
        article = "la" if instrument.gender == "f" else "le"
        clause = clause.then((f"the {instrument.english}", f"de {article} {instrument.french}"))
    else:
        game, jeu = dice.choice(pairs(words.GAMES))
        clause = clause.then((game, f"à {jeu}"))
    return clause.then(*circumstances(dice, clause, together=True))


def needing(dice: random.Random) -> Clause:
    """Draw a sentence about a need: j'ai besoin d'un stylo."""
    clause = opening(dice, dice.choice(NEEDING), ("person",), forms="who why when")
    what = phrases.thing(dice, ("thing", "text", "clothes", "vehicle"), "definite")
    return clause.then((what.english, f"besoin de {what.french}"))


def doing(dice: random.Random) -> Clause:
    """Draw a sentence of a verb without an object."""
    doers, table = dice.choice(INTRANSITIVE)
    clause = opening(dice, dice.choice(table), doers)
    return clause.then(*circumstances(dice, clause, together=True))


def moving(dice: random.Random) -> Clause:
    """Draw a sentence about going or staying, whose past takes être."""
    how, table = dice.choice(MOVING)
    clause = opening(dice, dice.choice(table), ("person",), forms="who when why")
    if how == "somewhere":
        clause = clause.then(phrases.place(dice))
    elif how in ("to", "from"):
        where = phrases.thing(dice, ("building",), "single")
        clause = clause.then((f"{how} {where.english}", f"{'à' if how == 'to' else 'de'} {where.french}"))
    return clause.then(*circumstances(dice, clause, somewhere=False, together=True))


def oneself(dice: random.Random) -> Clause:
    """Draw a sentence of a reflexive verb: je me lève."""
    clause = opening(dice, dice.choice(REFLEXIVE), ("person",), forms="who when why")
    return clause.then(*circumstances(dice, clause, somewhere=False))


def being(dice: random.Random, verb: Verb, subject: Phrase, *tails: tuple[str, str]) -> Clause:
    """Draw a sentence with to be, which may be avoir in French."""
    form = "statement" if dice.random() < 0.7 else "question"
    clause = Clause(form, subject, BEING, verb._replace(english=""))
    return clause._replace(slot=_slot(dice, clause)).then(*tails)


def describing(dice: random.Random) -> Clause:
    """Draw a sentence with an adjective: the house is (not, very) big, or bigger than another."""
    subject = _draw_gendered(dice)
    kind = subject.kind
    degrees = phrases.BEFORE[kind] + phrases.AFTER[kind]
    chance = dice.random()
    if chance < 0.4:
        adjective = dice.choice(degrees + phrases.ABSOLUTE[kind])
        return being(dice, ETRE, subject, (adjective.english, _agree(adjective, subject)))
    adjective = dice.choice(degrees)
    if chance < 0.6:
        return being(dice, ETRE, subject, (f"very {adjective.english}", f"très {_agree(adjective, subject)}"))
    other = subject
    while other.french.split()[-1] == subject.french.split()[-1]:  # not the same thing twice
        other = phrases.thing(dice, (kind,), "definite", plain=True)
    comparison = (
        f"{adjective.comparative} than {other.english}",
        f"plus {_agree(adjective, subject)} que {other.french}",
    )
    clause = being(dice, ETRE, subject, comparison)
    return (
        clause._replace(slot=VerbModifier()) if clause.slot.french == "plus" else clause
    )  # not: n'est plus plus grand


def _agree(adjective: Adjective, subject: Phrase) -> str:
    return adjective.agree(subject.gender, plural=subject.is_plural)


def _draw_gendered(dice: random.Random) -> Phrase:
    """Draw a subject whose gender is known from its noun or from the English word."""
    if dice.random() < 0.4:
        return dice.choice([row.subject() for row in phrases.PRONOUNS if row.gender] + phrases.NAMES[::3])
    return phrases.thing(dice, DESCRIBED, "definite", plain=True)


def feeling(dice: random.Random) -> Clause:
    """Draw a sentence about hunger, thirst or age, for which French has avoir."""
    subject = phrases.subject(dice, ("person",))
    if dice.random() < 0.6:
        return being(dice, AVOIR, subject, dice.choice(pairs(words.FEELINGS)), *_now(dice))
    number = dice.randint(2, 100)
    age = f"{english_number(number)} years old", f"{french_number(number, 'm')} ans"
    clause = being(dice, AVOIR, subject, age)
    return clause._replace(slot=NEGATIONS[0] if clause.slot.is_negative else VerbModifier())


def _now(dice: random.Random) -> list[tuple[str, str]]:
    return [phrases.time(dice, "present")] if dice.random() < 0.3 else []


def lying(dice: random.Random) -> Clause:
    """Draw a sentence that says where a thing is."""
    subject = phrases.thing(dice, ("thing", "text", "clothes", "animal"))
    return being(dice, ETRE, subject, phrases.spot(dice))


def there(dice: random.Random) -> Clause:
    """Draw a sentence with there is or there are: il y a, always singular."""
    form = "statement" if dice.random() < 0.7 else "question"
    slot = VerbModifier("", "pas", True) if form == "statement" and dice.random() < 0.4 else VerbModifier()
    what = phrases.thing(dice, THERE, "none" if slot.is_negative else "indefinite")
    subject = Phrase("there", "il", what.person)
    clause = Clause(form, subject, BEING, AVOIR._replace(english="", present=("a",) * 5), slot, clitic="y")
    return clause.then((what.english, what.french), phrases.spot(dice))


def _rows(table: list[tuple[str, str, str]]) -> list[tuple[tuple[str, ...], tuple[str, ...], list[Verb]]]:
    return [(tuple(doers.split()), tuple(things.split()), verbs(row)) for doers, things, row in table]


TRANSITIVE = _rows(words.TRANSITIVE)
INTRANSITIVE = [(tuple(doers.split()), verbs(row)) for doers, row in words.INTRANSITIVE.items()]
MOVING = [(how, verbs(row, with_etre=True)) for how, row in words.WITH_ETRE.items()]
TO_SOMEONE, GIVING, TASTES, PLAYING, NEEDING = (
    verbs(row) for row in (words.TO_SOMEONE, words.GIVING, words.TASTES, words.PLAYING, words.NEEDING)
)
REFLEXIVE = verbs(words.REFLEXIVE, is_reflexive=True)
THERE = ("thing", "animal", "food", "meal", "drink", "text")
DESCRIBED = tuple(kind for kind in phrases.NOUNS if phrases.AFTER[kind])

# What is said, and how often.
PATTERNS: dict[Callable[[random.Random], Clause], int] = {
    transitive: 36,
    asked_what: 4,
    to_someone: 7,
    giving: 8,
    tasting: 5,
    playing: 4,
    needing: 2,
    doing: 8,
    moving: 11,
    oneself: 6,
    describing: 9,
    feeling: 5,
    lying: 4,
    there: 7,
}


def draw(dice: random.Random) -> Pair:
    """Draw a sentence and its translation."""
    while True:
        pattern = dice.choices(list(PATTERNS), list(PATTERNS.values()))[0]
        clause = pattern(dice)
        english = in_english(clause)
        if SHORTEST <= len(english.split()) <= LONGEST:
            return Pair(english, in_french(clause))


def split(*sizes: int, seed: int) -> list[list[Pair]]:
    """Draw parts of the given sizes; no sentence is in two of them, or twice in one."""
    dice = random.Random(seed)
    found: dict[Pair, None] = {}  # keeps the order
    while len(found) < sum(sizes):
        found[draw(dice)] = None
    drawn = iter(found)
    return [[next(drawn) for _ in range(size)] for size in sizes]


def least_number_of_sentences() -> int:
    """Count the sentences of one simple kind: the man sees a dog, both nouns singular, without adjectives."""
    said = {
        (doer.english, verb.english, thing.english)
        for doers, things, row in TRANSITIVE
        for verb in row
        for doer in _countable(doers)
        for thing in _countable(things)
    }
    return len(said) * len(phrases.SINGULAR) ** 2


def _countable(kinds: tuple[str, ...]) -> list[Noun]:
    return [noun for kind in kinds if kind not in phrases.UNCOUNTED for noun in phrases.NOUNS[kind]]
