"""A step of a memory's heads in a Triton kernel: the plain equations in float64, in the interpreter; it compiles."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from saccade.layers.recurrent import turing_machine
from saccade.layers.recurrent.fused_heads import can_fuse
from saccade.layers.recurrent.turing_machine import MachineMemory, MemoryHeads

ROWS, WIDTH = 3, 11


def make(places: int, cells: int, **options: Any) -> tuple[MemoryHeads, Tensor, MachineMemory]:
    torch.manual_seed(places)
    sizes: dict[str, Any] = {"num_reading": 1, "num_writing": 1, "score": "cosine", "normalizer": "softmax"}
    heads = MemoryHeads(WIDTH, places=places, cells=cells, **{**sizes, **options})
    cell_BSK = torch.randn(ROWS, places, cells)
    cell_BSK[0, 2] = 0  # a vector without a direction
    return heads, torch.randn(ROWS, WIDTH), MachineMemory(cell_BSK, torch.randn(ROWS, 2, places).softmax(-1))


def run(heads: MemoryHeads, state_BD: Tensor, memory: MachineMemory) -> list[Tensor]:
    """Take two steps; return all outputs and all gradients."""
    given = [one.clone().requires_grad_() for one in (state_BD, *memory)]
    read_BD, after = heads(given[0], MachineMemory(*given[1:]))
    later_BD, last = heads(given[0] * 0.5, after)
    outputs = [read_BD, later_BD, *last]
    factors = torch.Generator().manual_seed(1)
    total = sum((one * torch.randn(one.shape, generator=factors)).sum() for one in outputs)
    assert isinstance(total, Tensor)
    return [*outputs, *torch.autograd.grad(total, [*given, *heads.parameters()])]


@pytest.mark.parametrize(("places", "cells"), [(7, 5), (16, 8), (128, 20)])
def test_a_step(places: int, cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    heads, state_BD, memory = make(places, cells)
    plain = run(heads, state_BD, memory)
    monkeypatch.setattr(turing_machine, "can_fuse", lambda *_: True)
    fused = run(heads, state_BD, memory)
    monkeypatch.undo()
    true = run(heads.double(), state_BD.double(), MachineMemory(*(one.double() for one in memory)))
    for one, other, exact in zip(fused, plain, true, strict=True):
        bound = 3 * (other - exact).abs().amax() + 1e-6 * (1 + exact.abs().amax())
        assert (one - exact).abs().amax() <= bound


def test_other_heads_are_computed_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.layers.recurrent.fused_heads.is_fused", lambda _: True)
    others: list[dict[str, Any]] = [
        {"num_reading": 2},
        {"num_writing": 2},
        {"score": "dot"},
        {"normalizer": "sparsemax"},
    ]
    for options in ({}, *others):
        heads, _, memory = make(7, 5, **options)
        count = (heads.num_reading, heads.num_writing)
        assert can_fuse(memory.cell_BSK, count, heads.score, heads.normalizer) == (not options)
        assert not can_fuse(torch.zeros(1, 1024, 20), count, heads.score, heads.normalizer)
        assert not can_fuse(memory.cell_BSK.double(), count, heads.score, heads.normalizer)
