"""A gradient's sum over rows, where whoever made the gradient has summed on the way: a bias's gradient for nothing."""

from __future__ import annotations

from torch import Tensor


def remember(grad: Tensor, sum_F: Tensor) -> None:
    """The sum of a gradient [..., F] that is about to be handed on."""
    grad.column_sums = (sum_F, grad._version)  # type: ignore[attr-defined]


def remembered(grad: Tensor) -> Tensor | None:
    """The sum, if it is known and the gradient is what it was: where gradients meet, one may be added to another."""
    sum_F, version = getattr(grad, "column_sums", (None, 0))
    return sum_F if version == grad._version else None
