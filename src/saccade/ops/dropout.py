"""Dropout whose masks are drawn quickly on a CPU, where torch's own draw takes an eighth of a training step."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

LEVELS = 1 << 16  # a share is rounded to a 65,536th


def dropout(x: Tensor, share: float, training: bool = True) -> Tensor:
    """Set a share of entries to zero and enlarge the others, so that the mean stays (Srivastava 2014, section 4)."""
    if not training or not share:
        return x
    if x.device.type != "cpu" or x.dtype != torch.float32 or torch.compiler.is_compiling():
        return F.dropout(x, share)
    return x * draw_factors(x.shape, share)


def variational_dropout(x_BTD: Tensor, share: float, training: bool = True) -> Tensor:
    """Drop the same columns at all steps of a row (Gal and Ghahramani 2016, section 4)."""
    if not training or not share:
        return x_BTD
    return x_BTD * dropout(torch.ones_like(x_BTD[:, :1]), share)


def draw_factors(shape: torch.Size, share: float) -> Tensor:
    """Draw factors, 0 or 1 / (1 - share), float32: numpy's bits, seeded by torch, so that they follow from its seed."""
    count, threshold = shape.numel(), round(share * LEVELS)
    generator = np.random.SFC64(int(torch.randint(1 << 62, ())))
    words = np.random.Generator(generator).integers(0, 1 << 64, -(-count // 4), np.uint64)
    kept = words.view(np.uint16)[:count] >= np.uint16(threshold)
    return torch.from_numpy(np.multiply(kept, np.float32(LEVELS / (LEVELS - threshold)), dtype=np.float32)).view(shape)
