"""Makes sound harder in training: another speed, and hidden parts (SpecAugment)."""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class MaskLimits(NamedTuple):
    """The number of masks and the length of the longest; none covers more than a fifth of the whole."""

    number: int
    longest: int


@final
class Augmentation(nn.Module):
    """Masks over time and frequency (SpecAugment, Park 2019, section 2) and a tempo between 1 - x and 1 + x.

    All randomness comes from torch's generator. Outside training it changes nothing.
    """

    def __init__(self, *, time: MaskLimits, frequency: MaskLimits, tempo: float = 0.0) -> None:
        super().__init__()
        self.time, self.frequency, self.tempo = time, frequency, tempo

    def forward(self, frames_BSF: Tensor, length_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return frames [B, S, F] and lengths, both changed by a new tempo; hidden parts are 0, the mean."""
        if not self.training:
            return frames_BSF, length_B
        if self.tempo:
            frames_BSF, length_B = stretch(frames_BSF, length_B, 1 + self.tempo * (2 * float(torch.rand(())) - 1))
        _, num_steps, num_mels = frames_BSF.shape
        seen_BS = draw_masks(length_B, num_steps, self.time)
        seen_BF = draw_masks(torch.full_like(length_B, num_mels), num_mels, self.frequency)
        return frames_BSF * (seen_BS[:, :, None] * seen_BF[:, None, :]), length_B


def draw_masks(length_B: Tensor, size: int, masks: MaskLimits) -> Tensor:
    """Draw masks [B, S], 0 under a mask, else 1: each is w long, w in 0 .. longest, and begins in 0 .. length - w."""
    device = length_B.device
    width_BN = (torch.rand(len(length_B), masks.number, device=device) * (masks.longest + 1)).long()
    width_BN = torch.minimum(width_BN, length_B[:, None] // 5)
    first_BN = torch.rand(len(length_B), masks.number, device=device) * (length_B[:, None] - width_BN + 1)
    first_BN1, width_BN1 = first_BN.long()[..., None], width_BN[..., None]
    at_S = torch.arange(size, device=device)
    return (~((at_S >= first_BN1) & (at_S < first_BN1 + width_BN1)).any(1)).float()


def stretch(frames_BSF: Tensor, length_B: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    """Slow frames down by a factor, by linear interpolation between frames; the pitch stays."""
    size = max(1, round(frames_BSF.shape[1] * factor))
    slower_BSF = F.interpolate(frames_BSF.mT, size=size, mode="linear", align_corners=False).mT
    return slower_BSF, (length_B * size / frames_BSF.shape[1]).round().long().clamp(min=1)
