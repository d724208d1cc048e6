"""The loss of a synthesizer: frames, when to end, and to read the text in order."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.data.sound.spoken import SpeechBatch
from saccade.models.synthesizer import Synthesizer


class SpeakWeights(NamedTuple):
    """The weights of the parts of the loss, and the width g of the band that attention is kept in."""

    guide: float = 1.0
    guide_width: float = 0.2
    end: float = 1.0


def speak_loss(network: Synthesizer, weights: SpeakWeights, batch: SpeechBatch) -> tuple[Tensor, Tensor]:
    """Return the sum over frames of all parts, to differentiate, and of the frames' own error, to show."""
    spoken = network(batch.ids_BS, batch.length_B, batch.frame_BTF)
    size = network.sizes.frames_a_step
    real_BT = torch.arange(batch.frame_BTF.shape[1], device=batch.ids_BS.device) < batch.num_frames_B[:, None]
    rough, fine = (_frame_error(own, batch.frame_BTF, real_BT) for own in (spoken.rough_BTF, spoken.frame_BTF))
    last_B = (batch.num_frames_B - 1) // size
    step_L = torch.arange(spoken.end_BL.shape[1], device=batch.ids_BS.device)
    ended_BL = (step_L >= last_B[:, None]).float()
    end = F.binary_cross_entropy_with_logits(spoken.end_BL, ended_BL, reduction="sum") * size
    total = rough + fine + weights.end * end
    if weights.guide:
        total = total + weights.guide * size * guided_loss(
            spoken.weight_BLS, last_B + 1, batch.length_B, weights.guide_width
        )
    return total, fine.detach()


def _frame_error(frame_BTF: Tensor, wanted_BTF: Tensor, real_BT: Tensor) -> Tensor:
    """Return the sum over real frames of their mean absolute error."""
    return ((frame_BTF - wanted_BTF).abs().mean(-1) * real_BT).sum()


def guided_loss(weight_BLS: Tensor, num_steps_B: Tensor, length_B: Tensor, width: float) -> Tensor:
    """Return sum_ts a_ts (1 - exp(-(s/S - t/T)² / 2 g²)) over the real steps (Tachibana 2017, equation 11)."""
    step_L, place_S = (torch.arange(size, device=weight_BLS.device) for size in weight_BLS.shape[1:])
    along_BL1 = (step_L / num_steps_B[:, None]).unsqueeze(-1)
    along_B1S = (place_S / length_B[:, None]).unsqueeze(1)
    far_BLS = 1 - torch.exp(-((along_B1S - along_BL1) ** 2) / (2 * width**2))
    real_BL1 = (step_L < num_steps_B[:, None]).unsqueeze(-1)
    return (weight_BLS * far_BLS * real_BL1).sum()
