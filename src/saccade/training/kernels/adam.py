"""A step of Adam for many tensors in one kernel, which also writes the new weights in half precision."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, final

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from saccade.training.adam import AdamRules

NUMBERS, WARPS = 1024, 2  # a program's
MOST_PLACES = 256  # where gradients may lie: each captured pass has its own, and others come and go
TARGETS = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


class AdamSlot(NamedTuple):
    """A weight with what a step reads and writes beside its gradient; its copy in half precision may be missing."""

    weight: Tensor
    mean: Tensor  # of gradients
    square: Tensor  # the mean of their squares
    step: Tensor
    copy: Tensor | None

    @property
    def is_plain(self) -> bool:
        """True if the kernel can read it: contiguous, of float32, and on one device."""
        given = [x for x in self[:-1] if x is not None]
        alike = all(x.dtype == torch.float32 and x.device == self.weight.device for x in given)
        return len(given) == len(self) - 1 and alike and all(x.is_contiguous() for x in given)

    @property
    def is_even(self) -> bool:
        """True if all of it can be read 16 bytes at a time."""
        read = (self.weight, self.mean, self.square, *([] if self.copy is None else [self.copy]))
        return self.weight.numel() % 16 == 0 and all(x.data_ptr() % 16 == 0 for x in read)

    def row(self) -> list[int]:
        """Return its addresses, 0 for none, and its size."""
        return [0 if x is None else x.data_ptr() for x in self] + [self.weight.numel()]


@triton.jit
def _adam_kernel(  # type: ignore[no-untyped-def]
    address_ptr,
    grad_address_ptr,
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
    address_ptr += 6 * piece
    weight_ptr = tl.load(address_ptr).to(tl.pointer_type(tl.float32))
    grad_ptr = tl.load(grad_address_ptr + piece).to(tl.pointer_type(tl.float32))
    mean_ptr = tl.load(address_ptr + 1).to(tl.pointer_type(tl.float32))
    square_ptr = tl.load(address_ptr + 2).to(tl.pointer_type(tl.float32))
    step = tl.load(tl.load(address_ptr + 3).to(tl.pointer_type(tl.float32))).to(tl.float64)
    copy_address = tl.load(address_ptr + 4)
    copy_ptr = copy_address.to(tl.pointer_type(TARGET))
    size = tl.where(tl.load(bad_ptr) == 0.0, tl.load(address_ptr + 5), 0)  # a bad step changes nothing
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
    """Steps of weights that stay where they are, by one kernel."""

    def __init__(self, slots: Sequence[AdamSlot], rules: AdamRules) -> None:
        self.weights, self.rules, self.device = [slot.weight for slot in slots], rules, slots[0].weight.device
        sizes = [slot.weight.numel() for slot in slots]
        places = [(piece, first) for piece, size in enumerate(sizes) for first in range(0, size, NUMBERS)]
        self.piece, self.first = torch.tensor(places, dtype=torch.int32).T.contiguous().to(self.device)
        self.table = torch.tensor([slot.row() for slot in slots], dtype=torch.int64).to(self.device)
        self.is_even = all(slot.is_even for slot in slots)
        copies = {slot.copy.dtype for slot in slots if slot.copy is not None}
        self.target = TARGETS[copies.pop() if copies else torch.bfloat16]
        self._sent = functools.lru_cache(MOST_PLACES)(self._send)

    def __call__(self, rate: float, bad: Tensor, divisor: Tensor) -> None:
        """Take a step, which has been counted already, unless it is `bad`. Gradients are divided by `divisor`."""
        rules, addresses = self.rules, tuple(weight.grad.data_ptr() for weight in self.weights)  # type: ignore[union-attr]
        _adam_kernel[(len(self.piece),)](
            self.table,
            self._sent(addresses),
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
            EVEN=self.is_even and all(address % 16 == 0 for address in addresses),
            TARGET=self.target,
            NUMBERS=NUMBERS,
            num_warps=WARPS,
        )

    def _send(self, addresses: tuple[int, ...]) -> Tensor:
        return torch.tensor(addresses, dtype=torch.int64).to(self.device)
