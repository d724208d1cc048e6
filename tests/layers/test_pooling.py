"""Poolings: by hand, without padding, and with weights that say what was taken."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch

from saccade import NORMALIZERS, SCORES
from saccade.layers.pooling import AttentionPooling, LastPooling, MaxPooling, MeanPooling, Pooling, StructuredPooling

WIDTH = 5
MAKERS: dict[str, Callable[[], Pooling]] = {
    "mean": lambda: MeanPooling(WIDTH),
    "last": lambda: LastPooling(WIDTH),
    "max": lambda: MaxPooling(WIDTH),
    "structured": lambda: StructuredPooling(WIDTH, num_hops=3, hidden_width=11),
    **{f"attention {score}": functools.partial(AttentionPooling, WIDTH, score=score) for score in SCORES},
    **{f"attention {name}": functools.partial(AttentionPooling, WIDTH, normalizer=name) for name in NORMALIZERS},
}


def given() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    memory_BSD = torch.randn(3, 7, WIDTH, dtype=torch.float64)
    return memory_BSD, torch.randn(3, WIDTH, dtype=torch.float64), torch.tensor([7, 2, 1])


def test_by_hand() -> None:
    memory_BSD = torch.tensor([[[1.0, 6.0], [3.0, 2.0], [100.0, 100.0]]])
    last_BD, length_B = torch.tensor([[8.0, 9.0]]), torch.tensor([2])
    mean = MeanPooling(2)(memory_BSD, last_BD, length_B)
    assert mean.vector_BD.tolist() == [[2.0, 4.0]]
    assert mean.weight_BTS is not None
    assert mean.weight_BTS.tolist() == [[[0.5, 0.5, 0.0]]]
    largest = MaxPooling(2)(memory_BSD, last_BD, length_B)
    assert largest.vector_BD.tolist() == [[3.0, 6.0]]
    assert largest.weight_BTS is not None
    assert largest.weight_BTS.tolist() == [[[0.5, 0.5, 0.0]]]
    last = LastPooling(2)(memory_BSD, last_BD, length_B)
    assert last.vector_BD.tolist() == [[8.0, 9.0]]
    assert last.weight_BTS is None


def test_attention_by_hand() -> None:
    pooling = AttentionPooling(2, score="dot")
    with torch.no_grad():
        pooling.query_1D.copy_(torch.tensor([[torch.log(torch.tensor(3.0)), 0.0]]))
    memory_BSD = torch.tensor([[[1.0, 4.0], [0.0, 8.0], [9.0, 9.0]]])
    found = pooling(memory_BSD, memory_BSD[:, 0], torch.tensor([2]))
    assert found.weight_BTS is not None
    torch.testing.assert_close(found.weight_BTS, torch.tensor([[[0.75, 0.25, 0.0]]]))  # softmax(log 3, 0)
    torch.testing.assert_close(found.vector_BD, torch.tensor([[0.75, 5.0]]))


@pytest.mark.parametrize("name", list(MAKERS))
def test_padding_and_batch_mates_change_nothing(name: str) -> None:
    memory_BSD, last_BD, length_B = given()
    pooling = MAKERS[name]().double().eval()
    whole = pooling(memory_BSD, last_BD, length_B)
    assert whole.vector_BD.shape == (3, pooling.width)
    for row, length in enumerate(length_B.tolist()):
        alone = pooling(memory_BSD[row : row + 1, :length], last_BD[row : row + 1], length_B[row : row + 1])
        torch.testing.assert_close(alone.vector_BD[0], whole.vector_BD[row])
        if whole.weight_BTS is not None and alone.weight_BTS is not None:
            torch.testing.assert_close(alone.weight_BTS[0], whole.weight_BTS[row, :, :length])
            assert (whole.weight_BTS[row, :, length:] == 0).all()


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "last"])
def test_weights_sum_to_one(name: str) -> None:
    found = MAKERS[name]().double()(*given())
    assert found.weight_BTS is not None
    torch.testing.assert_close(found.weight_BTS.sum(-1), torch.ones(found.weight_BTS.shape[:2], dtype=torch.float64))


@pytest.mark.parametrize("name", [name for name in MAKERS if name.startswith(("attention", "structured"))])
def test_every_parameter_that_matters_learns(name: str) -> None:
    pooling = MAKERS[name]().double()
    memory_BSD, last_BD, length_B = given()
    pooling(memory_BSD, last_BD, length_B).vector_BD.square().sum().backward()
    moved = [p.grad is not None and bool((p.grad != 0).any()) for p in pooling.parameters()]
    assert any(moved) is (name != "attention mean")  # a mean asks nothing


def test_the_hops_have_a_penalty() -> None:
    memory_BSD, last_BD, length_B = given()
    found = StructuredPooling(WIDTH, num_hops=3, hidden_width=11).double()(memory_BSD, last_BD, length_B)
    assert found.penalty_B is not None
    assert found.weight_BTS is not None
    weight = found.weight_BTS[2]
    assert weight[:, 0].tolist() == [1.0, 1.0, 1.0]  # of one word, all hops see the same: six overlaps of 1
    torch.testing.assert_close(found.penalty_B[2], torch.tensor(6.0, dtype=torch.float64))


def test_a_sampled_weight_hands_its_query_a_gradient() -> None:
    torch.manual_seed(1)
    pooling = AttentionPooling(WIDTH, normalizer="hard").double()
    memory_BSD, last_BD, length_B = given()
    pooling(memory_BSD, last_BD, length_B).vector_BD.square().sum().backward()
    assert pooling.query_1D.grad is not None
    assert (pooling.query_1D.grad != 0).any()
