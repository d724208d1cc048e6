"""Loops that share their weights: every step's gradients for them are made together, after the last step's backward.

A weight that T steps read gets T gradients, each as large as itself, which autograd makes and adds one by one. Here a
step notes what it read and what flowed back into its answer; when all steps have, one product makes the sum.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, cast, final

import torch
from torch import Tensor

from saccade.ops.precision import computed_in

Gradients = tuple[Tensor | None, ...]


class Note(NamedTuple):
    """What a step read, and what flowed back into its answers, one or more."""

    read: Tensor
    flowed: list[Tensor | None]


class Ledger(Protocol):
    """The notes of a loop's steps. It must not hold the token, or memory goes in circles."""

    def settle(self) -> Gradients:
        """The gradients of the shared tensors, from all notes."""


@final
class GradientAnchor(torch.autograd.Function):
    """Ties shared tensors to a loop through an empty token: backward comes here when all who took it are done."""

    @staticmethod
    def forward(ctx: Any, ledger: Ledger, *shared: Tensor) -> Tensor:
        """The token, which every step takes beside what it reads."""
        ctx.ledger = ledger
        ctx.set_materialize_grads(False)
        return shared[0].new_empty(0)

    @staticmethod
    def backward(ctx: Any, *_: Tensor | None) -> Gradients:
        """What all steps noted, as gradients of the shared tensors."""
        return (None, *ctx.ledger.settle())


def anchored(ledger: Ledger, *shared: Tensor) -> Tensor | None:
    """The token of a loop; None where no gradient is asked for."""
    if not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in shared):
        return None
    return cast(Tensor, GradientAnchor.apply(ledger, *shared))


@final
class Noted(torch.autograd.Function):
    """An answer as it is; what flows back into it is noted."""

    @staticmethod
    def forward(ctx: Any, note: Note, place: int, token: Tensor, answer: Tensor) -> Tensor:
        """The answer."""
        del token
        ctx.note, ctx.place = note, place
        return answer.view_as(answer)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> Gradients:
        """The gradient goes on, and nothing to the token."""
        ctx.note.flowed[ctx.place] = grad[0]
        return None, None, None, grad[0]


@final
class Product(torch.autograd.Function):
    """y = x Wᵀ + added, [B, D] to [B, G]; the weight is a constant here, and dy is noted for it."""

    @staticmethod
    def forward(ctx: Any, note: Note, token: Tensor, x_BD: Tensor, weight_GD: Tensor, added: Tensor | None) -> Tensor:
        """One product; `added` is a bias [G], or rows [B, G], or nothing."""
        del token
        ctx.note = note
        ctx.save_for_backward(weight_GD)
        return _product(x_BD, weight_GD, added)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> Gradients:
        """dx = dy W; rows that were added get dy."""
        (weight_GD,), (grad_BG,) = ctx.saved_tensors, grad
        ctx.note.flowed[0] = grad_BG
        _, _, reads, _, adds = ctx.needs_input_grad
        return None, None, grad_BG @ weight_GD if reads else None, None, grad_BG if adds else None


def _product(x_BD: Tensor, weight_GD: Tensor, added: Tensor | None) -> Tensor:
    return x_BD @ weight_GD.mT if added is None else torch.addmm(added, x_BD, weight_GD.mT)


@final
class _Products:
    """The notes of one weight's products."""

    def __init__(self, has_bias: bool) -> None:
        self.notes: list[Note] = []
        self.has_bias = has_bias

    def settle(self) -> Gradients:
        """dW = dyᵀ x and db = sum dy, over the rows of all steps."""
        pairs = [(note.read, note.flowed[0]) for note in self.notes if note.flowed[0] is not None]
        x_ND, grad_NG = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        for note in self.notes:
            note.flowed[0] = None
        weight_GD = grad_NG.mT @ x_ND
        return (weight_GD, grad_NG.sum(0)) if self.has_bias else (weight_GD,)


@final
class StepLinear:
    """nn.functional.linear for the steps of one loop: y = W x + b; without a bias, rows may be added instead."""

    def __init__(self, weight_GD: Tensor, bias_G: Tensor | None = None) -> None:
        dtype = computed_in(weight_GD)  # asked once, and not at every step
        shared = [tensor.to(dtype) for tensor in (weight_GD, bias_G) if tensor is not None]
        self._weight_GD, *self._bias = (tensor.detach() for tensor in shared)
        self._ledger = _Products(has_bias=bias_G is not None)
        self._token = anchored(self._ledger, *shared)

    def __call__(self, x_BD: Tensor, rows_BG: Tensor | None = None) -> Tensor:
        """A step's answer, [B, G]."""
        added = self._bias[0] if self._bias else rows_BG
        x_BD = x_BD.to(self._weight_GD.dtype)
        if self._token is None:
            return _product(x_BD, self._weight_GD, added)
        note = Note(x_BD.detach(), [None])
        self._ledger.notes.append(note)
        return cast(Tensor, Product.apply(note, self._token, x_BD, self._weight_GD, added))
