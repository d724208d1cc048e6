"""Addressing of a memory, worked by hand: interpolation, shift, sharpening, and their chain on a score."""

from __future__ import annotations

import pytest
import torch

from saccade import attend
from saccade.attention.addressing import Addressing, Moves, sharpen, shift
from saccade.attention.normalizers import Softmax
from saccade.attention.scores import Cosine

WEIGHT = torch.tensor([[[0.5, 0.25, 0.0, 0.25, 0.0]]])


@pytest.mark.parametrize(
    ("by", "moved"),
    [
        ([0.0, 0.0, 1.0], [0.0, 0.5, 0.25, 0.0, 0.25]),  # all one place on, around the circle
        ([1.0, 0.0, 0.0], [0.25, 0.0, 0.25, 0.0, 0.5]),
        ([0.0, 1.0, 0.0], [0.5, 0.25, 0.0, 0.25, 0.0]),
        ([0.0, 0.5, 0.5], [0.25, 0.375, 0.125, 0.125, 0.125]),
        ([0.0, 0.0, 0.0, 0.0, 1.0], [0.25, 0.0, 0.5, 0.25, 0.0]),  # two places on
        ([1.0], [0.5, 0.25, 0.0, 0.25, 0.0]),
    ],
)
def test_shift(by: list[float], moved: list[float]) -> None:
    torch.testing.assert_close(shift(WEIGHT, torch.tensor([[by]])), torch.tensor([[moved]]))


def test_sharpen() -> None:
    """0.25, 0.0625 and 0.0625 of 0.375."""
    found = sharpen(WEIGHT, torch.tensor([[[2.0]]]))
    torch.testing.assert_close(found, torch.tensor([[[2 / 3, 1 / 6, 0.0, 1 / 6, 0.0]]]))
    torch.testing.assert_close(sharpen(WEIGHT, torch.ones(1, 1, 1)), WEIGHT)


def test_sharpening_much_neither_underflows_nor_loses_its_gradient() -> None:
    flat = torch.full((1, 1, 128), 1 / 128)
    flat[..., 3] *= 1.2
    weight = flat.requires_grad_()
    found = sharpen(weight, torch.tensor([[[50.0]]]))
    assert found[0, 0, 3] > 0.9
    found[0, 0, 3].backward()
    assert weight.grad is not None
    assert weight.grad.isfinite().all()
    assert weight.grad[0, 0, 3] > 0


def test_the_chain_on_the_cosine_score_by_hand() -> None:
    """A head that was at place 0 looks for the content of place 2, believes it by half, and moves one on."""
    score = Cosine(2, 2)
    torch.nn.init.constant_(score.beta, 1.0)
    memory = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]])
    sharpness, gate, on, focus = (torch.tensor([[one]]) for one in ([100.0], [0.5], [0.0, 0.0, 1.0], [1.0]))
    before, moves = torch.tensor([[[1.0, 0.0, 0.0]]]), Moves(sharpness, gate, on, focus)
    read, weight = attend(
        torch.tensor([[[-3.0, 0.0]]]),
        memory,
        memory,
        score=score,
        normalizer=Addressing(before, moves, Softmax()),
        return_weights=True,
    )
    torch.testing.assert_close(weight, torch.tensor([[[0.5, 0.5, 0.0]]]))  # from 2 and from 0
    torch.testing.assert_close(read, torch.tensor([[[0.5, 0.5]]]))


@pytest.mark.parametrize(("gate", "place"), [(0.0, 1), (1.0, 0)])
def test_the_gate_chooses_between_where_a_head_was_and_what_it_looks_for(gate: float, place: int) -> None:
    still = torch.tensor([[[0.0, 1.0, 0.0]]])
    moves = Moves(torch.tensor([[[1.0]]]), torch.tensor([[[gate]]]), still, torch.tensor([[[1.0]]]))
    weight = Addressing(still, moves, Softmax())(torch.tensor([[[50.0, 0.0, 0.0]]]))
    assert weight[0, 0].argmax() == place
    assert weight[0, 0, place] == pytest.approx(1)
