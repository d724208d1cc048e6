"""A machine with a memory on an accelerator: the fused heads compute what the plain operations do, in a graph too."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from saccade.layers.recurrent import turing_machine
from saccade.layers.recurrent.turing_machine import TuringMachine

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def results(machine: TuringMachine, x_BTC: Tensor) -> list[Tensor]:
    machine.zero_grad()
    output_BTV = machine(x_BTC)
    output_BTV.square().sum().backward()
    return [output_BTV.detach(), *(weight.grad.clone() for weight in machine.parameters() if weight.grad is not None)]


@pytest.mark.parametrize("controller", ["feed_forward", "lstm"])
@pytest.mark.parametrize(("places", "cells"), [(128, 20), (7, 5)])
def test_fused_heads(controller: str, places: int, cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    machine = TuringMachine(10, 9, width=100, controller=controller, places=places, cells=cells).cuda()
    x_BTC = torch.randn(32, 30, 10, device="cuda")
    fused = results(machine, x_BTC)
    assert all(torch.equal(one, other) for one, other in zip(fused, results(machine, x_BTC), strict=True))  # each time
    monkeypatch.setattr(turing_machine, "can_fuse", lambda *_: False)
    for one, other in zip(fused, results(machine, x_BTC), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4 * (1 + float(other.abs().max())), rtol=1e-3)
