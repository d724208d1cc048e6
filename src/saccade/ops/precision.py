"""Half precision is for storing; sums and exponentials are taken in float32 at least."""

from __future__ import annotations

import functools

import torch
from torch import Tensor


def widened(tensor: Tensor) -> Tensor:
    """The tensor in float32, or in float64 if it is."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def computed_in(tensor: Tensor) -> torch.dtype:
    """The dtype of a product with it: autocast's, or the tensor's own."""
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else tensor.dtype


def product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """a b of two matrices in `dtype`: if it is wider than theirs, not rounded on the way where the device can."""
    if dtype == torch.float32 != a.dtype and _writes_wide(a.device):
        return torch.mm(a, b, out_dtype=dtype)
    return (a @ b).to(dtype)


@functools.cache
def _writes_wide(device: torch.device) -> bool:
    """Whether products of bfloat16 can be written in float32: on CUDA, in some versions of torch."""
    a = torch.zeros(8, 8, dtype=torch.bfloat16, device=device)
    try:
        torch.mm(a, a, out_dtype=torch.float32)
    except (RuntimeError, TypeError):
        return False
    return True
