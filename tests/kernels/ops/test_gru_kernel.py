"""A GRU's step and a maxout in Triton kernels: the equations in float64, in the interpreter; and that they compile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from saccade.layers.maxout import maxout, pair_maximum
from saccade.layers.recurrent.gru_cell import gru_cell

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def equation(known: Tensor | None, given: Tensor, hidden: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    (g_r, g_z, g_n), (u_r, u_z, u_n) = (given if known is None else given + known).chunk(3, -1), hidden.chunk(3, -1)
    r, z = torch.sigmoid(g_r + u_r), torch.sigmoid(g_z + u_z)
    h = (1 - z) * torch.tanh(g_n + r * u_n) + z * h
    return h, h


@pytest.mark.parametrize("dtype_name", DTYPES)
@pytest.mark.parametrize("width", [1, 37, 600])
@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("places", [(0,), (1,), (0, 1)])
def test_a_step(dtype_name: str, width: int, is_known: bool, places: tuple[int, ...]) -> None:
    dtype = DTYPES[dtype_name]
    steps = torch.randn(3, 4, 3 * width, dtype=dtype)
    tensors = [steps[:, 2], *torch.randn(2, 3, 3 * width, dtype=dtype), torch.randn(3, width)]  # a slice of many steps
    factor = torch.randn(2, 3, width)
    ways = (lambda x: x.double(), equation), (lambda x: x, gru_cell)
    found = []
    for made, cell in ways:
        leaves = [made(tensor).detach().requires_grad_() for tensor in tensors]
        known, given, hidden, h = leaves
        answers = cell(known if is_known else None, given, hidden, h)
        total = sum(((answers[place] * factor[place]).sum() for place in places), torch.zeros(()))
        asked = leaves if is_known else leaves[1:]
        found.append([*(answer.detach() for answer in answers), *torch.autograd.grad(total, asked)])
    for ours, true in zip(found[1], found[0], strict=True):
        bound = 4 * torch.finfo(ours.dtype).eps * (1 + true.abs().amax())
        if dtype == torch.bfloat16 and 1 in places:
            bound = bound.clamp(min=4 * torch.finfo(dtype).eps * (1 + true.abs().amax()))  # its gradient was rounded
        assert (ours.double() - true).abs().amax() <= bound


@pytest.mark.parametrize("dtype_name", DTYPES)
@pytest.mark.parametrize("shape", [(3, 2), (5, 7, 620), (0, 4)])
def test_maxout_of_pairs(dtype_name: str, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape).to(DTYPES[dtype_name])
    x[..., :1] = x[..., 1:2]  # equal neighbours
    found = []
    for largest in (maxout, pair_maximum):
        leaf = x.clone().requires_grad_()
        y = largest(leaf)
        found.append((y, *torch.autograd.grad((y * torch.arange(1, 1 + y.shape[-1])).sum(), leaf)))
    torch.testing.assert_close(found[1], found[0], atol=0, rtol=0)


@pytest.mark.usefixtures("quick_start")
def test_the_compiler_takes_them() -> None:
    script = Path(__file__).parents[1] / "compile_rnn.py"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stderr
    assert run.stdout == ""
