"""Painted digits for glimpses: strokes like a pen's, slanted, stretched and bent by chance, as MNIST's idx files."""

from __future__ import annotations

import gzip
import itertools
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.files import replace_file

SIZES = {"train": 6000, "test": 1000}
SIDE = 20
CHUNK = 500  # pictures painted together
Points = NDArray[np.float64]


def _arc(x: float, y: float, wide: float, high: float, start: float, end: float) -> list[tuple[float, float]]:
    """Return points on an ellipse around (x, y), from one angle to another, in turns; 0 is right, 1/4 is down."""
    turns = np.linspace(start, end, 9) * 2 * np.pi
    return [(x + wide * float(np.cos(turn)), y + high * float(np.sin(turn))) for turn in turns]


STROKES: dict[int, list[list[tuple[float, float]]]] = {  # the pen's ways: x to the right, y down, from 0 to 1
    0: [_arc(0.5, 0.5, 0.3, 0.45, 0, 1)],
    1: [[(0.3, 0.25), (0.55, 0.05), (0.55, 0.95)]],
    2: [[*_arc(0.5, 0.3, 0.28, 0.25, 0.5, 1.08), (0.22, 0.95), (0.8, 0.95)]],
    3: [[*_arc(0.45, 0.28, 0.28, 0.23, 0.55, 1.25), *_arc(0.45, 0.73, 0.32, 0.22, 0.75, 1.45)]],
    4: [[(0.6, 0.05), (0.18, 0.65), (0.85, 0.65)], [(0.62, 0.35), (0.62, 0.97)]],
    5: [[(0.75, 0.05), (0.3, 0.05), (0.26, 0.45), *_arc(0.47, 0.68, 0.3, 0.27, 0.72, 1.42)]],
    6: [[(0.65, 0.05), (0.35, 0.4), *_arc(0.5, 0.7, 0.26, 0.25, 0.5, 1.5)]],
    7: [[(0.2, 0.06), (0.8, 0.06), (0.4, 0.95)]],
    8: [_arc(0.5, 0.27, 0.24, 0.22, 0.25, 1.25), _arc(0.5, 0.73, 0.29, 0.24, 0.75, 1.75)],
    9: [[*_arc(0.5, 0.3, 0.26, 0.25, 0, 1), (0.76, 0.3), (0.62, 0.95)]],
}


def make_digits(folder: Path) -> None:
    """Write the images and labels of the training and of the test set as gzipped idx files."""
    random = np.random.default_rng(1)
    for name, size in SIZES.items():
        picture_NYX, label_N = paint_digits(size, random)
        _write_idx(folder / f"{name}-images-idx3-ubyte.gz", picture_NYX)
        _write_idx(folder / f"{name}-labels-idx1-ubyte.gz", label_N)


def paint_digits(count: int, random: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Paint `count` digits on squares of SIDE pixels; return the pixels [N, Y, X] and the digits."""
    label_N = random.integers(0, 10, count).astype(np.uint8)
    picture_NYX = np.empty((count, SIDE, SIDE), np.uint8)
    segments = {digit: _segments(strokes) for digit, strokes in STROKES.items()}
    for digit, segment_S22 in segments.items():
        rows = np.flatnonzero(label_N == digit)
        for start in range(0, len(rows), CHUNK):
            part = rows[start : start + CHUNK]
            picture_NYX[part] = _paint(_vary(segment_S22, len(part), random), random)
    return picture_NYX, label_N


def _segments(strokes: list[list[tuple[float, float]]]) -> Points:
    """Return the straight pieces of the strokes: [S, 2 ends, x and y], around 0."""
    return np.array([pair for stroke in strokes for pair in itertools.pairwise(stroke)]) - 0.5


def _vary(segment_S22: Points, count: int, random: np.random.Generator) -> Points:
    """Slant, turn, stretch, bend and move a digit by chance: [N, S, 2, 2] in pixels."""
    wide_N, high_N = random.uniform(0.55, 0.9, count), random.uniform(0.7, 0.9, count)
    slant_N, turn_N = random.normal(0, 0.15, count), random.normal(0, 0.12, count)
    bend_N, wave_N = random.normal(0, 0.05, count), random.uniform(0, 2 * np.pi, count)
    x, y = (segment_S22[None, ..., axis] for axis in range(2))

    def each(value_N: Any) -> Any:
        return value_N[:, None, None]

    x = (x + each(slant_N) * y + each(bend_N) * np.sin(2 * np.pi * y + each(wave_N))) * each(wide_N)
    y = y * each(high_N)
    turned = x * np.cos(each(turn_N)) - y * np.sin(each(turn_N)), x * np.sin(each(turn_N)) + y * np.cos(each(turn_N))
    moved = [side + each(random.uniform(-0.05, 0.05, count)) for side in turned]
    return (np.stack(moved, -1) + 0.5) * SIDE


def _paint(segment_NS22: Points, random: np.random.Generator) -> NDArray[np.uint8]:
    """Paint the pixels near a segment with a round pen, and add a little noise."""
    count = len(segment_NS22)
    centre = np.arange(SIDE) + 0.5
    pixel_P2 = np.stack(np.meshgrid(centre, centre), -1).reshape(-1, 2)
    start, way = segment_NS22[:, :, None, 0], segment_NS22[:, :, None, 1] - segment_NS22[:, :, None, 0]
    from_start = pixel_P2 - start
    along = np.clip((from_start * way).sum(-1) / np.maximum((way * way).sum(-1), 1e-9), 0, 1)
    distance_NP = np.linalg.norm(from_start - along[..., None] * way, axis=-1).min(1)
    ink_NP = np.clip(random.uniform(0.7, 1.3, (count, 1)) + 0.5 - distance_NP, 0, 1) * random.uniform(
        0.7, 1.0, (count, 1)
    )
    noisy_NP = ink_NP + random.normal(0, 0.03, ink_NP.shape) * (ink_NP > 0)
    return (np.clip(noisy_NP, 0, 1) * 255).astype(np.uint8).reshape(count, SIDE, SIDE)


def _write_idx(path: Path, values: NDArray[np.uint8]) -> None:
    """Write an idx file, as MNIST's: two zeros, the type (8: bytes), the number of axes, their lengths, the bytes."""
    head = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    with replace_file(path) as draft:
        draft.write_bytes(gzip.compress(head + values.tobytes(), mtime=0))
