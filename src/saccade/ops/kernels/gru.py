# mypy: disable-error-code="no-untyped-def"
"""A GRU's gates in one pass over memory, and their gradients in another, which computes the gates again.

G: width of the three gates together, 3 D.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

COLUMNS = 512  # units of a row that a program has
WARPS = 2


@triton.jit
def _sigmoid(x):
    return 1 / (1 + tl.exp(-x))


@triton.jit
def _tanh(x):
    return 1 - 2 / (1 + tl.exp(2 * x))


@triton.jit
def _three(start, inside, WIDTH: tl.constexpr):
    """Read a row's numbers for r, z and n."""
    r = tl.load(start, inside, 0.0).to(tl.float32)
    z = tl.load(start + WIDTH, inside, 0.0).to(tl.float32)
    return r, z, tl.load(start + 2 * WIDTH, inside, 0.0).to(tl.float32)


@triton.jit
def _gates(known, given, hidden, row, column, num_steps, WIDTH: tl.constexpr):
    """Compute r, z, n and the state's part in n."""
    inside, at = column < WIDTH, row * (3 * WIDTH) + column
    g_r, g_z, g_n = _three(given + at, inside, WIDTH)
    u_r, u_z, u_n = _three(hidden + at, inside, WIDTH)
    if known is not None:
        x_r, x_z, x_n = _three(known + row * num_steps * (3 * WIDTH) + column, inside, WIDTH)
        g_r, g_z, g_n = g_r + x_r, g_z + x_z, g_n + x_n
    r = _sigmoid(g_r + u_r)
    return r, _sigmoid(g_z + u_z), _tanh(g_n + r * u_n), u_n


@triton.jit
def _forward_kernel(known, given, hidden, state, wide, narrow, num_steps, WIDTH: tl.constexpr, COLUMNS: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < WIDTH
    _, z, n, _ = _gates(known, given, hidden, row, column, num_steps, WIDTH)
    h = tl.load(state + row * WIDTH + column, inside, 0.0)
    h = n + z * (h - n)
    tl.store(wide + row * WIDTH + column, h, inside)
    tl.store(narrow + row * WIDTH + column, h.to(narrow.dtype.element_ty), inside)


@triton.jit
def _backward_kernel(
    grad_wide,
    grad_narrow,
    known,
    given,
    hidden,
    state,
    grad_given,
    grad_hidden,
    grad_state,
    num_steps,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < WIDTH
    r, z, n, u_n = _gates(known, given, hidden, row, column, num_steps, WIDTH)
    h = tl.load(state + row * WIDTH + column, inside, 0.0)
    grad = tl.zeros([COLUMNS], tl.float32)
    if grad_wide is not None:
        grad += tl.load(grad_wide + row * WIDTH + column, inside, 0.0)
    if grad_narrow is not None:
        grad += tl.load(grad_narrow + row * WIDTH + column, inside, 0.0).to(tl.float32)
    d_n = grad * (1 - z) * (1 - n * n)
    d_z = grad * (h - n) * z * (1 - z)
    d_r = d_n * u_n * r * (1 - r)
    tl.store(grad_state + row * WIDTH + column, grad * z, inside)
    kind = grad_given.dtype.element_ty
    grad_given += row * 3 * WIDTH + column
    grad_hidden += row * 3 * WIDTH + column
    tl.store(grad_given, d_r.to(kind), inside)
    tl.store(grad_given + WIDTH, d_z.to(kind), inside)
    tl.store(grad_given + 2 * WIDTH, d_n.to(kind), inside)
    tl.store(grad_hidden, d_r.to(kind), inside)
    tl.store(grad_hidden + WIDTH, d_z.to(kind), inside)
    tl.store(grad_hidden + 2 * WIDTH, (d_n * r).to(kind), inside)


def forward(known_BG: Tensor | None, given_BG: Tensor, hidden_BG: Tensor, h_BD: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the state in float32, and in the gates' dtype."""
    wide_BD = torch.empty_like(h_BD, memory_format=torch.contiguous_format)
    narrow_BD = torch.empty_like(wide_BD, dtype=given_BG.dtype)
    known_BG, num_steps = rows(known_BG)
    tensors = [x.contiguous() for x in (given_BG, hidden_BG, h_BD)]
    _forward_kernel[grid(h_BD)](known_BG, *tensors, wide_BD, narrow_BD, num_steps, **constants(h_BD))
    return wide_BD, narrow_BD


def backward(
    grads: Sequence[Tensor | None], known_BG: Tensor | None, given_BG: Tensor, hidden_BG: Tensor, h_BD: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients for the gates of the input and of the state, in their dtype, and for the state before.

    `grads`: those of the state in float32 and in the gates' dtype.
    """
    made = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (given_BG, hidden_BG, h_BD)]
    flowed = [None if grad is None else grad.contiguous() for grad in grads]
    known_BG, num_steps = rows(known_BG)
    tensors = [x.contiguous() for x in (given_BG, hidden_BG, h_BD)]
    _backward_kernel[grid(h_BD)](*flowed, known_BG, *tensors, *made, num_steps, **constants(h_BD))
    return made[0], made[1], made[2]


def rows(x_BG: Tensor | None) -> tuple[Tensor | None, int]:
    """Return x, copied unless it is a step of some [B, T, G], and T."""
    if x_BG is None:
        return None, 0
    width = x_BG.shape[1]
    if x_BG.stride(1) != 1 or x_BG.stride(0) % width:
        x_BG = x_BG.contiguous()
    return x_BG, x_BG.stride(0) // width


def grid(h_BD: Tensor) -> tuple[int, int]:
    """Return the grid of programs: rows, and parts of a row."""
    return len(h_BD), triton.cdiv(h_BD.shape[1], COLUMNS)


def constants(h_BD: Tensor) -> dict[str, int]:
    """Return what the kernels are compiled for: the width, so that they know how rows are aligned."""
    return {"WIDTH": h_BD.shape[1], "COLUMNS": COLUMNS, "num_warps": WARPS}
