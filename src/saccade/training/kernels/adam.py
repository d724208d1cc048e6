"""A step of Adam for many tensors in one kernel, which also writes the new weights in half precision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, final

import torch
import triton
import triton.language as tl
from torch import Tensor

NUMBERS, WARPS = 2048, 4  # a program's
TARGETS = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


class Slot(NamedTuple):
    """A weight with all that a step reads and writes, contiguous and of float32; its copy may be missing."""

    weight: Tensor
    grad: Tensor
    mean: Tensor  # of gradients
    square: Tensor  # the mean of their squares
    step: Tensor
    copy: Tensor | None  # in half precision

    def row(self) -> list[int]:
        """Its addresses, 0 for none, and its size."""
        return [0 if tensor is None else tensor.data_ptr() for tensor in self] + [self.weight.numel()]

    @property
    def is_plain(self) -> bool:
        """Whether the kernel can read it."""
        wide = (self.weight, self.grad, self.mean, self.square, self.step)
        return all(x is not None and x.dtype == torch.float32 and x.is_contiguous() for x in wide)

    @property
    def is_even(self) -> bool:
        """Whether all of it can be read 16 bytes at a time."""
        return all(number % 16 == 0 for place, number in enumerate(self.row()) if place != self._fields.index("step"))


class Rules(NamedTuple):
    """What is the same for all of a group; the decay is Adam's (of the gradient), or AdamW's (of the weight)."""

    beta: float
    beta_of_squares: float
    epsilon: float
    decay: float
    is_decoupled: bool


@triton.jit
def _adam_kernel(  # type: ignore[no-untyped-def]
    address_ptr,
    piece_ptr,
    first_ptr,
    bad_ptr,
    divisor_ptr,
    rate,
    BETA: tl.constexpr,
    LOG_BETA: tl.constexpr,
    BETA_OF_SQUARES: tl.constexpr,
    LOG_BETA_OF_SQUARES: tl.constexpr,
    EPSILON: tl.constexpr,
    DECAY: tl.constexpr,
    DECOUPLED: tl.constexpr,
    EVEN: tl.constexpr,
    TARGET: tl.constexpr,
    NUMBERS: tl.constexpr,
):
    piece, first = tl.load(piece_ptr + tl.program_id(0)), tl.load(first_ptr + tl.program_id(0))
    address_ptr += 7 * piece
    weight_ptr = tl.load(address_ptr).to(tl.pointer_type(tl.float32))
    grad_ptr = tl.load(address_ptr + 1).to(tl.pointer_type(tl.float32))
    mean_ptr = tl.load(address_ptr + 2).to(tl.pointer_type(tl.float32))
    square_ptr = tl.load(address_ptr + 3).to(tl.pointer_type(tl.float32))
    step = tl.load(tl.load(address_ptr + 4).to(tl.pointer_type(tl.float32))).to(tl.float64)
    copy_address = tl.load(address_ptr + 5)
    copy_ptr = copy_address.to(tl.pointer_type(TARGET))
    size = tl.where(tl.load(bad_ptr) == 0.0, tl.load(address_ptr + 6), 0)
    copy_size = tl.where(copy_address != 0, size, 0)
    if EVEN:
        weight_ptr, grad_ptr = tl.multiple_of(weight_ptr, 16), tl.multiple_of(grad_ptr, 16)
        mean_ptr, square_ptr = tl.multiple_of(mean_ptr, 16), tl.multiple_of(square_ptr, 16)
        copy_ptr, copy_size = tl.multiple_of(copy_ptr, 16), tl.multiple_of(copy_size, 16)
        size = tl.multiple_of(size, 16)
    at = tl.multiple_of(first, NUMBERS) + tl.arange(0, NUMBERS)
    inside = at < size
    weight, grad = tl.load(weight_ptr + at, inside, 0.0), tl.load(grad_ptr + at, inside, 0.0)
    mean, square = tl.load(mean_ptr + at, inside, 0.0), tl.load(square_ptr + at, inside, 0.0)
    rest = (1.0 - tl.exp(step * LOG_BETA)).to(tl.float32)  # of a mean that began at zero
    rest_of_squares = (1.0 - tl.exp(step * LOG_BETA_OF_SQUARES)).to(tl.float32)
    grad *= 1.0 / tl.load(divisor_ptr)
    if DECOUPLED:
        weight -= rate * DECAY * weight
    else:
        grad += DECAY * weight
    mean = BETA * mean + (1.0 - BETA) * grad
    square = BETA_OF_SQUARES * square + (1.0 - BETA_OF_SQUARES) * grad * grad
    weight -= rate / rest * mean / (tl.sqrt(square) / tl.sqrt(rest_of_squares) + EPSILON)
    tl.store(weight_ptr + at, weight, inside)
    tl.store(mean_ptr + at, mean, inside)
    tl.store(square_ptr + at, square, inside)
    tl.store(copy_ptr + at, weight.to(TARGET), at < copy_size)


@final
class Update:
    """Steps of tensors that stay where they are: one kernel, however often."""

    def __init__(self, slots: Sequence[Slot], rules: Rules) -> None:
        self.rules = rules
        sizes = [slot.weight.numel() for slot in slots]
        places = [(piece, first) for piece, size in enumerate(sizes) for first in range(0, size, NUMBERS)]
        device = slots[0].weight.device
        self.piece, self.first = torch.tensor(places, dtype=torch.int32).T.contiguous().to(device)
        self.table = torch.tensor([slot.row() for slot in slots], dtype=torch.int64).to(device)
        self.is_even = all(slot.is_even for slot in slots)
        copies = {slot.copy.dtype for slot in slots if slot.copy is not None}
        self.target = TARGETS[copies.pop() if copies else torch.bfloat16]

    def __call__(self, rate: float, bad: Tensor, divisor: Tensor) -> None:
        """A step at this rate, which has been counted already, unless it is `bad`; gradients are divided."""
        rules = self.rules
        _adam_kernel[(len(self.piece),)](
            self.table,
            self.piece,
            self.first,
            bad,
            divisor,
            rate,
            BETA=rules.beta,
            LOG_BETA=math.log(max(rules.beta, 1e-300)),
            BETA_OF_SQUARES=rules.beta_of_squares,
            LOG_BETA_OF_SQUARES=math.log(max(rules.beta_of_squares, 1e-300)),
            EPSILON=rules.epsilon,
            DECAY=rules.decay,
            DECOUPLED=rules.is_decoupled,
            EVEN=self.is_even,
            TARGET=self.target,
            NUMBERS=NUMBERS,
            num_warps=WARPS,
        )
