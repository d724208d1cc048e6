"""Products whose rows begin at multiples of 16 bytes, as a CUDA device's fast ones want them: zeros fill rows up."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.ops.precision import computed_in

BYTES = 16
NUMBERS = 64  # a row that has to grow grows to whole cache lines


def aligned(width: int, device: torch.device, dtype: torch.dtype) -> int:
    """The width that rows have in a product there: their own, or a larger one."""
    if device.type != "cuda" or width * dtype.itemsize % BYTES == 0:
        return width
    return -(-width // NUMBERS) * NUMBERS


def filled(x: Tensor) -> Tensor:
    """[..., D] in the dtype of products, zeros behind it where D is no width for them."""
    x = x.to(computed_in(x))
    return _to(x, aligned(x.shape[-1], x.device, x.dtype))


def joined(*parts: Tensor) -> Tensor:
    """The parts side by side, in the dtype of products, zeros behind them where their width is none for them."""
    parts = tuple(part.to(computed_in(part)) for part in parts)
    width = sum(part.shape[-1] for part in parts)
    more = aligned(width, parts[0].device, parts[0].dtype) - width
    return torch.cat([*parts, parts[0].new_zeros(*parts[0].shape[:-1], more)] if more else parts, -1)


def linear(x: Tensor, weight_GD: Tensor, bias_G: Tensor | None = None) -> Tensor:
    """W x + b, where x is D wide, or was filled up."""
    x = filled(x)
    return F.linear(x, _to(weight_GD.to(x.dtype), x.shape[-1]), bias_G)


def _to(x: Tensor, width: int) -> Tensor:
    more = width - x.shape[-1]
    return F.pad(x, (0, more)) if more else x
