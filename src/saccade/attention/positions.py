"""Where steps stand in their sequences."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Positions(NamedTuple):
    """The places of steps, [T] or [B, T]; all of them are before `end`, which is known without asking the device."""

    at: Tensor
    end: int

    @staticmethod
    def following(first: int, count: int, device: torch.device) -> Positions:
        """`count` steps from `first` on."""
        return Positions(torch.arange(first, first + count, device=device), first + count)
