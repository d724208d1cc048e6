"""A gradient's sum over rows, where whoever made the gradient has summed on the way: a bias's gradient for nothing."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class _Sum(NamedTuple):
    sum_F: Tensor
    version: int
    first: int | torch.SymInt
    size: int


def remember(grad: Tensor, sum_F: Tensor) -> None:
    """The sum of a contiguous gradient [..., F] that is about to be handed on, as it is or as views of its memory."""
    if not torch.compiler.is_compiling():
        found = _Sum(sum_F, grad._version, grad.storage_offset(), grad.numel())
        grad.untyped_storage().column_sums = found  # type: ignore[attr-defined]


def remembered(grad: Tensor) -> Tensor | None:
    """The sum, if it is known and the gradient is what it was: where gradients meet, one may be added to another.

    It is given once: two biases must not have one gradient. A write through `.data` is not seen.
    """
    storage = grad.untyped_storage()
    known: _Sum | None = getattr(storage, "column_sums", None)
    if known is None or not grad.is_contiguous():
        return None
    storage.column_sums = None  # type: ignore[attr-defined]
    same = (grad._version, grad.storage_offset(), grad.numel()) == known[1:] and grad.shape[-1:] == known.sum_F.shape
    return known.sum_F if same else None
