"""The phrasebook's parts of sentences: persons, things, places and times, in both languages at once."""

from __future__ import annotations

import random
from functools import cache
from typing import NamedTuple

from saccade.lab.phrasebook import words
from saccade.lab.phrasebook.forms import (
    IL,
    ILS,
    JE,
    NOUS,
    VOUS,
    Adjective,
    Noun,
    adjectives,
    english_number,
    entries,
    french_number,
    nouns,
    pairs,
    starts_with_vowel,
    with_article,
)

NOUNS = {kind: nouns(kind) for kind in words.NOUNS}
BEFORE = {kind: adjectives(words.ADJECTIVES_BEFORE, kind) for kind in NOUNS}
AFTER = {kind: adjectives(words.ADJECTIVES_AFTER, kind) for kind in NOUNS}
ABSOLUTE = {kind: adjectives(words.ADJECTIVES_WITHOUT_DEGREES, kind, with_degrees=False) for kind in NOUNS}
UNCOUNTED = ("meal", "drink")
DEFINITE = ("the", "this", "these", "my", "your", "his", "her", "our", "their")
ALLOWED = {
    "definite": DEFINITE,
    "single": DEFINITE,
    "negated": DEFINITE,
    "indefinite": ("a", "some", "several", "many"),
}


class Phrase(NamedTuple):
    """A person or thing in both languages; French verbs and adjectives agree with it."""

    english: str
    french: str
    person: int = IL
    gender: str = "m"
    kind: str = "person"

    @property
    def is_plural(self) -> bool:
        """Return whether adjectives take the plural."""
        return self.person in (NOUS, VOUS, ILS)


class Pronoun(NamedTuple):
    """A personal pronoun in all its forms."""

    person: int
    gender: str
    english: str
    english_object: str
    french: str
    direct: str
    indirect: str
    alone: str

    def subject(self) -> Phrase:
        return Phrase(self.english, self.french, self.person, self.gender)


Determiner = tuple[str, str, str]  # English, masculine, feminine
PERSONS = ((JE, ""), (IL, "m"), (NOUS, ""), (VOUS, ""), (ILS, "m"), (IL, "f"))  # as in the table; "": not known
PRONOUNS = [
    Pronoun(person, gender, *row) for (person, gender), row in zip(PERSONS, entries(words.PRONOUNS), strict=True)
]
NAMES = [Phrase(name, name, IL, gender) for name, gender in pairs(words.NAMES)]
SINGULAR, PLURAL, MASS = (
    [(english, masculine, feminine) for english, masculine, feminine in entries(table)]
    for table in (words.SINGULAR, words.PLURAL, words.UNCOUNTED)
)


def any_noun(dice: random.Random, kinds: tuple[str, ...]) -> Noun:
    """Draw a noun of some kinds, each noun with the same probability."""
    return dice.choice(_of_kinds(kinds))


@cache
def _of_kinds(kinds: tuple[str, ...]) -> list[Noun]:
    return [noun for kind in kinds for noun in NOUNS[kind]]


def thing(dice: random.Random, kinds: tuple[str, ...], use: str = "full", *, plain: bool = False) -> Phrase:
    """Draw a noun with its determiner and up to two adjectives (none if plain).

    Uses: full (any determiner), definite, single (definite, not plural), indefinite, negated (after ne ... pas: a and
    any become de), none (no dog), general (all of its kind).
    """
    noun = any_noun(dice, kinds)
    plural = noun.kind not in UNCOUNTED and use != "single" and (use == "general" or dice.random() < 0.35)
    before = dice.choice(BEFORE[noun.kind]) if BEFORE[noun.kind] and dice.random() < 0.2 else None
    after = dice.choice(AFTER[noun.kind] + ABSOLUTE[noun.kind] or [None]) if dice.random() < 0.25 else None
    if use == "general" or plain:
        before = after = None
    return noun_phrase(noun, determiner(dice, noun, use, plural=plural), before, after, plural=plural)


def noun_phrase(
    noun: Noun, determiner: Determiner, before: Adjective | None, after: Adjective | None, *, plural: bool
) -> Phrase:
    """Put the words in order: in French most adjectives follow the noun."""
    english, masculine, feminine = determiner
    article = feminine if noun.gender == "f" else masculine
    if english == "some" and plural and before:
        article = "de"  # de petites maisons
    french_noun = noun.french_plural if plural else noun.french
    first = [_before(before, noun, plural=plural)] if before else []
    last = [after.agree(noun.gender, plural=plural)] if after else []
    described = [adjective.english for adjective in (before, after) if adjective]
    body = " ".join([*described, noun.english_plural if plural else noun.english])
    said = with_article(body) if english == "a" else f"{english} {body}".strip()
    french = " ".join([article, *first, french_noun, *last])
    return Phrase(said, french, ILS if plural else IL, noun.gender, noun.kind)


def _before(adjective: Adjective, noun: Noun, *, plural: bool) -> str:
    if noun.gender == "m" and not plural and starts_with_vowel(noun.french):
        return adjective.before_vowel
    return adjective.agree(noun.gender, plural=plural)


def determiner(dice: random.Random, noun: Noun, use: str, *, plural: bool) -> Determiner:
    """Draw a determiner that suits the noun and its use."""
    uncounted = noun.kind in UNCOUNTED
    if use == "general":
        return ("", "les", "les") if plural else ("", "le", "la")
    if use == "none":
        return "no", "de", "de"
    if use in ("full", "indefinite") and plural and dice.random() < 0.35:
        number = dice.randint(2, 100) if dice.random() < 0.7 else dice.randint(2, 12)
        return english_number(number), french_number(number, "m"), french_number(number, "f")
    if use == "negated" and dice.random() < 0.5:
        return ("any" if plural or uncounted else "a", "de", "de")
    common = MASS if uncounted else PLURAL if plural else SINGULAR
    allowed = [row for row in common if row[0] in ALLOWED.get(use, (row[0],))]
    return dice.choice(allowed[:2]) if dice.random() < 0.4 else dice.choice(allowed)


def subject(dice: random.Random, kinds: tuple[str, ...]) -> Phrase:
    """Draw a subject: a pronoun, a name, a noun, or two of them."""
    chance = dice.random()
    if "person" not in kinds or chance < 0.35:
        return thing(dice, kinds)
    if chance < 0.8:
        return dice.choice(PRONOUNS).subject()
    return dice.choice(NAMES) if chance < 0.92 else couple(dice)


def couple(dice: random.Random) -> Phrase:
    """Draw two persons; together they are masculine unless both are feminine."""
    first, second = (noun_phrase(noun, dice.choice(SINGULAR[:4]), None, None, plural=False) for noun in _two(dice))
    gender = "f" if first.gender == second.gender == "f" else "m"
    return Phrase(f"{first.english} and {second.english}", f"{first.french} et {second.french}", ILS, gender)


def _two(dice: random.Random) -> list[Noun]:
    return dice.sample(NOUNS["person"], 2)


def other_than(dice: random.Random, subject: Phrase) -> Pronoun:
    """Draw a pronoun for another person than the subject: not I see me, nor I see us."""
    same = {JE: (JE, NOUS), NOUS: (JE, NOUS), VOUS: (VOUS,)}.get(subject.person, ())
    return dice.choice([pronoun for pronoun in PRONOUNS if pronoun.person not in same])


def place(dice: random.Random) -> tuple[str, str]:
    """Draw a place where something happens."""
    chance = dice.random()
    if chance < 0.3:
        return dice.choice(pairs(words.SOMEWHERE))
    if chance < 0.5:
        return _with_preposition(dice, words.IN, ("building", "room", "outdoors"))
    if chance < 0.65:
        return _with_preposition(dice, words.AT, ("building",), "single")
    return _with_preposition(dice, words.NEARBY, ("building", "landmark"))


def spot(dice: random.Random) -> tuple[str, str]:
    """Draw a place where a thing lies."""
    return _with_preposition(dice, words.ON_FURNITURE, ("furniture",)) if dice.random() < 0.6 else place(dice)


def _with_preposition(
    dice: random.Random, prepositions: str, kinds: tuple[str, ...], use: str = "definite"
) -> tuple[str, str]:
    english, french = dice.choice(pairs(prepositions))
    where = thing(dice, kinds, use)
    return f"{english} {where.english}", f"{french} {where.french}"


def company(dice: random.Random, subject: Phrase) -> tuple[str, str]:
    """Draw somebody who is there or missing: with her, without the doctor."""
    english, french = dice.choice([("with", "avec"), ("without", "sans")])
    if dice.random() < 0.5:
        pronoun = other_than(dice, subject)
        return f"{english} {pronoun.english_object}", f"{french} {pronoun.alone}"
    whom = thing(dice, ("person",), "definite")
    return f"{english} {whom.english}", f"{french} {whom.french}"


def time(dice: random.Random, tense: str) -> tuple[str, str]:
    """Draw a time: today, at three o'clock, two weeks ago, in ten years."""
    number = dice.randint(2, 11)
    spoken, parlé = english_number(number), french_number(number, "f")
    if dice.random() < 0.8:
        return dice.choice(pairs(words.TIMES[tense]))
    if tense == "present":
        return f"at {spoken} o'clock", f"à {parlé} heures"
    spans, durée = dice.choice(pairs(words.SPANS))
    return (
        (f"{spoken} {spans} ago", f"il y a {parlé} {durée}")
        if tense == "past"
        else (f"in {spoken} {spans}", f"dans {parlé} {durée}")
    )
