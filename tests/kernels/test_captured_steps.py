"""Steps after passes that are replayed, interpreted: the device's graph is played by calling the pass again."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from saccade.layers.feed_forward import FeedForward
from saccade.ops import linear, relu_network
from saccade.ops.kernels import narrow
from saccade.ops.known_gradients import differentiate
from saccade.training import captured, losses
from saccade.training.adam import Adam

CPU, NUM_ROWS, WIDTH = torch.device("cpu"), 12, 16


class Network(nn.Module):
    """Vectors to losses."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.table = FeedForward(WIDTH, 24), nn.Parameter(torch.randn(11, WIDTH))

    def backward(self, batch: list[Tensor], scale: Any) -> Tensor:
        """As the loop does it."""
        x, target = batch
        with torch.autocast("cpu", torch.bfloat16):
            vectors = self.layer(x)
        loss, likelihood = losses.smoothed_cross_entropy(vectors, self.table, target, smoothing=0.1)
        if isinstance(scale, float) and scale == 1.0:
            differentiate(loss)
        else:
            (loss * scale).backward()
        return likelihood


class Played:
    """A graph: gradients are written where they were when it was recorded."""

    def __init__(self, call: Callable[[], Tensor], network: Network) -> None:
        self.call, self.network, self.shown = call, network, call()
        self.gradients = [parameter.grad for parameter in network.parameters()]

    def pool(self) -> None:
        """There is none."""

    def replay(self) -> None:
        """The pass again."""
        for parameter in self.network.parameters():
            parameter.grad = None
        self.shown.copy_(self.call())
        for own, parameter in zip(self.gradients, self.network.parameters(), strict=True):
            assert own is not None
            assert parameter.grad is not None
            own.copy_(parameter.grad)


@pytest.fixture
def networks(monkeypatch: pytest.MonkeyPatch) -> list[Network]:
    """Two of the same weights, whose passes can be captured here."""
    made = [Network()]
    made.append(copy.deepcopy(made[0]))
    for module in (linear, relu_network, losses):
        monkeypatch.setattr(module, "is_fused", lambda _: True)
    monkeypatch.setattr(captured, "warm_up", lambda call, _: (call(), call()))

    def recorded(call: Callable[[], Tensor], pool: None) -> tuple[Played, Tensor]:
        del pool
        played = Played(call, made[0])
        return played, played.shown

    monkeypatch.setattr(captured, "record", recorded)
    for name in ("get_rng_state", "set_rng_state", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    return made


@pytest.mark.parametrize("is_whole", [True, False])
def test_they_are_the_plain_ones(is_whole: bool, networks: list[Network], monkeypatch: pytest.MonkeyPatch) -> None:
    ours, plain = networks
    optimizers = [Adam(net.parameters(), 0.01, fused=True, decoupled_weight_decay=True) for net in networks]
    passes = captured.CapturedBackward(ours.backward, ours.parameters(), CPU, adds=False)
    optimizers[0].follow(passes)
    copies: list[int] = []
    call = narrow.Copy.__call__

    def counted(self: narrow.Copy) -> None:
        copies.append(number)
        call(self)

    monkeypatch.setattr(narrow.Copy, "__call__", counted)
    for number in range(6):
        batch = [torch.randn(NUM_ROWS, WIDTH), torch.randint(11, (NUM_ROWS,))]
        if number == 4:  # as a validation with averaged weights does
            with torch.no_grad():
                ours.table.mul_(2).div_(2)
        passes(batch, 1.0 if is_whole else 1 / NUM_ROWS)
        plain.backward(batch, 1 / NUM_ROWS)
        for optimizer, times in zip(optimizers, (NUM_ROWS if is_whole else 1, 1), strict=True):
            optimizer.found_inf, optimizer.grad_scale = torch.tensor(0.0), torch.tensor(2.0 * times)
            optimizer.step()
            optimizer.zero_grad()
        for one, other in zip(ours.parameters(), plain.parameters(), strict=True):
            assert (one - other).norm() <= 0.02 * other.norm() + 0.02
    assert len(passes.graphs) == 1
    assert copies == [1, 4]  # when the pass was captured, and when somebody else had written
    assert passes.half_weights.is_fresh
    for weight, narrowed in passes.half_weights.pairs:
        torch.testing.assert_close(narrowed.float(), weight.detach(), atol=0.0, rtol=2.0**-7)
