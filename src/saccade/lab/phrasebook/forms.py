"""The inflection of the phrasebook's words: plurals, agreement, conjugation, numbers, elision and contraction."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple, final

from saccade.lab.phrasebook import words

JE, IL, NOUS, VOUS, ILS = range(5)
VOWEL = "aeiouyhàâéèêëîïôœù"


def entries(table: str) -> list[list[str]]:
    """Split the entries of a table into their columns."""
    return [[column.replace("_", " ") for column in entry.split()] for entry in table.split(",")]


@cache
def pairs(table: str) -> list[tuple[str, str]]:
    """Split the entries of a table of two columns."""
    return [(english, french) for english, french in entries(table)]


class Noun(NamedTuple):
    """A noun's forms, and its kind (person, food, ...)."""

    english: str
    english_plural: str
    french: str
    french_plural: str
    gender: str
    kind: str


class Adjective(NamedTuple):
    """An adjective's forms; `comparative` is empty if it has none."""

    english: str
    comparative: str
    masculine: str
    feminine: str
    before_vowel: str
    is_invariable: bool

    def agree(self, gender: str, *, plural: bool) -> str:
        """Return the form that agrees with a noun."""
        singular = self.feminine if gender == "f" else self.masculine
        return plural_of_french(singular) if plural and not self.is_invariable else singular


@final
class Verb(NamedTuple):
    """A verb's forms; the French present is je, il, nous, vous, ils. `past` is empty if it has no past here."""

    english: str
    past: str
    infinitive: str
    participle: str
    present: tuple[str, ...]
    with_etre: bool = False
    is_reflexive: bool = False


def nouns(kind: str) -> list[Noun]:
    """Read the nouns of one kind from their table."""
    return [_noun(english, french, gender, kind) for english, french, gender in entries(words.NOUNS[kind])]


def _noun(english: str, french: str, gender: str, kind: str) -> Noun:
    one, _, many = english.partition("/")
    un, _, des = french.partition("/")
    return Noun(one, many or with_s(one), un, des or plural_of_french(un), gender, kind)


def adjectives(table: dict[str, str], kind: str, *, with_degrees: bool = True) -> list[Adjective]:
    """Read the adjectives of a table that can describe one kind of noun."""
    found = [entry for kinds, row in table.items() if kind in kinds.split() for entry in entries(row)]
    return [_adjective(english, french, with_degrees) for english, french in found]


def _adjective(english: str, french: str, with_degrees: bool) -> Adjective:
    word, _, comparative = english.partition("/")
    masculine, feminine, special = (*french.split("/"), "", "")[:3]
    feminine = feminine or feminine_of(masculine)
    is_invariable = special == "="
    before_vowel = masculine if is_invariable else special or masculine
    degrees = (comparative or f"more {word}") if with_degrees else ""
    return Adjective(word, degrees, masculine, feminine, before_vowel, is_invariable)


def verbs(table: str, *, with_etre: bool = False, is_reflexive: bool = False) -> list[Verb]:
    """Read the verbs of a table."""
    return [_verb(*entry)._replace(with_etre=with_etre, is_reflexive=is_reflexive) for entry in entries(table)]


def _verb(english: str, infinitive: str, *forms: str) -> Verb:
    base, _, past = english.partition("/")
    participle, *present = forms or conjugate(infinitive)
    assert len(present) == 5, (english, forms)
    return Verb(base, "" if past == "-" else past or past_of(base), infinitive, participle, tuple(present))


def conjugate(infinitive: str) -> list[str]:
    """Return the participle and the present of a regular verb in -er, -ir or -re."""
    stem, ending = infinitive[:-2], infinitive[-2:]
    if ending == "er":
        soft = stem + "e" if stem.endswith("g") else stem  # nous mangeons
        return [stem + "é", stem + "e", stem + "e", soft + "ons", stem + "ez", stem + "ent"]
    if ending == "ir":
        return [stem + "i", stem + "is", stem + "it", stem + "issons", stem + "issez", stem + "issent"]
    return [stem + "u", stem + "s", stem, stem + "ons", stem + "ez", stem + "ent"]


def with_s(english: str) -> str:
    """Add -s to a noun (plural) or to a verb (after he and she) by the regular rules."""
    first, space, rest = english.partition(" ")
    if first == "have":
        return "has" + space + rest
    if re.search(r"(s|x|ch|sh|[^aeiou]o)$", first):
        return first + "es" + space + rest
    return (first[:-1] + "ies" if re.search(r"[^aeiou]y$", first) else first + "s") + space + rest


def past_of(english: str) -> str:
    """Return the regular past of an English verb."""
    first, space, rest = english.partition(" ")
    if first.endswith("e"):
        return first + "d" + space + rest
    return (first[:-1] + "ied" if re.search(r"[^aeiou]y$", first) else first + "ed") + space + rest


def plural_of_french(word: str) -> str:
    """Return the regular plural of a French noun or adjective."""
    if word[-1] in "sxz":
        return word
    if word.endswith("al"):
        return word[:-1] + "ux"
    return word + ("x" if word.endswith("eau") else "s")


def feminine_of(masculine: str) -> str:
    """Return the regular feminine of a French adjective."""
    for ending, feminine in (("e", "e"), ("eux", "euse"), ("ien", "ienne"), ("er", "ère")):
        if masculine.endswith(ending):
            return masculine.removesuffix(ending) + feminine
    return masculine + "e"


def english_number(number: int) -> str:
    """Return the English word of a number from two to a hundred."""
    if number == 100:
        return "one hundred"
    small, tens = words.ENGLISH_NUMBERS.split(), words.ENGLISH_TENS.split()
    if number < 20:
        return small[number]
    return tens[number // 10] + (f"-{small[number % 10]}" if number % 10 else "")


def french_number(number: int, gender: str) -> str:
    """Return the French word of a number from two to a hundred; from 60 on, French counts by twenties."""
    small, tens = words.FRENCH_NUMBERS.split(), words.FRENCH_TENS.split()
    small[1] = "une" if gender == "f" else "un"
    if number == 100:
        return "cent"
    if number < 20:
        return small[number]
    ten = tens[number // 10]
    rest = number % 20 if number >= 60 else number % 10
    if rest == 0:
        return ten + ("s" if number == 80 else "")
    return f"{ten} et {small[rest]}" if rest in (1, 11) and number < 80 else f"{ten}-{small[rest]}"


def with_article(english: str) -> str:
    """Put a or an before a word, by its sound."""
    first = english.partition(" ")[0]
    sounds_open = first in words.AN_BY_SOUND.split() or (
        first[0] in "aeiouAEIO" and first not in words.A_BY_SOUND.split()
    )
    return ("an " if sounds_open else "a ") + english


def starts_with_vowel(french: str) -> bool:
    """Return whether a French word shortens the word before it (l'arbre)."""
    return french[0].lower() in VOWEL


def elide(french: str) -> str:
    """Apply elision (l'arbre, n'ai, qu'elle), mon and cet before vowels, and contraction (du, aux)."""
    vowel = f"(?=[{VOWEL}{VOWEL.upper()}])"
    french = re.sub(rf"\b(je|ne|le|la|me|se|de|que) {vowel}", lambda found: found[1][:-1] + "'", french)
    french = re.sub(rf"\b([ms])a {vowel}", r"\1on ", french)
    french = re.sub(rf"\bce {vowel}", "cet ", french)
    contracted = {"de le": "du", "de les": "des", "à le": "au", "à les": "aux"}
    french = re.sub(r"\b(de|à) (le|les)\b", lambda found: contracted[found[0]], french)
    return french.replace("*", "")
