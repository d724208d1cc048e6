"""Requests for a table, a room or a ticket: which words name the house, the town, the day, the hour, the number?

Houses and towns have made-up names, and nearly all names of the test are new: only their letters and the words around
them tell what they are. For text to tags, as CoNLL columns in BIO.
"""

from __future__ import annotations

import random
from pathlib import Path

from saccade.files import replace_file

SIZES = {"train": 2500, "valid": 300, "test": 800}
REQUESTS = (
    "book a table for {number} at {house} in {town} on {day} at {hour}",
    "could you get us a table at {house} for {number} on {day} ?",
    "we need a room for {number} in {town} from {day} to {day}",
    "is there a room left at {house} on {day} ?",
    "two tickets from {town} to {town} on {day} please",
    "I would like to go from {town} to {town} at {hour}",
    "please move my table at {house} from {day} to {day} , {hour}",
    "cancel the room in {town} and take one at {house} , for {number}",
    "{number} of us arrive in {town} at {hour} , is {house} open then ?",
    "a table for {number} , {day} at {hour} , at {house}",
    "when does the train to {town} leave on {day} ?",
    "does {house} in {town} have a garden ?",
    "how far is it from {house} to {town} ?",
    "how far is it from {town} to {house} ?",
    "are there two rooms in {town} , or in {house} ?",
    "a room with four beds , in {town} or at {house}",
)
NUMBERS = ("two", "three", "four", "five", "six", "seven people", "eight people", "a party of ten", "2", "4", "12")
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
DAYS = (*WEEKDAYS, *(f"{word} {day}" for word in ("next", "this") for day in WEEKDAYS), "tomorrow", "New Year 's Eve")
HOURS = ("noon", "half past seven", "eight", "a quarter to nine", "7 pm", "18:30", "20:15", "nine in the evening")
STARTS = ("B", "Br", "D", "Fl", "G", "H", "K", "L", "M", "N", "P", "R", "S", "St", "T", "V", "W")
VOWELS = ("a", "e", "i", "o", "u", "ie", "au")
MIDDLES = ("l", "ll", "n", "nd", "r", "rt", "s", "st", "m", "v")
TOWN_ENDS = ("burg", "ham", "feld", "ford", "mouth", "wick", "au")
HOUSE_ENDS = ("o", "a", "i", "etto", "ina", "el", "is")
HOUSES = ("{}", "Chez {}", "the {} Inn", "Hotel {}", "Casa {}", "{} 's", "Café {}")


def make_bookings(folder: Path) -> None:
    """Write train.conll, valid.conll and test.conll: a word, a tab, a tag; a blank line after each request."""
    dice = random.Random(1)
    for name, size in SIZES.items():
        with replace_file(folder / f"{name}.conll") as draft:
            draft.write_text("".join(_columns(draw_request(dice)) for _ in range(size)), "utf-8")


def draw_request(dice: random.Random) -> list[tuple[str, str]]:
    """Draw a request, as words with their tags."""
    tagged = list[tuple[str, str]]()
    is_hasty = dice.random() < 0.3  # writes no capitals
    for part in dice.choice(REQUESTS).split():
        if not part.startswith("{"):
            tagged.append((part, "O"))
            continue
        kind = part.strip("{}")
        words = _draw_words(dice, kind).split()
        words = [word.lower() for word in words] if is_hasty else words
        tagged += [(word, f"{'I' if place else 'B'}-{kind}") for place, word in enumerate(words)]
    return tagged


def _draw_words(dice: random.Random, kind: str) -> str:
    if kind == "town":
        return _name(dice) + dice.choice(TOWN_ENDS)
    if kind == "house":
        return dice.choice(HOUSES).format(_name(dice) + dice.choice(HOUSE_ENDS))
    return dice.choice({"number": NUMBERS, "day": DAYS, "hour": HOURS}[kind])


def _name(dice: random.Random) -> str:
    syllables = dice.randint(1, 3)
    return dice.choice(STARTS) + "".join(dice.choice(VOWELS) + dice.choice(MIDDLES) for _ in range(syllables))


def _columns(tagged: list[tuple[str, str]]) -> str:
    return "".join(f"{word}\t{tag}\n" for word, tag in tagged) + "\n"
