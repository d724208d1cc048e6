"""Backward passes that begin with one: whoever has made a loss's gradients beforehand need not multiply them."""

from __future__ import annotations

import torch
from torch import Tensor


def differentiate(loss: Tensor) -> None:
    """`loss.backward()`; what the loss was computed by can see that it is the whole."""
    one = torch.ones_like(loss)
    one.is_one = True  # type: ignore[attr-defined]
    loss.backward(one)


def is_one(grad: Tensor) -> bool:
    """Whether it is known to be one; the device is not asked."""
    return getattr(grad, "is_one", False)
