"""Subsampling of sound: every four frames become one step of an encoder."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.layers.augmentation import Augmentation
from saccade.layers.recurrent.layers import RecurrentEncoder
from saccade.ops.dropout import dropout

FACTOR = 4  # frames in a step


def halve_length(length_B: Tensor) -> Tensor:
    """Return lengths after one halving; an odd one keeps its last step."""
    return (length_B + 1) // 2


def shorten_length(length_B: Tensor) -> Tensor:
    """Return lengths after two halvings."""
    return halve_length(halve_length(length_B))


@final
class Convolutions(nn.Module):
    """Two convolutions over time and mels, 3 x 3 with stride 2 (Dong 2018, section 3.2), then a projection."""

    def __init__(self, num_features: int, width: int, *, num_channels: int = 32, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, num_channels, 3, stride=2, padding=1)
        self.second = nn.Conv2d(num_channels, num_channels, 3, stride=2, padding=1)
        self.project = nn.Linear(num_channels * ((num_features + 3) // 4), width)
        self.norm, self.dropout = nn.LayerNorm(width), dropout

    def forward(self, frames_BSF: Tensor, length_B: Tensor) -> tuple[Tensor, Tensor]:
        """Turn frames [B, S, F] into vectors [B, S / 4, D]; return them and their lengths."""
        x_BCSF, length_B = self._halve(self.first, frames_BSF.unsqueeze(1), length_B)
        x_BCSF, length_B = self._halve(self.second, x_BCSF, length_B)
        x_BSD = self.norm(self.project(x_BCSF.transpose(1, 2).flatten(2)))
        return dropout(x_BSD, self.dropout, self.training), length_B

    def _halve(self, layer: nn.Conv2d, x_BCSF: Tensor, length_B: Tensor) -> tuple[Tensor, Tensor]:
        """Run a layer on inputs that are zero behind each length, as they are behind the end of a batch."""
        real_BS = torch.arange(x_BCSF.shape[2], device=x_BCSF.device) < length_B[:, None]
        return F.relu(layer(x_BCSF * real_BS[:, None, :, None].to(x_BCSF.dtype))), halve_length(length_B)


@final
class Pyramid(nn.Module):
    """Bidirectional LSTMs, h_i = BLSTM(h_i-1, [x_2i; x_2i+1]): pairs of steps are joined (Chan 2016, section 3.1)."""

    def __init__(self, num_features: int, width: int, *, num_layers: int = 2, dropout: float = 0.0) -> None:
        super().__init__()
        widths = [num_features, *[2 * width] * (num_layers - 1)]
        self.layers = nn.ModuleList(
            RecurrentEncoder(own, width, cell="lstm", num_layers=1, dropout=0.0) for own in widths
        )
        self.project = nn.Linear(2 * width, width)
        self.norm, self.dropout = nn.LayerNorm(width), dropout

    def forward(self, frames_BSF: Tensor, length_B: Tensor) -> tuple[Tensor, Tensor]:
        """Turn frames [B, S, F] into vectors [B, S / 4, D]; return them and their lengths."""
        x_BSD = frames_BSF
        for layer in self.layers:
            x_BSD, _ = layer(x_BSD, length_B)
            x_BSD, length_B = pair_steps(dropout(x_BSD, self.dropout, self.training)), halve_length(length_B)
        return dropout(self.norm(self.project(x_BSD)), self.dropout, self.training), length_B


def pair_steps(x_BSD: Tensor) -> Tensor:
    """Join steps two by two, [B, S, D] to [B, S / 2, 2 D]; zeros are beside an odd last one."""
    return F.pad(x_BSD, (0, 0, 0, x_BSD.shape[1] % 2)).unflatten(1, (-1, 2)).flatten(2)


@final
class FrameEncoder(nn.Module):
    """Turns frames into fewer vectors, after augmentation in training."""

    def __init__(self, subsampling: Convolutions | Pyramid, augmentation: Augmentation | None = None) -> None:
        super().__init__()
        self.subsampling, self.augmentation = subsampling, augmentation

    def forward(self, frames_BSF: Tensor, length_B: Tensor) -> tuple[Tensor, Tensor]:
        """Turn frames [B, S, F] into vectors [B, S / 4, D]; return them and their lengths."""
        if self.augmentation is not None:
            frames_BSF, length_B = self.augmentation(frames_BSF, length_B)
        x_BSD, length_B = self.subsampling(frames_BSF, length_B)
        return x_BSD, length_B


SUBSAMPLINGS: dict[str, type[Convolutions] | type[Pyramid]] = {"convolutions": Convolutions, "pyramid": Pyramid}
