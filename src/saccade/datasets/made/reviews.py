"""Reviews of hotels: is everything good, everything bad, or something of both? For text to label.

The verdict is the reviews' own: each sentence is about one thing and praises or blames it, and a negation turns the
praise of "not very clean" into blame. Most words say nothing, so that the weights of attention have something to find.
"""

from __future__ import annotations

import random
from pathlib import Path

from saccade.files import replace_file

SIZES = {"train": 4000, "valid": 400, "test": 1000}
LABELS = ("positive", "negative", "mixed")
THINGS = {  # what is judged, and the words that praise and blame it
    ("room", "bed", "bathroom"): (("clean", "comfortable", "spacious"), ("dirty", "cramped", "shabby")),
    ("breakfast", "soup", "bread", "coffee"): (("delicious", "fresh", "tasty"), ("cold", "stale", "awful")),
    ("waiter", "porter", "receptionist"): (("friendly", "helpful", "polite"), ("rude", "grumpy", "careless")),
    ("view", "garden", "terrace"): (("lovely", "charming", "splendid"), ("gloomy", "dull", "ugly")),
    ("music", "lift", "street"): (("pleasant", "quiet", "soothing"), ("noisy", "annoying", "unbearable")),
}
DEGREES = ("", "", "very", "really", "quite", "rather", "surprisingly")
DENIALS = (
    "the {thing} {verb} not {word}",
    "the {thing} {verb} never {word}",
    "the {thing} {verb} anything but {word}",
    "nobody could call the {thing} {word}",
    "I would not say that the {thing} {verb} {word}",
    "they had promised that the {thing} would be {word} , and it {verb} not",
)
FILLERS = (
    "we stayed for {} nights",
    "my brother had told me about it",
    "it lies near the station",
    "we came by train in {}",
    "there were {} of us",
    "the house was built in 19{}0",
    "you find it behind the old church",
    "our children are {} and seven",
    "it has {} floors",
)
NUMBERS = ("two", "three", "four", "five", "six")
MONTHS = ("March", "May", "June", "August", "October")


def make_reviews(folder: Path) -> None:
    """Write train.tsv, valid.tsv and test.tsv: a header, then a label, a tab, a review. No review is in two of them."""
    dice, seen = random.Random(1), set[str]()
    for name, size in SIZES.items():
        lines = ["label\ttext\n"]
        while len(lines) <= size:
            label, text = draw_review(dice)
            if text not in seen:
                seen.add(text)
                lines.append(f"{label}\t{text}\n")
        with replace_file(folder / f"{name}.tsv") as draft:
            draft.write_text("".join(lines), "utf-8")


def draw_review(dice: random.Random) -> tuple[str, str]:
    """Draw a review of two or three judgements and up to two sentences that judge nothing; return its label, too."""
    label = dice.choice(LABELS)
    count = dice.randint(2, 3)
    goods = [label == "positive"] * count
    if label == "mixed":
        goods = [True, False, *(dice.random() < 0.5 for _ in range(count - 2))]
    sentences = [_judge(dice, good) for good in goods]
    sentences += [_fill(dice) for _ in range(dice.randint(0, 2))]
    dice.shuffle(sentences)
    return label, " ".join(f"{sentence} ." for sentence in sentences)


def _judge(dice: random.Random, good: bool) -> str:
    things, (praise, blame) = dice.choice(list(THINGS.items()))
    thing, verb = dice.choice(things), dice.choice(("was", "is", "seemed"))
    if dice.random() < 0.4:  # not clean, never rude
        return dice.choice(DENIALS).format(thing=thing, verb=verb, word=dice.choice(blame if good else praise))
    degree, word = dice.choice(DEGREES), dice.choice(praise if good else blame)
    return " ".join(f"the {thing} {verb} {degree} {word}".split())


def _fill(dice: random.Random) -> str:
    filler = dice.choice(FILLERS)
    if "19" in filler:
        return filler.format(dice.randint(0, 9))
    return filler.format(dice.choice(MONTHS if filler.endswith("in {}") else NUMBERS))
