"""Canvases: whole pictures in every place, clutter from others only, fixed by a seed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from saccade.data.pictures.canvases import Canvases
from saccade.errors import UserError

PIXELS = torch.randint(1, 256, (5, 3, 7, 11), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)
ROWS = torch.arange(5)


def corners(canvas_CYX: Tensor) -> tuple[int, int]:
    """The first row and column that isn't empty."""
    lit_YX = canvas_CYX.sum(0) > 0
    return int(lit_YX.any(1).nonzero()[0]), int(lit_YX.any(0).nonzero()[0])


def test_a_plain_canvas_is_the_picture() -> None:
    assert torch.equal(Canvases().draw(PIXELS, ROWS), PIXELS.float() / 255)
    assert torch.equal(Canvases().draw_fixed(PIXELS, seed=1), PIXELS)


def test_a_translated_picture_is_whole_and_alone() -> None:
    places = set()
    for row, canvas_CYX in zip(ROWS.repeat(40), Canvases(13).draw(PIXELS, ROWS.repeat(40)), strict=True):
        y, x = corners(canvas_CYX)
        places.add((y, x))
        assert torch.equal(canvas_CYX[:, y : y + 7, x : x + 11], PIXELS[row] / 255)
        assert canvas_CYX.count_nonzero() == 3 * 7 * 11
    assert places == {(y, x) for y in range(7) for x in range(3)}


def test_clutter_comes_from_the_other_pictures_and_covers_nothing() -> None:
    own, other = torch.full((1, 1, 5, 5), 50, dtype=torch.uint8), torch.full((1, 1, 5, 5), 200, dtype=torch.uint8)
    canvas_BCYX = Canvases(23, num_pieces=4, piece=2).draw_fixed(torch.cat([own, other]), seed=3)
    assert set(canvas_BCYX[0].flatten().tolist()) == {0, 50, 200}
    assert 4 <= int((canvas_BCYX[0] == 200).sum()) <= 4 * 4  # pieces may lie on one another
    assert int((canvas_BCYX[1] == 200).sum()) == 25  # the brighter picture stays whole below darker pieces
    assert 0 < int((canvas_BCYX[1] == 50).sum()) <= 4 * 4


def test_pieces_are_cut_from_anywhere() -> None:
    ramp = torch.arange(1, 36, dtype=torch.uint8).view(1, 1, 5, 7)
    pieces_BNCYX = Canvases(9, num_pieces=97, piece=3)._cut_pieces(ramp.repeat(2, 1, 1, 1), torch.tensor([0]), None)
    corner = (pieces_BNCYX[0, :, 0, 0, 0] * 255).round().unique().tolist()
    assert corner == [y * 7 + x + 1 for y in range(3) for x in range(5)]
    step = (pieces_BNCYX[0, :, 0] * 255).round()
    assert (step[:, :, 1:] - step[:, :, :-1] == 1).all()
    assert (step[:, 1:] - step[:, :-1] == 7).all()


def test_a_fixed_set_depends_on_the_seed_alone() -> None:
    canvases = Canvases(29, num_pieces=2, piece=3, jitter=0.3)
    first = canvases.draw_fixed(PIXELS, seed=1)
    torch.manual_seed(99)
    assert torch.equal(first, canvases.draw_fixed(PIXELS, seed=1))
    assert not torch.equal(first, canvases.draw_fixed(PIXELS, seed=2))
    assert torch.equal(first, Canvases(29, num_pieces=2, piece=3).draw_fixed(PIXELS, seed=1))  # never bent


def test_drawing_is_repeated_by_torchs_seed() -> None:
    canvases = Canvases(29, num_pieces=2, piece=3, jitter=0.3)
    torch.manual_seed(5)
    first = canvases.draw(PIXELS, ROWS)
    torch.manual_seed(5)
    assert torch.equal(first, canvases.draw(PIXELS, ROWS))
    assert not torch.equal(first, canvases.draw(PIXELS, ROWS))


def test_jitter_moves_a_picture_by_no_more_than_it_says() -> None:
    dot = torch.zeros(1, 1, 41, 41, dtype=torch.uint8)
    dot[..., 20, 20] = 255
    bent_BCYX = Canvases(jitter=0.2).draw(dot, torch.zeros(97, dtype=torch.long))
    y_B, x_B = (bent_BCYX.flatten(1).argmax(1) // 41, bent_BCYX.flatten(1).argmax(1) % 41)
    for place_B in (y_B, x_B):
        assert place_B.unique().numel() > 5
        assert ((place_B - 20).abs() <= 0.2 / 2 * 41 / 0.8 + 1).all()


def test_mistakes() -> None:
    with pytest.raises(UserError, match=r"data.canvas: 9 given; pictures have 7 x 11 pixels, so it must be 11 or more"):
        Canvases(9).check(PIXELS)
    with pytest.raises(UserError, match=r"data.piece: 8 given; pictures have only 7 x 11 pixels"):
        Canvases(60, num_pieces=1).check(PIXELS)
    with pytest.raises(UserError, match=r"data.clutter: 4 given; pieces come from other picture"):
        Canvases(60, num_pieces=4, piece=2).check(PIXELS[:1])
