"""Products whose rows begin at multiples of 16 bytes, which are fast on a CUDA device: zeros fill rows up.

F: outputs of a linear layer.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.ops.precision import compute_dtype

BYTES = 16
NUMBERS = 64  # a row that has to grow grows to whole cache lines


def align_width(width: int, device: torch.device, dtype: torch.dtype) -> int:
    """Return the width that rows have in a fast product on the device: their own, or a larger one."""
    if device.type != "cuda" or width * dtype.itemsize % BYTES == 0:
        return width
    return -(-width // NUMBERS) * NUMBERS


def pad_width(x: Tensor) -> Tensor:
    """Convert x [..., D] to the dtype of products, and pad its rows with zeros to a fast width."""
    x = x.to(compute_dtype(x))
    return _pad_to(x, align_width(x.shape[-1], x.device, x.dtype))


def join(*parts: Tensor) -> Tensor:
    """Join parts side by side in the dtype of products, and pad the rows with zeros to a fast width."""
    parts = tuple(part.to(compute_dtype(part)) for part in parts)
    width = sum(part.shape[-1] for part in parts)
    more = align_width(width, parts[0].device, parts[0].dtype) - width
    return torch.cat([*parts, parts[0].new_zeros(*parts[0].shape[:-1], more)] if more else parts, -1)


def linear(x: Tensor, weight_FD: Tensor, bias_F: Tensor | None = None) -> Tensor:
    """Compute W x + b, where x is D wide or was padded."""
    x = pad_width(x)
    return F.linear(x, _pad_to(weight_FD.to(x.dtype), x.shape[-1]), bias_F)


def _pad_to(x: Tensor, width: int) -> Tensor:
    more = width - x.shape[-1]
    return F.pad(x, (0, more)) if more else x
