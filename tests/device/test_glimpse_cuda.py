"""Glimpses on an accelerator: the same as on the CPU, and a training step in bfloat16."""

from __future__ import annotations

import copy

import pytest
import torch

from saccade.data.pictures.canvases import Canvases
from saccade.models.glimpse_network import CELLS, GlimpseNetwork
from saccade.tasks.glimpse.loss import HybridLoss, PictureBatch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
CUDA = torch.device("cuda")


def network(cell: str = "lstm") -> GlimpseNetwork:
    torch.manual_seed(3)
    return GlimpseNetwork(10, size=12, num_scales=4, num_glimpses=5, glimpse="convolution", cell=cell, width=64)


def test_the_same_as_on_the_cpu() -> None:
    model, image, noise = network(), torch.rand(7, 1, 100, 100), torch.randn(5, 7, 3, 2) * 0.3
    here, there = model(image, noise), copy.deepcopy(model).to(CUDA)(image.to(CUDA), noise.to(CUDA))
    for own, other in zip(here, there, strict=True):
        torch.testing.assert_close(own, other.cpu(), atol=2e-2, rtol=2e-2)  # convolutions may round to TF32


@pytest.mark.parametrize("cell", list(CELLS))
def test_a_step_in_bfloat16(cell: str) -> None:
    model = network(cell).to(CUDA)
    pixels = torch.randint(0, 256, (97, 1, 28, 28), dtype=torch.uint8, device=CUDA)
    canvases = Canvases(100, num_pieces=8, jitter=0.1)
    loss = HybridLoss(model, pixels, torch.arange(97, device=CUDA) % 10, canvases, copies=2, reward="probability")
    batch = PictureBatch(torch.arange(53), torch.tensor(0.2)).to(CUDA)
    with torch.autocast("cuda", torch.bfloat16):
        total, shown = loss(batch)
    total.backward()
    assert total.isfinite()
    assert 53 < float(shown) < 53 * 4  # about log 10 each
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


def test_canvases_are_repeated_by_the_seed() -> None:
    pixels = torch.randint(0, 256, (97, 1, 28, 28), dtype=torch.uint8, device=CUDA)
    drawn = []
    for _ in range(2):
        torch.manual_seed(5)
        drawn.append(Canvases(100, num_pieces=8, jitter=0.1).draw(pixels, torch.arange(97, device=CUDA)))
    assert torch.equal(*drawn)
