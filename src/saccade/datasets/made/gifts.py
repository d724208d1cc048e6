"""Stories of people who give each other things, for language models: who has what in the end follows from the story.

What is drawn is drawn with known chances, so it is known how well a story can be predicted at best.
"""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import NamedTuple

from saccade.files import replace_file

SIZES = {"train": 12000, "valid": 300, "test": 1000}
NAMES = ("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Greta", "Henry")
THINGS = ("ball", "book", "cup", "drum", "hat", "kite", "lamp", "scarf")
COLOURS = ("black", "blue", "green", "red", "white", "yellow")
NUM_PEOPLE = 3  # each has one thing when the story begins
NUM_GIFTS = (2, 3, 4)


class Story(NamedTuple):
    """A story, and -log p of it: what is left to whoever knows how stories are made."""

    text: str
    nats: float


def make_gifts(folder: Path) -> None:
    """Write train.txt, valid.txt and test.txt, a story a line. No story is in two of them."""
    dice, seen = random.Random(1), set[str]()
    for name, size in SIZES.items():
        lines = list[str]()
        while len(lines) < size:
            text = draw_story(dice).text
            if text not in seen:
                seen.add(text)
                lines.append(f"{text}\n")
        with replace_file(folder / f"{name}.txt") as draft:
            draft.write_text("".join(lines), "utf-8")


def draw_story(dice: random.Random) -> Story:
    """Draw who has what, some gifts, and tell who has each thing in the end."""
    people, things = dice.sample(NAMES, NUM_PEOPLE), dice.sample(THINGS, NUM_PEOPLE)
    named = [f"{dice.choice(COLOURS)} {thing}" for thing in things]
    chances = [math.perm(len(NAMES), NUM_PEOPLE), math.perm(len(THINGS), NUM_PEOPLE), len(COLOURS) ** NUM_PEOPLE]
    owners = list(range(NUM_PEOPLE))  # of each thing
    sentences = [f"{person} has a {thing}" for person, thing in zip(people, named, strict=True)]
    for _ in range(dice.choice(NUM_GIFTS)):
        givers = sorted(set(owners))
        giver = dice.choice(givers)
        own = [thing for thing, owner in enumerate(owners) if owner == giver]
        thing, taker = dice.choice(own), dice.choice([one for one in range(NUM_PEOPLE) if one != giver])
        sentences.append(f"{people[giver]} gives {people[taker]} the {named[thing]}")
        chances += [len(givers), len(own), NUM_PEOPLE - 1]
        owners[thing] = taker
    sentences += [f"now {people[owner]} has the {thing}" for owner, thing in zip(owners, named, strict=True)]
    return Story(" ".join(f"{sentence} ." for sentence in sentences), math.log(math.prod([*chances, len(NUM_GIFTS)])))
