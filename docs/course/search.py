"""Chapter 5: greedy and beam search over tables of probabilities; what wider beams find."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from saccade.data.text.tokenizer import END, START
from saccade.decoding import BeamOptions, beam_search
from saccade.inspection.draw.panels import Axes, BandCurve, to_file

PICTURE = Path(__file__).with_suffix(".png")
WORDS = ["", "<s>", "</s>", "a", "the", "cat", "dog", "sleeps"]  # the ids of saccade's special tokens come first
NEXT = {  # p(next word | last word); figures/beam.js has the same
    "<s>": {"a": 0.55, "the": 0.45},
    "a": {"cat": 0.4, "dog": 0.35, "</s>": 0.25},
    "the": {"cat": 0.9, "dog": 0.1},
    "cat": {"sleeps": 0.6, "</s>": 0.4},
    "dog": {"sleeps": 0.7, "</s>": 0.3},
    "sleeps": {"</s>": 0.9, "the": 0.1},
}
TABLES, VOCABULARY, LONGEST, WIDEST = 200, 30, 12, 8


class Place(NamedTuple):
    """Which table a hypothesis is written by."""

    table_B: Tensor

    def rows(self, index_N: Tensor) -> Place:
        return Place(self.table_B[index_N])


class Tables:
    """Models whose next word depends on the last one: log p [tables, V, V]."""

    def __init__(self, log_p: Tensor) -> None:
        self.log_p = log_p

    def start(self, source_BS: Tensor, source_length_B: Tensor) -> Place:
        """Read which table is meant."""
        del source_length_B
        return Place(source_BS[:, 0])

    def advance(self, place: Place, read_BT: Tensor) -> tuple[Tensor, Place]:
        """Return log p of all next words."""
        return self.log_p[place.table_B, read_BT[:, -1]][:, None], place

    def logits(self, vectors: Tensor) -> Tensor:
        """Return the vectors, which are log p already."""
        return vectors


def search(model: Tables, num_tables: int, width: int) -> list[tuple[list[int], float]]:
    """Return the best sentence for each table, with its log p."""
    options = BeamOptions(width=width, length_penalty=0, max_length=LONGEST, max_rounds=0)
    found = beam_search(model, torch.arange(num_tables)[:, None], torch.ones(num_tables, dtype=torch.long), options)
    return [(best.ids, sum(best.log_probabilities)) for best, *_ in found]


def main(picture: Path = PICTURE) -> None:
    """Search, print and draw."""
    table = torch.full((len(WORDS), len(WORDS)), -torch.inf)
    for last, following in NEXT.items():
        for word, p in following.items():
            table[WORDS.index(last), WORDS.index(word)] = math.log(p)
    for width in (1, 2):
        ((ids, log_p),) = search(Tables(table[None]), 1, width)
        print(f"B = {width}: {' '.join(WORDS[one] for one in ids)}  p = {math.exp(log_p):.4f}")
    torch.manual_seed(1)
    logits = 2 * torch.randn(TABLES, VOCABULARY, VOCABULARY)
    logits[..., :END] = -torch.inf  # padding and <s> are never written
    model, widths = Tables(logits.log_softmax(-1)), list(range(1, WIDEST + 1))
    found = [torch.tensor([log_p for _, log_p in search(model, TABLES, width)]) for width in widths]
    means = [float(one.mean()) for one in found]
    print("mean log p of what is found, B = 1, 2, ...: " + " ".join(f"{mean:.2f}" for mean in means))
    band = BandCurve([float(width) for width in widths], means, means, means)
    to_file(picture, [(Axes("200 random tables", "width of the beam", "mean log p of what is found"), {"best": band})])


if __name__ == "__main__":
    assert WORDS[START] == "<s>"
    main()
