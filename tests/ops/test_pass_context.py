"""Seeds drawn at the beginning of a pass: others in every pass, the same after a seed, none in what is made again."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from saccade.ops import pass_context as module
from saccade.ops.pass_context import Seeds, draw_seed, draw_singly

CPU = torch.device("cpu")


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many numbers were drawn by each launch."""
    sizes: list[int] = []
    draw = Tensor.random_

    def counted(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return draw(tensor)

    monkeypatch.setattr(Tensor, "random_", counted)
    return sizes


def passed(seeds: Seeds, count: int) -> list[Tensor]:
    with seeds:
        return [draw_seed(CPU) for _ in range(count)]


def test_a_pass_draws_at_its_beginning_and_then_singly(launches: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEEDS_AT_ONCE", 4)
    seeds = Seeds(CPU)
    found = [seed for count in (3, 6, 0) for seed in passed(seeds, count)]
    assert launches == [8, 8, 1, 1, 8]
    assert len({int(seed) for seed in found}) == 9
    assert all(seed.shape == (1,) and seed.data_ptr() % 16 == 0 for seed in found)


def test_a_pass_follows_from_torchs_seed() -> None:
    seeds, found = Seeds(CPU), []
    for count in (4, 7):
        torch.manual_seed(5)
        found.append([int(seed) for seed in passed(seeds, count)])
    assert found[0] == found[1][:4]


def test_after_a_pass_and_on_another_device_seeds_are_drawn_singly(launches: list[int]) -> None:
    outer, seeds = Seeds(CPU), Seeds(CPU)
    passed(seeds, 2)
    draw_seed(CPU)
    with outer:
        with seeds:
            assert draw_seed(torch.device("meta")).device.type == "meta"
        draw_seed(CPU)  # the outer pass goes on
    assert launches == [2 * module.SEEDS_AT_ONCE, 1, *[2 * module.SEEDS_AT_ONCE] * 2, 1]


def test_what_is_made_again_is_made_of_the_same_seeds() -> None:
    seeds = Seeds(CPU)

    def grown(x: Tensor) -> Tensor:
        return (x * (draw_seed(CPU) % 1009 + 1)).exp()

    for _ in range(3):
        x, beside = torch.rand(5, dtype=torch.float64, requires_grad=True), torch.rand(5, dtype=torch.float64)
        with seeds:
            y = checkpoint(grown, x / 1009, use_reentrant=False, context_fn=draw_singly)
            (y * draw_seed(CPU)).sum().backward(retain_graph=True)
            first, x.grad = x.grad, None
            y.backward(beside)
        assert first is not None
        assert x.grad is not None
        torch.testing.assert_close(x.grad, beside * y.detach() * y.detach().log() / x.detach())
