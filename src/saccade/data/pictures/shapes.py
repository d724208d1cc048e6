"""Paints random pictures of two shapes, each with a sentence about them: data on which attention can be measured.

The sentence is a function of the picture. The two differ in colour, and the one whose colour comes first in COLOURS is
named first; they stand apart in one direction at least twice as far as in the other, and that is their relation. Where
each named shape lies is known, so the share of a word's attention that lies on it is known too.
"""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from saccade.errors import UserError

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (225, 45, 45),
    "green": (50, 190, 60),
    "blue": (60, 90, 240),
    "yellow": (235, 215, 50),
    "purple": (170, 60, 200),
    "white": (235, 235, 235),
}
SHAPES = ("circle", "square", "triangle", "cross")
SIZES = {"small": 1 / 12, "large": 1 / 6.5}  # radius as a share of the picture's side
RELATIONS = {"left of": (0, 1), "right of": (0, -1), "above": (1, 0), "below": (-1, 0)}  # where the second one lies
SMALLEST = 24
CHUNK = 512  # pictures painted together
NOISE = 6.0  # of 255
GAP = 0.04  # of the side, between the two
Pixels = NDArray[np.float32]


class Scene(NamedTuple):
    """The contents of N pictures: two things each, in the order they are named. Places are (row, column) in pixels."""

    colour_N2: NDArray[np.int64]
    shape_N2: NDArray[np.int64]
    size_N2: NDArray[np.int64]
    relation_N: NDArray[np.int64]
    place_N22: NDArray[np.float64]
    radius_N2: NDArray[np.float64]


@final
class ShapePictures(NamedTuple):
    """Pictures [N, C, Y, X] as bytes, masks of the first and the second thing [N, 2, Y, X], and the sentences."""

    picture_NCYX: NDArray[np.uint8]
    mask_N2YX: NDArray[np.bool_]
    sentences: list[str]


def paint_shapes(count: int, *, side: int = 48, seed: int = 0) -> ShapePictures:
    """Paint `count` random pictures, the same for the same seed."""
    if side < SMALLEST:
        raise UserError(f"side: {side} given; shapes need {SMALLEST} pixels or more")
    random = np.random.default_rng(seed)
    scene = _draw_scene(count, side, random)
    picture_NCYX = np.empty((count, 3, side, side), np.uint8)
    mask_N2YX = np.empty((count, 2, side, side), bool)
    for start in range(0, count, CHUNK):
        part = slice(start, min(count, start + CHUNK))
        cover_N2YX = cover(scene.shape_N2[part], scene.place_N22[part], scene.radius_N2[part], side)
        mask_N2YX[part] = cover_N2YX >= 0.5
        picture_NCYX[part] = _paint(cover_N2YX, scene.colour_N2[part], random)
    return ShapePictures(picture_NCYX, mask_N2YX, _sentences(scene))


def noun_steps(words: list[str]) -> list[int]:
    """Return the positions of the nouns in a sentence: the first thing's, then the second's."""
    return [step for step, word in enumerate(words) if word in SHAPES]


def touched_cells(mask_NYX: NDArray[np.bool_], rows: int, columns: int) -> NDArray[np.bool_]:
    """Return which cells of a feature map [N, rows * columns] a mask touches."""
    count, height, width = mask_NYX.shape
    assert height % rows == 0, "cells are of one size"
    assert width % columns == 0, "cells are of one size"
    cells = mask_NYX.reshape(count, rows, height // rows, columns, width // columns)
    return cells.any((2, 4)).reshape(count, rows * columns)


def _draw_scene(count: int, side: int, random: np.random.Generator) -> Scene:
    colour_N2 = np.sort(random.permuted(np.tile(np.arange(len(COLOURS)), (count, 1)), axis=1)[:, :2], axis=1)
    shape_N2 = random.integers(len(SHAPES), size=(count, 2))
    size_N2 = random.integers(len(SIZES), size=(count, 2))
    relation_N = random.integers(len(RELATIONS), size=count)
    radius_N2 = np.array([*SIZES.values()])[size_N2] * side * random.uniform(0.93, 1.07, (count, 2))
    place_N22 = _draw_places(radius_N2, relation_N, side, random)
    return Scene(colour_N2, shape_N2, size_N2, relation_N, place_N22, radius_N2)


def _draw_places(
    radius_N2: NDArray[np.float64], relation_N: NDArray[np.int64], side: int, random: np.random.Generator
) -> NDArray[np.float64]:
    """Draw centres: the second lies `apart` in its relation's direction and at most half as far across."""
    both_N, edge = radius_N2.sum(1), 1.0
    apart_N = random.uniform(both_N + GAP * side, side - both_N - 2 * edge)
    across_N = random.uniform(-apart_N / 2, apart_N / 2)
    direction_N2 = np.array([*RELATIONS.values()])[relation_N]
    offset_N2 = direction_N2 * apart_N[:, None] + direction_N2[:, ::-1] * across_N[:, None]
    from_first_N22 = np.stack([np.zeros_like(offset_N2), offset_N2], 1)
    lowest_N2 = (from_first_N22 - radius_N2[..., None]).min(1)
    highest_N2 = (from_first_N22 + radius_N2[..., None]).max(1)
    first_N2 = random.uniform(edge - lowest_N2, side - edge - highest_N2)
    return first_N2[:, None] + from_first_N22


def cover(
    shape_N: NDArray[np.int64], place_N2: NDArray[np.float64], radius_N: NDArray[np.float64], side: int
) -> NDArray[np.float32]:
    """Return the share of each pixel that each of N things covers, [N, Y, X], from its distance to the thing's edge.

    N may stand for several axes.
    """
    centre = np.arange(side, dtype=np.float32) + 0.5
    cover_NYX = np.empty((*shape_N.shape, side, side), np.float32)
    for shape, name in enumerate(SHAPES):
        chosen = shape_N == shape
        place, radius = place_N2[chosen].astype(np.float32), radius_N[chosen].astype(np.float32)
        down, right = centre[:, None] - place[:, 0, None, None], np.abs(centre - place[:, 1, None, None])
        cover_NYX[chosen] = np.clip(0.5 - _outside(name, down, right, radius[:, None, None]), 0, 1)
    return cover_NYX


def _outside(shape: str, down: Pixels, right: Pixels, r: Pixels) -> Pixels:
    """Return how far pixels lie outside of a shape of radius r; all shapes are symmetric left to right."""
    if shape == "circle":
        return np.hypot(right, down) - r
    if shape == "square":
        return np.maximum(right, np.abs(down)) - 0.87 * r
    if shape == "triangle":
        return np.maximum(down - 0.85 * r, (2 * right - down - r) / np.float32(5**0.5))
    upright, lying = np.maximum(right - r / 3, np.abs(down) - r), np.maximum(np.abs(down) - r / 3, right - r)
    return np.minimum(upright, lying)


def _paint(
    cover_N2YX: NDArray[np.float32], colour_N2: NDArray[np.int64], random: np.random.Generator
) -> NDArray[np.uint8]:
    """Paint things on a dark ground, with slightly different colours each time, and noise."""
    count, side = len(cover_N2YX), cover_N2YX.shape[-1]
    ground = random.uniform(5, 45, (count, 1, 1, 1)).astype(np.float32)
    paint_N2C = np.array([*COLOURS.values()])[colour_N2] + random.uniform(-15, 15, (count, 2, 3))
    picture_NCYX = np.broadcast_to(ground, (count, 3, side, side))
    for thing in range(2):
        cover = cover_N2YX[:, thing, None]
        picture_NCYX = (1 - cover) * picture_NCYX + cover * paint_N2C[:, thing, :, None, None].astype(np.float32)
    noise = NOISE * random.standard_normal(picture_NCYX.shape, np.float32)
    return np.clip(picture_NCYX + noise, 0, 255).astype(np.uint8)


def _sentences(scene: Scene) -> list[str]:
    colours, sizes, relations = [*COLOURS], [*SIZES], [*RELATIONS]

    def thing(row: int, which: int) -> str:
        size, colour = sizes[scene.size_N2[row, which]], colours[scene.colour_N2[row, which]]
        return f"a {size} {colour} {SHAPES[scene.shape_N2[row, which]]}"

    rows = range(len(scene.relation_N))
    return [f"{thing(row, 0)} {relations[scene.relation_N[row]]} {thing(row, 1)}" for row in rows]
