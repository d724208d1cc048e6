"""The problems: elements drawn at random, and the places to point at; as texts, and as batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.text.tokenizer import END, PAD, START
from saccade.errors import UserError
from saccade.models.pointing.pointer_network import FIRST

BATCHES = 500  # of an epoch; there is no end of problems
MOST_ELEMENTS = 500
DECIMALS = 3
Elements = NDArray[np.float64]  # [S, C]


class ProblemKind(NamedTuple):
    """A kind of problem: how many numbers an element has, and from elements to the places to point at."""

    width: int
    solve: Callable[[Elements], list[int]]
    fewest: int  # elements


def sort(value_SC: Elements) -> list[int]:
    """Return the places of numbers from the least to the greatest."""
    found: list[int] = np.argsort(value_SC[:, 0], kind="stable").tolist()
    return found


def find_hull(value_SC: Elements) -> list[int]:
    """Return the places of a convex hull's corners, counter-clockwise from the leftmost (Andrew 1979)."""
    points = value_SC.tolist()  # Python's numbers: single ones of NumPy are slow
    order = sorted(range(len(points)), key=points.__getitem__)
    halves = []
    for path in (order, order[::-1]):
        half = list[int]()
        for place in path:
            while len(half) > 1 and _turn(*(points[corner] for corner in (half[-2], half[-1], place))) <= 0:
                half.pop()
            half.append(place)
        halves.append(half[:-1])
    return halves[0] + halves[1] if len(points) > 1 else order


def _turn(a: Sequence[float], b: Sequence[float], c: Sequence[float]) -> float:
    """Return what is positive where one turns left at b on the way from a to c."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


PROBLEMS = {"sort": ProblemKind(1, sort, 1), "hull": ProblemKind(2, find_hull, 3)}


class Example(NamedTuple):
    """Elements [S, C], and the places to point at."""

    value_SC: Elements
    places: list[int]

    @property
    def words(self) -> list[str]:
        return [",".join(f"{number:.{DECIMALS}f}" for number in element) for element in self.value_SC.tolist()]


def draw_examples(kind: str, size: int, count: int, random: np.random.Generator) -> list[Example]:
    """Draw elements between 0 and 1 (with as many decimals as texts have, no two alike), and solve them."""
    problem, found = PROBLEMS[kind], list[Example]()
    while len(found) < count:
        value_SC = random.integers(0, 10**DECIMALS, (size, problem.width)) / 10**DECIMALS
        if _are_different(value_SC):
            found.append(Example(value_SC, problem.solve(value_SC)))
    return found


def _are_different(value_SC: Elements) -> bool:
    """Return whether no two elements are alike."""
    return len({*map(tuple, value_SC.tolist())}) == len(value_SC)


def parse_example(text: str, kind: str) -> Example:
    """Read `0.31 0.75 0.12`, or points `0.31,0.75 0.12,0.5 0.9,0.1`."""
    problem, rows = PROBLEMS[kind], list[list[float]]()
    for word in text.split():
        try:
            row = [float(number) for number in word.split(",")]
        except ValueError:
            row = []
        if len(row) != problem.width or not all(0 <= number <= 1 for number in row):
            wanted = "points such as 0.31,0.75" if problem.width > 1 else "numbers such as 0.31"
            raise UserError(f"elements: {word[:40]!r} given; allowed: {wanted}, from 0 to 1, with spaces between them")
        rows.append(row)
    if len(rows) > MOST_ELEMENTS:
        raise UserError(f"elements: {len(rows):,} given; at most {MOST_ELEMENTS:,}")
    if rows and len(rows) < problem.fewest:
        raise UserError(f"elements: {len(rows)} given; a {kind} needs {problem.fewest} or more")
    value_SC = np.array(rows).reshape(-1, problem.width)
    if not _are_different(value_SC):
        raise UserError("elements: two are alike; all must be different")
    return Example(value_SC, problem.solve(value_SC) if rows else [])


class PointBatch(NamedTuple):
    """Elements, with one place behind the last of each row; lengths count it. Ids to read, and places to point at."""

    source_BSC: Tensor
    source_length_B: Tensor
    read_BT: Tensor
    place_BT: Tensor
    target_length_B: Tensor

    def to(self, device: torch.device) -> PointBatch:
        return PointBatch(*(tensor.to(device, non_blocking=True) for tensor in self))

    @property
    def num_items(self) -> int:
        """The number of steps, the last of each row included."""
        return int(self.target_length_B.sum())


def pad_elements(examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
    """Return elements with a place behind the last, padded, and the numbers of places."""
    longest = max(len(one.value_SC) for one in examples) + 1
    source_BSC = np.zeros((len(examples), longest, examples[0].value_SC.shape[1]), np.float32)
    for row, one in enumerate(examples):
        source_BSC[row, : len(one.value_SC)] = one.value_SC
    return torch.from_numpy(source_BSC), torch.tensor([len(one.value_SC) + 1 for one in examples])


def collate(examples: Sequence[Example]) -> PointBatch:
    """Pad examples into a batch; the place behind the last element means the end."""
    source_BSC, source_length_B = pad_elements(examples)
    length_B = torch.tensor([len(one.places) + 1 for one in examples])
    read_BT = torch.full((len(examples), int(length_B.max())), PAD)
    place_BT = torch.zeros_like(read_BT)
    for row, one in enumerate(examples):
        places = torch.tensor(one.places, dtype=torch.long)
        read_BT[row, 0], read_BT[row, 1 : len(places) + 1] = START, FIRST + places
        place_BT[row, : len(places)], place_BT[row, len(places)] = places, len(one.value_SC)
    return PointBatch(source_BSC, source_length_B, read_BT, place_BT, length_B)


def to_ids(places: Sequence[int]) -> list[int]:
    """Return what stands for places in decoding."""
    return [FIRST + place for place in places]


def to_places(ids: Sequence[int]) -> list[int]:
    """Return the places that ids of decoding stand for."""
    return [index - FIRST for index in ids if index != END]


class ProblemDraw(NamedTuple):
    """Everything that makes a batch: how many elements each example has, and a seed."""

    size: int
    seed: tuple[int, ...]


@final
@dataclass(frozen=True)
class ProblemBatches:
    """Batches of problems of one size each, which is drawn at random; seed and epoch decide everything."""

    kind: str
    sizes: tuple[int, int]
    batch_size: int
    seed: int

    def epoch(self, number: int) -> list[ProblemDraw]:
        size_N = np.random.default_rng([self.seed, number]).integers(self.sizes[0], self.sizes[1] + 1, BATCHES)
        return [ProblemDraw(size, (self.seed, number, place)) for place, size in enumerate(size_N.tolist())]

    def load(self, drawn: ProblemDraw) -> PointBatch:
        random = np.random.default_rng([*drawn.seed, 1])
        return collate(draw_examples(self.kind, drawn.size, self.batch_size, random))
