"""Stories of people who walk about and carry things, with questions of one, two or three facts. For question answering.

The questions are of the kinds that Weston 2015 (section 3.1) made popular: where is a person, where is a thing, and
where was a thing before it was somewhere. The sentences that tell the answer are known, so that one can see whether a
model reads them.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, final

from saccade.files import replace_file

SIZES = {"train": 30_000, "valid": 1_500, "test": 3_000}  # a third of each kind
PEOPLE = ("Mary", "John", "Sandra", "Daniel", "Ruth", "Omar")
PLACES = ("kitchen", "garden", "office", "bathroom", "hallway", "bedroom", "cellar")
THINGS = ("apple", "football", "milk", "book", "lamp")
WALKS = ("went to", "walked to", "travelled to", "moved to")
TAKES = ("took", "picked up", "grabbed")
DROPS = ("put down", "dropped", "left")


class Stay(NamedTuple):
    """A thing in a place: the numbers of the sentences that say it is with somebody, and that this person is there."""

    place: str
    carried: int
    came: int


@final
class World:
    """The places of people and things while a story is told."""

    def __init__(self, dice: random.Random, people: list[str], things: list[str]) -> None:
        self.dice, self.people = dice, people
        self.sentences: list[str] = []
        self.place: dict[str, tuple[str, int]] = {}  # of a person, and the sentence that says so
        self.holder: dict[str, str] = {}  # of a thing
        self.stays: dict[str, list[Stay]] = {thing: [] for thing in things}

    def tell(self, *, with_things: bool) -> None:
        person, chance = self.dice.choice(self.people), self.dice.random()
        held = [thing for thing in self.stays if self.holder.get(thing) == person]
        if with_things and chance < 0.3 and (near := self._within_reach(person)):
            self._carry(person, self.dice.choice(near), TAKES)
        elif held and chance < 0.45:
            self._carry(person, self.dice.choice(held), DROPS)
        else:
            self._walk(person, held)

    def _within_reach(self, person: str) -> list[str]:
        """Return things that nobody holds, where the person is: those left there, or else new ones."""
        if person not in self.place:
            return []
        free = [thing for thing in self.stays if thing not in self.holder]
        left = [thing for thing in free if self.stays[thing] and self.stays[thing][-1].place == self.place[person][0]]
        return left or [thing for thing in free if not self.stays[thing]]

    def _carry(self, person: str, thing: str, verbs: tuple[str, ...]) -> None:
        place, came = self.place[person]
        self.stays[thing][-1:] = [Stay(place, self._say(f"{person} {self.dice.choice(verbs)} the {thing}."), came)]
        if verbs is TAKES:
            self.holder[thing] = person
        else:
            del self.holder[thing]

    def _walk(self, person: str, held: list[str]) -> None:
        here = self.place.get(person, ("", 0))[0]
        place = self.dice.choice([one for one in PLACES if one != here])
        came = self._say(f"{person} {self.dice.choice(WALKS)} the {place}.")
        self.place[person] = place, came
        for thing in held:
            self.stays[thing].append(Stay(place, self.stays[thing][-1].carried, came))

    def _say(self, sentence: str) -> int:
        self.sentences.append(sentence)
        return len(self.sentences) - 1


Question = tuple[str, str, set[int]]  # the question, its answer, and the sentences that tell it


def _ask_for_a_person(world: World) -> Question | None:
    person = world.dice.choice(list(world.place))
    place, came = world.place[person]
    return f"Where is {person}?", place, {came}


def _ask_for_a_thing(world: World) -> Question | None:
    if not (known := [thing for thing, stays in world.stays.items() if stays]):
        return None
    thing = world.dice.choice(known)
    place, *facts = world.stays[thing][-1]
    return f"Where is the {thing}?", place, set(facts)


def _ask_for_the_place_before(world: World) -> Question | None:
    known = [
        (thing, before, after)
        for thing, stays in world.stays.items()
        for before, after in itertools.pairwise(stays)
        if [stay.place for stay in stays].count(after.place) == 1
    ]
    if not known:
        return None
    thing, before, after = world.dice.choice(known)
    return f"Where was the {thing} before the {after.place}?", before.place, {*before[1:], *after[1:]}


class QuestionKind(NamedTuple):
    """A kind of question, and the number of sentences of its stories."""

    ask: Callable[[World], Question | None]
    shortest: int
    longest: int


KINDS = {
    "one fact": QuestionKind(_ask_for_a_person, 2, 12),
    "two facts": QuestionKind(_ask_for_a_thing, 4, 20),
    "three facts": QuestionKind(_ask_for_the_place_before, 6, 30),
}


def draw_story(dice: random.Random, name: str) -> dict[str, object] | None:
    """Draw a story with a question of a kind; None if there is nothing to ask."""
    kind = KINDS[name]
    world = World(dice, dice.sample(PEOPLE, dice.randint(2, 4)), dice.sample(THINGS, dice.randint(1, 3)))
    for _ in range(dice.randint(kind.shortest, kind.longest)):
        world.tell(with_things=kind.ask is not _ask_for_a_person)
    if (asked := kind.ask(world)) is None:
        return None
    question, answer, facts = asked
    found: dict[str, object] = {"story": world.sentences, "question": question, "answer": answer}
    return {**found, "facts": sorted(facts), "kind": name}


def make_stories(folder: Path) -> None:
    """Write train.jsonl, valid.jsonl and test.jsonl. No story is in two of them with the same question."""
    dice, seen = random.Random(1), set[str]()
    for part, size in SIZES.items():
        lines: list[str] = []
        while len(lines) < size:
            drawn = draw_story(dice, list(KINDS)[len(lines) % len(KINDS)])
            line = json.dumps(drawn)
            if drawn is not None and line not in seen:
                seen.add(line)
                lines.append(f"{line}\n")
        with replace_file(folder / f"{part}.jsonl") as draft:
            draft.write_text("".join(lines), "utf-8")
