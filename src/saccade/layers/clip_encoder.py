"""The encoder of clips: a vector for each place of each frame."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from saccade.errors import UserError
from saccade.layers.image_encoder import ImageEncoder


@final
class ClipEncoder(nn.Module):
    """Frames [B, F, C, Y, X] of 0 to 255 to a vector for each cell of each frame, the first frame's cells first.

    A vector sees `ImageEncoder.FIELD` x `FIELD` pixels of its frame, of the one before and of the one after, and no
    more, so that attention to it means attention to these pixels in these moments. Outside of the clip all is black.
    """

    NEIGHBOURS = 1  # frames that are seen on each side

    def __init__(self, width: int, *, frames: int, rows: int, columns: int, channels: int = 3) -> None:
        super().__init__()
        self.num_frames, self.size = frames, (channels, rows, columns)
        self.cells = ImageEncoder(width, rows=rows, columns=columns, channels=(2 * self.NEIGHBOURS + 1) * channels)
        self.shape = self.cells.shape
        self.time_FD = nn.Parameter(torch.randn(frames, width) * width**-0.5)

    def forward(self, frame_BFCYX: Tensor) -> Tensor:
        num_clips, num_frames, *size = frame_BFCYX.shape
        if tuple(size) != self.size or not 0 < num_frames <= self.num_frames:
            given, wanted = (" x ".join(map(str, one)) for one in (size, self.size))
            raise UserError(
                f"clip: {num_frames} frames of {given} given; "
                f"this model reads 1 to {self.num_frames} of {wanted} (channels, rows, columns)"
            )
        black = frame_BFCYX.new_zeros(num_clips, self.NEIGHBOURS, *size)
        padded = torch.cat([black, frame_BFCYX, black], 1)
        seen = torch.cat([padded[:, at : at + num_frames] for at in range(2 * self.NEIGHBOURS + 1)], 2)
        cell_BFSD = self.cells(seen.flatten(0, 1)).unflatten(0, (num_clips, num_frames))
        return (cell_BFSD + self.time_FD[:num_frames, None]).flatten(1, 2)
