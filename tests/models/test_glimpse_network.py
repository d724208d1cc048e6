"""The Recurrent Attention Model: each part by hand, and who learns from what."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.models.glimpse_network import CELLS, GLIMPSES, GlimpseNetwork


def network(**options: object) -> GlimpseNetwork:
    given = {"channels": 2, "size": 4, "num_scales": 3, "num_glimpses": 5, "glimpse_width": 13, "width": 11} | options
    return GlimpseNetwork(7, **given)  # type: ignore[arg-type]


def some(network: GlimpseNetwork, batch: int = 3, copies: int = 2) -> tuple[Tensor, Tensor]:
    return torch.rand(batch, 2, 17, 19), torch.randn(network.num_glimpses, batch, copies, 2) * 0.3


@pytest.mark.parametrize("glimpse", list(GLIMPSES))
@pytest.mark.parametrize("cell", list(CELLS))
def test_shapes(glimpse: str, cell: str) -> None:
    model = network(glimpse=glimpse, cell=cell, glimpse_channels=5)
    gaze = model(*some(model))
    assert gaze.location_TN2.shape == gaze.mean_TN2.shape == (5, 6, 2)
    assert gaze.logits_TNV.shape == (5, 6, 7)
    assert gaze.baseline_TN.shape == (5, 6)


def test_two_glimpses_by_hand() -> None:
    """The paper's equations with its linear glimpse network and its core of rectified units."""
    model = network(num_glimpses=2)
    image, noise = some(model, copies=1)
    hidden, mean = torch.zeros(3, 11), torch.zeros(3, 2)
    found = model(image, noise)
    for step in range(2):
        location = mean + noise[step, :, 0]
        torch.testing.assert_close(found.location_TN2[step], location)
        seen = location.clamp(-1, 1)
        what = _layers(model.what, model.sensor(image, seen[:, None]).flatten(1))
        glimpse = F.relu(what + _layers(model.where, seen))
        core = model.core
        assert isinstance(core, nn.RNNCell)
        hidden = F.relu(glimpse @ core.weight_ih.mT + core.bias_ih + hidden @ core.weight_hh.mT + core.bias_hh)
        torch.testing.assert_close(found.logits_TNV[step], hidden @ model.action.weight.mT + model.action.bias)
        mean = torch.tanh(_layers(model.location, hidden))
        if step == 0:
            expected = hidden @ model.baseline.weight.mT + model.baseline.bias
            torch.testing.assert_close(found.baseline_TN[1], expected[:, 0])
            torch.testing.assert_close(found.mean_TN2[1], mean)


def _layers(module: nn.Module, x: Tensor) -> Tensor:
    first, second = (layer for layer in module.modules() if isinstance(layer, nn.Linear))
    return F.relu(x @ first.weight.mT + first.bias) @ second.weight.mT + second.bias


def test_a_glimpse_is_seen_inside_the_image_but_counted_where_it_was_drawn() -> None:
    model = network(num_glimpses=1)
    image = torch.rand(1, 2, 17, 19)
    far, edge = (model(image, torch.full((1, 1, 1, 2), place)) for place in (9.0, 1.0))
    assert torch.equal(far.logits_TNV, edge.logits_TNV)
    assert far.location_TN2.max() == 9


@pytest.mark.parametrize("glimpse", list(GLIMPSES))
def test_batch_mates_and_copies_change_nothing(glimpse: str) -> None:
    model = network(glimpse=glimpse, cell="lstm")
    image, noise = some(model)
    together = model(image, noise)
    for row in range(3):
        for copy in range(2):
            alone = model(image[row : row + 1], noise[:, row : row + 1, copy : copy + 1])
            for whole, part in zip(together, alone, strict=True):
                torch.testing.assert_close(whole[:, row * 2 + copy], part[:, 0], atol=1e-5, rtol=1e-5)


def test_one_noise_serves_every_image() -> None:
    model = network()
    image, noise = some(model)
    shared = noise[:, :1]
    torch.testing.assert_close(model(image, shared).logits_TNV, model(image, shared.expand_as(noise)).logits_TNV)


@pytest.mark.parametrize("reaches", [False, True])
def test_who_learns_from_the_policy(reaches: bool) -> None:
    model = network(policy_reaches_core=reaches)
    model(*some(model)).mean_TN2.square().sum().backward()
    assert _has_gradient(model.location)
    assert _has_gradient(model.core) is reaches
    assert _has_gradient(model.what) is reaches
    assert not _has_gradient(model.action)


def test_who_learns_from_the_answers_and_the_baseline() -> None:
    model = network()
    model(*some(model)).logits_TNV.square().sum().backward()
    assert all(_has_gradient(part) for part in (model.what, model.where, model.core, model.action))
    assert not _has_gradient(model.location)  # a hard look has no gradient
    model.zero_grad(set_to_none=True)
    model(*some(model)).baseline_TN.square().sum().backward()
    assert [name for name, part in model.named_children() if _has_gradient(part)] == ["baseline"]


def _has_gradient(module: nn.Module) -> bool:
    return any(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in module.parameters())


def test_the_cost_of_a_forward_pass_does_not_depend_on_the_images_size() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    model = network(glimpse="convolution")
    counts = set()
    for side in (16, 160):
        with FlopCounterMode(display=False) as counter:
            model(torch.rand(1, 2, side, side), torch.zeros(5, 1, 1, 2))
        counts.add(counter.get_total_flops())
    assert len(counts) == 1
