# mypy: disable-error-code="no-untyped-def"
"""A step of a head that reads a memory and of one that writes it, in one kernel each way (Graves 2014, section 3).

A program has a row of the batch. The equations are those of `Cosine`, `Addressing`, and `write`; the backward pass
computes them again. W: numbers that say what a head looks for and how it moves, cells + 6.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

WARPS = 4
LEAST: tl.constexpr = tl.constexpr(1e-16)  # of a weight whose logarithm is taken, as in `Addressing`


@triton.jit
def _sigmoid(x):
    return 1 / (1 + tl.exp(-x))


@triton.jit
def _tanh(x):
    return 1 - 2 / (1 + tl.exp(2 * x))


@triton.jit
def _softplus(x):
    return tl.maximum(x, 0.0) + tl.log(1 + tl.exp(-tl.abs(x)))


@triton.jit
def _softmax(x, inside):
    x = tl.where(inside, x, float("-inf"))
    power = tl.exp(x - tl.max(x, 0))
    return power / tl.sum(power, 0)


@triton.jit
def _inverse(square):
    """Return 1 / |v| of |v|²; of a zero vector 0."""
    return tl.where(square > 0, 1 / tl.sqrt(tl.where(square > 0, square, 1.0)), 0.0)


@triton.jit
def _around(x, move, PLACES: tl.constexpr, ROWS: tl.constexpr):
    """Return x(i + move) on the circle of places."""
    place = tl.arange(0, ROWS)
    at = (place + move + PLACES) % PLACES
    return tl.gather(x, tl.where(place < PLACES, at, place), 0)


@triton.jit
def _look(where, beta, unit, place, column, CELLS: tl.constexpr, PLACES: tl.constexpr):
    """Compute what a head looks for and finds: key k, 1 / |k|, cosines with all places, sharpness b and contents c."""
    key = _tanh(tl.load(where + column, column < CELLS, 0.0))
    inverse = _inverse(tl.sum(key * key, 0))
    cosine = tl.sum(unit * (key * inverse)[None, :], 1)
    sharpness = _softplus(tl.load(where + CELLS))
    return key, inverse, cosine, sharpness, _softmax(sharpness * beta * cosine, place < PLACES)


@triton.jit
def _shifts(where, CELLS: tl.constexpr):
    """Compute the shares of the moves by -1, 0 and 1."""
    a, b, c = tl.load(where + CELLS + 2), tl.load(where + CELLS + 3), tl.load(where + CELLS + 4)
    most = tl.maximum(a, tl.maximum(b, c))
    a, b, c = tl.exp(a - most), tl.exp(b - most), tl.exp(c - most)
    total = a + b + c
    return a / total, b / total, c / total


@triton.jit
def _move(where, content, before, place, CELLS: tl.constexpr, PLACES: tl.constexpr, ROWS: tl.constexpr):
    """Compute where a head goes: gated u, its neighbours, log of what is shifted, focus f, and the weight."""
    gate = _sigmoid(tl.load(where + CELLS + 1))
    gated = before + gate * (content - before)
    back, stay, on = _shifts(where, CELLS)
    next_, last = _around(gated, 1, PLACES, ROWS), _around(gated, -1, PLACES, ROWS)
    log = tl.log(back * next_ + stay * gated + on * last + LEAST)
    focus = 1 + _softplus(tl.load(where + CELLS + 5))
    return gate, gated, next_, last, log, focus, _softmax(focus * log, place < PLACES)


@triton.jit
def _read_memory(cell, row, PLACES: tl.constexpr, CELLS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Load a row's cells [S, K]: where they lie, whether they are there, what is in them, 1 / |M| and M / |M|."""
    place, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    inside = (place < PLACES)[:, None] & (column < CELLS)[None, :]
    at = row * PLACES * CELLS + place[:, None] * CELLS + column[None, :]
    found = tl.load(cell + at, inside, 0.0)
    inverse = _inverse(tl.sum(found * found, 1))
    return at, inside, found, inverse, found * inverse[:, None]


@triton.jit
def _forward_kernel(
    where,
    what,
    cell,
    weight,
    beta,
    read,
    cell_after,
    weight_after,
    PLACES: tl.constexpr,
    CELLS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row, place, column = tl.program_id(0).to(tl.int64), tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    at, inside, found, _, unit = _read_memory(cell, row, PLACES, CELLS, ROWS, COLUMNS)
    scale = tl.load(beta)
    for head in tl.static_range(2):
        wish, lies = where + (2 * row + head) * (CELLS + 6), (2 * row + head) * PLACES + place
        _, _, _, _, content = _look(wish, scale, unit, place, column, CELLS, PLACES)
        before = tl.load(weight + lies, place < PLACES, 0.0)
        _, _, _, _, _, _, after = _move(wish, content, before, place, CELLS, PLACES, ROWS)
        tl.store(weight_after + lies, after, place < PLACES)
        if head == 0:
            tl.store(read + row * CELLS + column, tl.sum(after[:, None] * found, 0), column < CELLS)
        else:
            erase = _sigmoid(tl.load(what + row * 2 * CELLS + column, column < CELLS, 0.0))
            add = _tanh(tl.load(what + row * 2 * CELLS + CELLS + column, column < CELLS, 0.0))
            kept = found * (1 - after[:, None] * erase[None, :])
            tl.store(cell_after + at, kept + after[:, None] * add[None, :], inside)


@triton.jit
def _backward_kernel(
    grad_read,
    grad_cell_after,
    grad_weight_after,
    where,
    what,
    cell,
    weight,
    beta,
    grad_where,
    grad_what,
    grad_cell,
    grad_weight,
    grad_beta,
    PLACES: tl.constexpr,
    CELLS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row, place, column = tl.program_id(0).to(tl.int64), tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    is_place, is_cell = place < PLACES, column < CELLS
    at, inside, found, inverse, unit = _read_memory(cell, row, PLACES, CELLS, ROWS, COLUMNS)
    scale = tl.load(beta)
    flowed = tl.load(grad_cell_after + at, inside, 0.0)
    flowed_read = tl.load(grad_read + row * CELLS + column, is_cell, 0.0)
    erase = _sigmoid(tl.load(what + row * 2 * CELLS + column, is_cell, 0.0))
    add = _tanh(tl.load(what + row * 2 * CELLS + CELLS + column, is_cell, 0.0))
    grad_unit = tl.zeros([ROWS, COLUMNS], tl.float32)
    grad_found = tl.zeros([ROWS, COLUMNS], tl.float32)
    grad_scale = 0.0
    for head in tl.static_range(2):
        wish, lies = where + (2 * row + head) * (CELLS + 6), (2 * row + head) * PLACES + place
        key, key_inverse, cosine, sharpness, content = _look(wish, scale, unit, place, column, CELLS, PLACES)
        before = tl.load(weight + lies, is_place, 0.0)
        gate, gated, next_, last, log, focus, after = _move(wish, content, before, place, CELLS, PLACES, ROWS)
        grad = tl.load(grad_weight_after + lies, is_place, 0.0)
        if head == 0:
            grad += tl.sum(found * flowed_read[None, :], 1)
            grad_found += after[:, None] * flowed_read[None, :]
        else:
            grad += tl.sum(flowed * (add[None, :] - found * erase[None, :]), 1)
            grad_found += flowed * (1 - after[:, None] * erase[None, :])
            grad_add = tl.sum(flowed * after[:, None], 0) * (1 - add * add)
            grad_erase = -tl.sum(flowed * found * after[:, None], 0) * erase * (1 - erase)
            tl.store(grad_what + row * 2 * CELLS + column, grad_erase, is_cell)
            tl.store(grad_what + row * 2 * CELLS + CELLS + column, grad_add, is_cell)
        # sharpened: softmax of f log v
        grad = after * (grad - tl.sum(after * grad, 0))
        grad_focus = tl.sum(tl.where(is_place, grad * log, 0.0), 0)
        grad = tl.where(is_place, grad * focus * tl.exp(-log), 0.0)
        # moved: v(i) = back u(i + 1) + stay u(i) + on u(i - 1)
        back, stay, on = _shifts(wish, CELLS)
        grad_back, grad_stay, grad_on = tl.sum(grad * next_, 0), tl.sum(grad * gated, 0), tl.sum(grad * last, 0)
        mean = back * grad_back + stay * grad_stay + on * grad_on
        grad = back * _around(grad, -1, PLACES, ROWS) + stay * grad + on * _around(grad, 1, PLACES, ROWS)
        grad = tl.where(is_place, grad, 0.0)
        tl.store(grad_weight + lies, grad * (1 - gate), is_place)
        grad_gate = tl.sum(grad * (content - before), 0) * gate * (1 - gate)
        # looked for: softmax of b β cos(k, M)
        grad = gate * grad
        grad = content * (grad - tl.sum(content * grad, 0))
        grad_sharpness = tl.sum(grad * scale * cosine, 0)
        grad_scale += tl.sum(grad * sharpness * cosine, 0)
        grad = grad * sharpness * scale
        grad_unit += grad[:, None] * (key * key_inverse)[None, :]
        grad_key = tl.sum(grad[:, None] * unit, 0)
        along = tl.sum(grad_key * key, 0) * key_inverse * key_inverse
        grad_key = (grad_key - key * along) * key_inverse * (1 - key * key)
        asked = grad_where + (2 * row + head) * (CELLS + 6)
        tl.store(asked + column, grad_key, is_cell)
        tl.store(asked + CELLS, grad_sharpness * _sigmoid(tl.load(wish + CELLS)))
        tl.store(asked + CELLS + 1, grad_gate)
        tl.store(asked + CELLS + 2, back * (grad_back - mean))
        tl.store(asked + CELLS + 3, stay * (grad_stay - mean))
        tl.store(asked + CELLS + 4, on * (grad_on - mean))
        tl.store(asked + CELLS + 5, grad_focus * _sigmoid(tl.load(wish + CELLS + 5)))
    along_unit = tl.sum(grad_unit * unit, 1)
    tl.store(grad_cell + at, grad_found + (grad_unit - unit * along_unit[:, None]) * inverse[:, None], inside)
    tl.store(grad_beta + row, grad_scale)


def forward(where: Tensor, what: Tensor, cell: Tensor, weight: Tensor, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute what is read, [B, K], the memory afterwards, [B, S, K], and where the heads are, [B, 2, S]."""
    read, after, weight_after = (
        cell.new_empty(len(cell), cell.shape[2]),
        torch.empty_like(cell),
        torch.empty_like(weight),
    )
    _forward_kernel[(len(cell),)](where, what, cell, weight, beta, read, after, weight_after, **constants(cell))
    return read, after, weight_after


def backward(
    grads: tuple[Tensor, Tensor, Tensor], where: Tensor, what: Tensor, cell: Tensor, weight: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Compute the gradients of the five inputs from those of the three outputs; that of β for each row, [B]."""
    made = [torch.empty_like(x) for x in (where, what, cell, weight)]
    grad_beta = cell.new_empty(len(cell))
    _backward_kernel[(len(cell),)](*grads, where, what, cell, weight, beta, *made, grad_beta, **constants(cell))
    return made[0], made[1], made[2], made[3], grad_beta


def constants(cell: Tensor) -> dict[str, int]:
    """Return what the kernels are compiled for: places and cells, and the powers of two above them."""
    places, cells = cell.shape[1:]
    sizes = {"ROWS": triton.next_power_of_2(places), "COLUMNS": triton.next_power_of_2(cells)}
    return {"PLACES": places, "CELLS": cells, **sizes, "num_warps": WARPS}
