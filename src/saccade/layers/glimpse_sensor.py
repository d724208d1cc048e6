"""The glimpse sensor: square patches of an image around a location, at several scales."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@final
class GlimpseSensor(nn.Module):
    """rho(x, l): k square patches around l, each twice as wide as the one before and shrunk to the first one's size.

    Shrinking takes the mean (Mnih 2014, section 3.1 A). Only the patches' pixels are read, so the cost doesn't depend
    on the image's size; outside the image all is 0. A location is (x, y) from -1 (left, top) to 1 (right, bottom).
    """

    x_N1: Tensor
    y_N1: Tensor

    def __init__(self, size: int, num_scales: int) -> None:
        super().__init__()
        self.size, self.num_scales = size, num_scales
        points = [_points(size, 2**scale) for scale in range(num_scales)]
        for name, axis in (("x_N1", 0), ("y_N1", 1)):
            joined_N1 = torch.cat([point_2N[axis] for point_2N in points])[:, None]
            self.register_buffer(name, joined_N1, persistent=False)

    @torch.no_grad()
    def forward(self, image_BCYX: Tensor, location_BM2: Tensor) -> Tensor:
        """Return glimpses [B * M, k * C, size, size] of images from M locations; channels vary fastest in memory."""
        rows, columns = image_BCYX.shape[-2:]
        offset_N2 = torch.cat([self.x_N1 * (2 / columns), self.y_N1 * (2 / rows)], -1)
        seen_BCMN = F.grid_sample(image_BCYX, location_BM2[:, :, None] + offset_N2, align_corners=False)
        numbers = [_points_along(2**scale) ** 2 for scale in range(self.num_scales)]
        parts = seen_BCMN.split([self.size**2 * number for number in numbers], -1)
        patches = [
            part if number == 1 else part.unflatten(-1, (-1, number)).mean(-1)
            for part, number in zip(parts, numbers, strict=True)
        ]
        depth = self.num_scales * image_BCYX.shape[1]
        glimpse_BMNkC = torch.stack(patches, -1).permute(0, 2, 3, 4, 1)
        return glimpse_BMNkC.reshape(-1, self.size, self.size, depth).permute(0, 3, 1, 2)


def _points_along(scale: int) -> int:
    """Return the points along a side: bilinear values between two pixels have the mean of scale x scale pixels."""
    return max(1, scale // 2)


def _points(size: int, scale: int) -> Tensor:
    """Return (x, y) in pixels from the location, for size x size cells with some points in each, in order."""
    count = _points_along(scale)
    middle_S = (torch.arange(size) - (size - 1) / 2) * scale
    within_P = (torch.arange(count) - (count - 1) / 2) * (scale / count)
    along_SP = middle_S[:, None] + within_P
    y_SSPP, x_SSPP = torch.broadcast_tensors(along_SP[:, None, :, None], along_SP[None, :, None, :])
    return torch.stack([x_SSPP.flatten(), y_SSPP.flatten()])
