"""Image encoders: a vector for each place of a picture, or of a feature map that another network made."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from saccade.errors import UserError
from saccade.ops.dropout import dropout


@final
class GridPositions(nn.Module):
    """x + r_row + c_column, a learned vector for each row and each column (Parmar 2018, section 3)."""

    def __init__(self, width: int, rows: int, columns: int) -> None:
        super().__init__()
        self.row_YD = nn.Parameter(torch.randn(rows, width) * width**-0.5)
        self.column_XD = nn.Parameter(torch.randn(columns, width) * width**-0.5)

    def forward(self, x_BSD: Tensor) -> Tensor:
        """Add the positions to places in reading order, [B, Y * X, D]."""
        return x_BSD + (self.row_YD[:, None] + self.column_XD).flatten(0, 1)


@final
class ImageEncoder(nn.Module):
    """Three convolutions: pixels [B, C, Y, X] of 0 to 255 to a vector for each cell of `CELL` by `CELL` pixels.

    A vector sees `FIELD` by `FIELD` pixels with its cell in the middle and no more, so that attention to it means
    attention to these pixels. There is no normalisation over the picture: it would tell every place about every other.
    """

    CELL = 4
    FIELD = 18

    def __init__(self, width: int, *, rows: int, columns: int, channels: int = 3) -> None:
        super().__init__()
        if rows % self.CELL or columns % self.CELL:
            raise UserError(f"size: {rows} x {columns} given; both must be multiples of {self.CELL}")
        self.size, self.shape = (channels, rows, columns), (rows // self.CELL, columns // self.CELL)
        self.convolutions = nn.Sequential(
            nn.Conv2d(channels, width // 4, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(width // 4, width // 2, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(width // 2, width, 3, padding=1),
            nn.ReLU(),
        )
        for module in self.convolutions.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                assert module.bias is not None
                nn.init.zeros_(module.bias)  # black pixels give zeros at first
        self.places = GridPositions(width, *self.shape)

    def forward(self, picture_BCYX: Tensor) -> Tensor:
        if picture_BCYX.shape[1:] != self.size:
            given, wanted = (" x ".join(map(str, size)) for size in (picture_BCYX.shape[1:], self.size))
            raise UserError(f"picture: {given} given; this model reads {wanted} (channels, rows, columns)")
        x_BDYX = self.convolutions(picture_BCYX.to(self.places.row_YD.dtype) / 127.5)
        return self.places(x_BDYX.flatten(2).mT)


@final
class FeatureEncoder(nn.Module):
    """W (a - mean) / deviation plus the place's vector, for feature maps [B, Y * X, C] of another network.

    `mean_C` and `deviation_C` are those of the training set; they are stored with the weights.
    """

    mean_C: Tensor
    deviation_C: Tensor

    def __init__(self, width: int, *, rows: int, columns: int, channels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.size, self.shape, self.dropout = (rows * columns, channels), (rows, columns), dropout
        self.register_buffer("mean_C", torch.zeros(channels))
        self.register_buffer("deviation_C", torch.ones(channels))
        self.inner = nn.Linear(channels, width)
        self.places = GridPositions(width, rows, columns)

    def forward(self, feature_BSC: Tensor) -> Tensor:
        if feature_BSC.shape[1:] != self.size:
            given, wanted = (" x ".join(map(str, size)) for size in (feature_BSC.shape[1:], self.size))
            raise UserError(f"features: {given} given; this model reads {wanted} (places, channels)")
        x_BSC = (feature_BSC.to(self.mean_C.dtype) - self.mean_C) / self.deviation_C
        x_BSD = self.places(self.inner(dropout(x_BSC, self.dropout, self.training)))
        return dropout(x_BSD, self.dropout, self.training)
