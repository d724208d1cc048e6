"""Facts about a gradient that spare computing: that it is one, and its sums over rows.

A fused loss has its gradients ready in the forward pass: if the gradient that comes back is one, it need not multiply.
A backward kernel that writes a gradient can add up its columns on the way: a linear layer before it then has its bias's
gradient without another pass over memory.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_ONES: dict[tuple[torch.dtype, torch.device], Tensor] = {}


def differentiate(loss: Tensor) -> None:
    """Call `loss.backward()` so that `is_one` knows the gradient of the loss: it is always the same tensor."""
    key = (loss.dtype, loss.device)
    if key not in _ONES:
        _ONES[key] = torch.ones_like(loss)
    loss.backward(_ONES[key])


def is_one(grad: Tensor) -> bool:
    """Return True if a gradient is the one that `differentiate` began with; the device is not asked."""
    return grad is _ONES.get((grad.dtype, grad.device))


class _Sums(NamedTuple):
    sum_F: Tensor
    version: int
    first: int | torch.SymInt
    size: int


def note_sums(grad: Tensor, sum_F: Tensor) -> None:
    """Note the sums over rows of a contiguous gradient [..., F], which is about to be passed on, or views of it.

    They are an attribute of its memory, because autograd passes on gradients and nothing else: an attribute dies with
    the memory it speaks of, and views share it.
    """
    if not torch.compiler.is_compiling():
        found = _Sums(sum_F, grad._version, grad.storage_offset(), grad.numel())
        grad.untyped_storage().column_sums = found  # type: ignore[attr-defined]


def take_sums(grad: Tensor) -> Tensor | None:
    """Return the sums that were noted, if the gradient is what it was: where gradients meet, one is added to another.

    They are returned once, since two biases must not share one gradient. A write through `.data` is not seen.
    """
    storage = grad.untyped_storage()
    known: _Sums | None = getattr(storage, "column_sums", None)
    if known is None or not grad.is_contiguous():
        return None
    storage.column_sums = None  # type: ignore[attr-defined]
    same = (grad._version, grad.storage_offset(), grad.numel()) == known[1:] and grad.shape[-1:] == known.sum_F.shape
    return known.sum_F if same else None
