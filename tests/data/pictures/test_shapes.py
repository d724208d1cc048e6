"""Pictures of shapes: the sentence can be read off the pixels and the masks, whatever the seed."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.data.pictures import shapes

MADE = shapes.paint_shapes(97, side=48, seed=3)


def test_a_seed_is_a_set() -> None:
    again, other = shapes.paint_shapes(97, side=48, seed=3), shapes.paint_shapes(97, side=48, seed=4)
    assert again.sentences == MADE.sentences
    assert (again.picture_NCYX == MADE.picture_NCYX).all()
    assert other.sentences != MADE.sentences


def things(sentence: str) -> tuple[list[list[str]], str]:
    """Size, colour and shape of both, and their relation."""
    words = sentence.split()
    first, second = words[1:4], words[-3:]
    return [first, second], " ".join(words[4:-4])


@pytest.mark.parametrize("row", range(0, 97, 7))
def test_the_sentence_tells_what_is_there(row: int) -> None:
    named, relation = things(MADE.sentences[row])
    picture_YXC, centres = MADE.picture_NCYX[row].transpose(1, 2, 0).astype(float), []
    for (size, colour, shape), mask_YX in zip(named, MADE.mask_N2YX[row], strict=True):
        paint = picture_YXC[mask_YX].mean(0)
        nearest = min(shapes.COLOURS, key=lambda name: np.abs(paint - shapes.COLOURS[name]).sum())
        rows, columns = np.nonzero(mask_YX)
        across = columns.max() - columns.min() + 1
        filled = mask_YX.sum() / (across * (rows.max() - rows.min() + 1))
        assert nearest == colour
        assert (across > 10) == (size == "large")
        assert {"square": filled > 0.9, "circle": 0.6 < filled <= 0.95}.get(shape, filled < 0.75)
        centres.append((rows.mean(), columns.mean()))
    down, right = np.subtract(centres[1], centres[0])
    seen = ("left of" if right > 0 else "right of") if abs(right) > abs(down) else ("above" if down > 0 else "below")
    assert seen == relation
    order = list(shapes.COLOURS)
    assert order.index(named[0][1]) < order.index(named[1][1])


def test_things_lie_apart_and_inside() -> None:
    assert not MADE.mask_N2YX.all(1).any()
    assert MADE.mask_N2YX.any((2, 3)).all()
    edges = MADE.mask_N2YX[..., [0, -1], :].any() or MADE.mask_N2YX[..., [0, -1]].any()
    assert not edges


def test_every_word_comes() -> None:
    words = {word for sentence in shapes.paint_shapes(300, side=24).sentences for word in sentence.split()}
    spoken = [*shapes.COLOURS, *shapes.SHAPES, *shapes.SIZES, *" ".join(shapes.RELATIONS).split(), "a"]
    assert words == set(spoken)


def test_nouns_and_the_cells_they_name() -> None:
    assert shapes.noun_steps(["a", "small", "red", "circle", "left", "of", "a", "large", "blue", "square"]) == [3, 9]
    mask_1YX = np.zeros((1, 4, 6), bool)
    mask_1YX[0, 1, 2] = mask_1YX[0, 3, 5] = True
    assert shapes.touched_cells(mask_1YX, 2, 3).tolist() == [[False, True, False, False, False, True]]


def test_pictures_have_a_least_size() -> None:
    with pytest.raises(ValueError, match="side: 20 given; shapes need 24 pixels or more"):
        shapes.paint_shapes(1, side=20)
