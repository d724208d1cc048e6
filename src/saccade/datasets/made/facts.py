"""Questions about short texts, for text to text: the answer is in the text, often a word of no other one."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import NamedTuple

from saccade.datasets.made.names import draw_names
from saccade.files import replace_file

SIZES = {"train": 10_000, "valid": 300, "test": 1000}
NUM_PEOPLE = 3
PEOPLE = (
    "Anna",
    "Ben",
    "Clara",
    "David",
    "Emma",
    "Felix",
    "Greta",
    "Henry",
    "Ida",
    "Jonas",
    "Kira",
    "Leo",
    "Mia",
    "Noah",
    "Olga",
    "Paul",
)
JOBS = ("baker", "doctor", "farmer", "painter", "pilot", "teacher", "tailor", "singer")
THINGS = ("bicycle", "boat", "car", "dog", "garden", "horse", "piano", "shop")
COLOURS = ("black", "blue", "green", "red", "white", "yellow")


class Fact(NamedTuple):
    """A fact about a person, and the questions that it answers: each with the field that the answer is."""

    sentences: tuple[str, ...]
    questions: tuple[tuple[str, str], ...]


FACTS = (
    Fact(
        ("{person} lives in {place} .", "the home of {person} is {place} .", "in {place} lives {person} ."),
        (("where does {person} live ?", "place"),),
    ),
    Fact(
        ("the number of {person} is {number} .", "{person} can be called at {number} ."),
        (("what is the number of {person} ?", "number"),),
    ),
    Fact(
        ("{person} is a {job} .", "{person} works as a {job} ."),
        (("what does {person} do ?", "job"), ("who is the {job} ?", "person")),
    ),
    Fact(
        ("{person} has a {thing} .", "the {thing} belongs to {person} ."),
        (("what does {person} have ?", "thing"), ("who has the {thing} ?", "person")),
    ),
)


def make_facts(folder: Path) -> None:
    """Write train.jsonl, valid.jsonl and test.jsonl: a question with its text, and the answer."""
    dice, seen = random.Random(1), set[str]()
    for name, size in SIZES.items():
        lines = list[str]()
        while len(lines) < size:
            text, answer = draw_question(dice)
            if text not in seen:
                seen.add(text)
                lines.append(json.dumps({"question": text, "answer": answer}) + "\n")
        with replace_file(folder / f"{name}.jsonl") as draft:
            draft.write_text("".join(lines), "utf-8")


def draw_question(dice: random.Random) -> tuple[str, str]:
    """Draw a text that tells two facts of each of some people, and a question about one of them before it."""
    columns = (
        dice.sample(PEOPLE, NUM_PEOPLE),
        draw_names(dice, NUM_PEOPLE),
        dice.sample(JOBS, NUM_PEOPLE),
        [str(dice.randint(10_000, 99_999)) for _ in range(NUM_PEOPLE)],
        [f"{dice.choice(COLOURS)} {thing}" for thing in dice.sample(THINGS, NUM_PEOPLE)],
    )
    told = list[tuple[str, Fact, dict[str, str]]]()
    for values in zip(*columns, strict=True):
        parts = dict(zip(("person", "place", "job", "number", "thing"), values, strict=True))
        told += [(dice.choice(fact.sentences).format(**parts), fact, parts) for fact in dice.sample(FACTS, 2)]
    dice.shuffle(told)
    _, fact, parts = dice.choice(told)
    question, wanted = dice.choice(fact.questions)
    return " ".join([question.format(**parts), *(sentence for sentence, _, _ in told)]), parts[wanted]
