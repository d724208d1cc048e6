"""Half precision is for storing; sums and exponentials are taken in float32 at least."""

from __future__ import annotations

import torch
from torch import Tensor


def widened(tensor: Tensor) -> Tensor:
    """The tensor in float32, or in float64 if it is."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def computed_in(tensor: Tensor) -> torch.dtype:
    """The dtype of a product with it: autocast's, or the tensor's own."""
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else tensor.dtype
