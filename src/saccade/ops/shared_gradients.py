"""Loops that share their weights: one product computes the gradients of all steps, after the last step's backward.

A weight that T steps read gets T gradients, each as large as itself, which autograd computes and adds one by one. Here
each step records what it read and the gradient of its output; when all steps have, one product makes the sum.

F: outputs of a linear layer. R: rows of all steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, cast, final

import torch
from torch import Tensor

from saccade.ops.precision import compute_dtype

Gradients = tuple[Tensor | None, ...]


class Note(NamedTuple):
    """The input of a step, and the gradients of its outputs, one or more."""

    read: Tensor
    flowed: list[Tensor | None]


class Ledger(Protocol):
    """The notes of a loop's steps. It must not hold the token, or memory leaks in a reference cycle."""

    def settle(self) -> Gradients:
        """Compute the gradients of the shared tensors from all notes."""


@final
class GradientAnchor(torch.autograd.Function):
    """Ties shared tensors to a loop by an empty token: its backward runs after those of all steps that took it."""

    @staticmethod
    def forward(ctx: Any, ledger: Ledger, *shared: Tensor) -> Tensor:
        """Return the token, which every step takes as one more input."""
        ctx.ledger = ledger
        ctx.set_materialize_grads(False)
        return shared[0].new_empty(0)

    @staticmethod
    def backward(ctx: Any, *_: Tensor | None) -> Gradients:
        return (None, *ctx.ledger.settle())


def anchor(ledger: Ledger, *shared: Tensor) -> Tensor | None:
    """Return the token of a loop; None if no gradient is wanted."""
    if not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in shared):
        return None
    return cast(Tensor, GradientAnchor.apply(ledger, *shared))


@final
class NotedIdentity(torch.autograd.Function):
    """The identity; the gradient of its output is noted."""

    @staticmethod
    def forward(ctx: Any, note: Note, place: int, token: Tensor, answer: Tensor) -> Tensor:
        del token
        ctx.note, ctx.place = note, place
        return answer.view_as(answer)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> Gradients:
        ctx.note.flowed[ctx.place] = grad[0]
        return None, None, None, grad[0]


@final
class Product(torch.autograd.Function):
    """y = x Wᵀ + added, [B, D] to [B, F]; the weight is a constant here, and dy is noted for it."""

    @staticmethod
    def forward(ctx: Any, note: Note, token: Tensor, x_BD: Tensor, weight_FD: Tensor, added: Tensor | None) -> Tensor:
        """Compute the product; `added` is a bias [F], or rows [B, F], or nothing."""
        del token
        ctx.note = note
        ctx.save_for_backward(weight_FD)
        return _product(x_BD, weight_FD, added)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> Gradients:
        """Compute dx = dy W; rows that were added get dy."""
        (weight_FD,), (grad_BF,) = ctx.saved_tensors, grad
        ctx.note.flowed[0] = grad_BF
        _, _, reads, _, adds = ctx.needs_input_grad
        return None, None, grad_BF @ weight_FD if reads else None, None, grad_BF if adds else None


def _product(x_BD: Tensor, weight_FD: Tensor, added: Tensor | None) -> Tensor:
    return x_BD @ weight_FD.mT if added is None else torch.addmm(added, x_BD, weight_FD.mT)


@final
class _Products:
    """The notes of one weight's products."""

    def __init__(self, has_bias: bool) -> None:
        self.notes: list[Note] = []
        self.has_bias = has_bias

    def settle(self) -> Gradients:
        """Compute dW = dyᵀ x and db = sum dy over the rows of all steps."""
        pairs = [(note.read, note.flowed[0]) for note in self.notes if note.flowed[0] is not None]
        x_RD, grad_RF = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        for note in self.notes:
            note.flowed[0] = None
        weight_FD = grad_RF.mT @ x_RD
        return (weight_FD, grad_RF.sum(0)) if self.has_bias else (weight_FD,)


@final
class StepLinear:
    """nn.functional.linear for the steps of one loop: y = W x + b; without a bias, rows may be added instead."""

    def __init__(self, weight_FD: Tensor, bias_F: Tensor | None = None) -> None:
        dtype = compute_dtype(weight_FD)  # asked once, and not at every step
        shared = [tensor.to(dtype) for tensor in (weight_FD, bias_F) if tensor is not None]
        self._weight_FD, *self._bias = (tensor.detach() for tensor in shared)
        self._ledger = _Products(has_bias=bias_F is not None)
        self._token = anchor(self._ledger, *shared)

    def __call__(self, x_BD: Tensor, rows_BF: Tensor | None = None) -> Tensor:
        """Compute a step's output, [B, F]."""
        added = self._bias[0] if self._bias else rows_BF
        x_BD = x_BD.to(self._weight_FD.dtype)
        if self._token is None:
            return _product(x_BD, self._weight_FD, added)
        note = Note(x_BD.detach(), [None])
        self._ledger.notes.append(note)
        return cast(Tensor, Product.apply(note, self._token, x_BD, self._weight_FD, added))
