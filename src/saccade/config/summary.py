"""What a run's data hold, said before training: counts, what is left out, and what was seen in training."""

from __future__ import annotations

from typing import NamedTuple

from rich.console import Console

from saccade.config import build
from saccade.config.schema import Run
from saccade.data.corpus import Corpus, Pair
from saccade.data.mistakes import Mistake
from saccade.data.store import Store, count_seen


class HeldOut(NamedTuple):
    """A corpus that is never trained on, and its pairs."""

    corpus: Corpus
    pairs: list[Pair]


def held_out(config: Run) -> list[HeldOut]:
    """The validation and test pairs. Read first: a mistake in them shows before anything is learned."""
    for training in build.training_corpora(config):
        training.files()  # they are there
    sets = {"data.valid": config.data.valid, "data.test": config.data.test}
    corpora = [build.corpus(files, name) for name, files in sets.items() if files is not None]
    held = [HeldOut(corpus, list(corpus.pairs())) for corpus in corpora]
    for corpus, pairs in held:
        if not any(all(pair) for pair in pairs):
            raise Mistake(f"{corpus.name}: no pair with text on both sides")
    return held


def say(config: Run, stores: list[Store], sets: list[HeldOut], console: Console) -> None:
    """How many pairs there are to train on and why others aren't; warnings about the held-out ones."""
    corpora = build.training_corpora(config)
    lines = [_pairs(len(store)) + _left_out(corpus, store) for corpus, store in zip(corpora, stores, strict=True)]
    if len(stores) > 1:
        for line, (name, files) in zip(lines, config.data.corpora.items(), strict=True):
            _print(console, f"{name}, {files.source}, weight {files.weight:g}: {line}")
        lines = [_pairs(sum(len(store) for store in stores))]
    _print(console, f"{lines[0]} to train on")
    for warning in (warning for held in sets for warning in _warnings(held, stores)):
        _print(console, warning, style="yellow")


def _pairs(count: int) -> str:
    return f"{count:,} pair{'' if count == 1 else 's'}"


def _left_out(corpus: Corpus, store: Store) -> str:
    """Reasons with their counts and the first place of each."""
    reasons = [
        f"{count:,} {reason}, the first at {corpus.place(*store.first_left_out[reason])}"
        for reason, count in store.left_out.items()
        if count
    ]
    return f" (left out: {'; '.join(reasons)})" if reasons else ""


def _warnings(held: HeldOut, stores: list[Store]) -> list[str]:
    def some(count: int) -> str:
        return f"{held.corpus.name}: {count:,} of its {_pairs(len(held.pairs))} {'is' if count == 1 else 'are'}"

    found = []
    blank = [row for row, pair in enumerate(held.pairs) if "" in pair]
    if blank:
        place = held.corpus.place(blank[0], held.pairs[blank[0]].index(""))
        found.append(f"{some(len(blank))} left out, blank on a side; the first at {place}")
    if seen := count_seen(held.pairs, stores):
        found.append(f"{some(seen)} also in the training text")
    return found


def _print(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
