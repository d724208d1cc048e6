"""Draws pictures on larger canvases with torch: moved, among pieces of other pictures, slightly distorted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.errors import UserError

FIXED_AT_ONCE = 1000  # canvases of a fixed set are drawn in parts of this size: another would give another set


@final
@dataclass(frozen=True)
class Canvases:
    """Translated and cluttered pictures (Mnih 2014, section 4.1).

    `size` is the canvas's side (None: a picture stays where it is), `num_pieces` pieces of `piece` x `piece` pixels of
    other pictures lie on it; `jitter` distorts pictures by x -> (I + U) x + u with every entry uniform in +-jitter.
    """

    size: int | None = None
    num_pieces: int = 0
    piece: int = 8
    jitter: float = 0.0

    def check(self, pixel_NCYX: Tensor) -> None:
        """Raise a UserError if these pictures don't fit."""
        rows, columns = pixel_NCYX.shape[-2:]
        if self.size is not None and self.size < max(rows, columns):
            wanted = f"pictures have {rows} x {columns} pixels, so it must be {max(rows, columns)} or more"
            raise UserError(f"data.canvas: {self.size} given; {wanted}")
        if self.num_pieces and self.piece > min(rows, columns):
            raise UserError(f"data.piece: {self.piece} given; pictures have only {rows} x {columns} pixels")
        if self.num_pieces and len(pixel_NCYX) < 2:
            raise UserError(
                f"data.clutter: {self.num_pieces} given; pieces come from other pictures, but there is only one"
            )

    def draw(self, pixel_NCYX: Tensor, row_B: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw canvases [B, C, Y, X], 0 to 1, of some rows of uint8 pictures, with clutter from the others."""
        picture_BCYX = pixel_NCYX[row_B].float() / 255
        if self.jitter:
            picture_BCYX = _distort(picture_BCYX, self.jitter, generator)
        rows, columns = (self.size, self.size) if self.size else pixel_NCYX.shape[-2:]
        if (rows, columns) == picture_BCYX.shape[-2:] and not self.num_pieces:
            return picture_BCYX
        layers = [_place(picture_BCYX[:, None], rows, columns, generator)]
        if self.num_pieces:
            layers.append(_place(self._cut_pieces(pixel_NCYX, row_B, generator), rows, columns, generator))
        index_BN, value_BCN = (torch.cat(parts, -1) for parts in zip(*layers, strict=True))
        empty_BCN = value_BCN.new_zeros(*value_BCN.shape[:2], rows * columns)
        drawn_BCN = empty_BCN.scatter_reduce_(2, index_BN[:, None].expand_as(value_BCN), value_BCN, "amax")
        return drawn_BCN.unflatten(2, (rows, columns))

    def draw_fixed(self, pixel_NCYX: Tensor, seed: int) -> Tensor:
        """Draw one canvas for each picture as uint8: on the CPU, never distorted, the same for the same seed."""
        self.check(pixel_NCYX)
        generator, plain = torch.Generator().manual_seed(seed), Canvases(self.size, self.num_pieces, self.piece)
        rows = torch.arange(len(pixel_NCYX)).split(FIXED_AT_ONCE)
        return torch.cat([(plain.draw(pixel_NCYX, row_B, generator) * 255).round().byte() for row_B in rows])

    def _cut_pieces(self, pixel_NCYX: Tensor, row_B: Tensor, generator: torch.Generator | None) -> Tensor:
        """Cut random pieces [B, N, C, Y, X] from other pictures than a row's own."""
        count, _, rows, columns = pixel_NCYX.shape
        shape, device = (len(row_B), self.num_pieces), row_B.device
        other_BN = (row_B[:, None] + _random_integers(count - 1, shape, device, generator) + 1) % count
        inside = torch.arange(self.piece, device=device)
        y_BNY = _random_integers(rows - self.piece + 1, shape, device, generator)[..., None] + inside
        x_BNX = _random_integers(columns - self.piece + 1, shape, device, generator)[..., None] + inside
        piece_BNYXC = pixel_NCYX[other_BN[..., None, None], :, y_BNY[..., None], x_BNX[:, :, None]]
        return piece_BNYXC.movedim(-1, 2).float() / 255


def _place(patch_BNCYX: Tensor, rows: int, columns: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Place patches at random on a canvas: return their pixels' indices [B, N Y X] and the pixels [B, C, N Y X]."""
    shape, (height, width), device = patch_BNCYX.shape[:2], patch_BNCYX.shape[-2:], patch_BNCYX.device
    y_BN1 = _random_integers(rows - height + 1, shape, device, generator)[..., None]
    x_BN1 = _random_integers(columns - width + 1, shape, device, generator)[..., None]
    y_BNY, x_BNX = y_BN1 + torch.arange(height, device=device), x_BN1 + torch.arange(width, device=device)
    index_BNYX = y_BNY[..., None] * columns + x_BNX[..., None, :]
    return index_BNYX.flatten(1), patch_BNCYX.movedim(2, 1).flatten(2)


def _distort(picture_BCYX: Tensor, jitter: float, generator: torch.Generator | None) -> Tensor:
    """Send every picture through a random affine map near the identity."""
    noise_B23 = torch.rand(len(picture_BCYX), 2, 3, device=picture_BCYX.device, generator=generator) * 2 - 1
    map_B23 = torch.eye(2, 3, device=picture_BCYX.device) + jitter * noise_B23
    grid_BYX2 = F.affine_grid(map_B23, list(picture_BCYX.shape), align_corners=False)
    return F.grid_sample(picture_BCYX, grid_BYX2, align_corners=False)


def _random_integers(
    end: int, shape: tuple[int, ...] | torch.Size, device: torch.device, generator: torch.Generator | None
) -> Tensor:
    return torch.randint(end, shape, device=device, generator=generator)
