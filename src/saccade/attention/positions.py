"""Positions of tokens: added to embeddings (sinusoidal, learned) or seen by attention (rotary, relative)."""

from __future__ import annotations

import math
from typing import NamedTuple, final

import torch
from torch import Tensor, nn


class Positions(NamedTuple):
    """The positions of steps, [T] or [B, T]; all are before `end`, which is known without waiting for the device."""

    at: Tensor
    end: int

    @staticmethod
    def following(first: int, count: int, device: torch.device) -> Positions:
        """Return `count` positions from `first` on."""
        return Positions(torch.arange(first, first + count, device=device), first + count)


@final
class Sinusoidal(nn.Module):
    """p_2i = sin(t / 10000^(2i/D)), p_2i+1 = cos(t / 10000^(2i/D)) (Vaswani 2017, section 3.5). Any length.

    In `halves` all sines stand before all cosines, as in models that other toolkits have trained.
    """

    def __init__(self, width: int, *, halves: bool = False) -> None:
        super().__init__()
        self.halves = halves
        if width % 2:
            raise ValueError(f"width: {width} given; sinusoidal positions need an even width")
        exact_half = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10_000.0) / width))
        self.register_buffer("rate_half", exact_half.to(torch.get_default_dtype()), persistent=False)
        self.register_buffer("exact_half", exact_half, persistent=False)
        self._tables: dict[tuple[int, torch.device], Tensor] = {}

    @torch.inference_mode(False)
    def table(self, end: int) -> Tensor:
        """Return the vectors of all positions before `end`, [end, D]; made once and kept, for captured steps."""
        device = self.get_buffer("rate_half").device
        if (end, device) not in self._tables:
            self._tables[end, device] = self(Positions.following(0, end, device))
        return self._tables[end, device]

    def forward(self, place: Positions) -> Tensor:
        """Return a vector for each place, [..., T, D]. In float32 an angle t * rate would be t / 2^24 off."""
        angle = place.at.unsqueeze(-1) * self.get_buffer("exact_half")
        both = angle.sin(), angle.cos()
        at = torch.cat(both, -1) if self.halves else torch.stack(both, -1).flatten(-2)
        return at.to(self.get_buffer("rate_half").dtype)


@final
class Learned(nn.Module):
    """A vector for each position, up to `max_length` (Gehring 2017, section 3.1)."""

    def __init__(self, width: int, *, max_length: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(max_length, width) * width**-0.5)

    def forward(self, place: Positions) -> Tensor:
        """Return a vector for each place, [..., T, D]."""
        if place.end > self.table.shape[0]:
            raise ValueError(f"positions: {place.end} steps given; learned positions end at {self.table.shape[0]}")
        return self.table[place.at]


@final
class Rotary(nn.Module):
    """Pairs of a query or key turned by t * rate, so that q·k depends on t - s alone (Su 2021, section 3.2.2)."""

    def __init__(self, head_width: int) -> None:
        super().__init__()
        self.angles = Sinusoidal(head_width)

    def forward(self, x_BHTK: Tensor, place: Positions) -> Tensor:
        """Turn queries or keys by the angles of their places; the shape [B, H, T, K] stays."""
        angle = place.at.unsqueeze(-1) * self.angles.get_buffer("rate_half")
        angle_1TK = angle.unsqueeze(-3)  # the same for every head
        sine, cosine = angle_1TK.sin().to(x_BHTK.dtype), angle_1TK.cos().to(x_BHTK.dtype)
        even, odd = x_BHTK[..., 0::2], x_BHTK[..., 1::2]
        return torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], -1).flatten(-2)


@final
class Relative(nn.Module):
    """A learned bias for each head and distance s - t, added to the scores (Raffel 2020, section 2.1).

    Short distances have a bucket each; longer ones share buckets that grow by a constant factor up to `max_distance`.
    """

    def __init__(self, num_heads: int, *, causal: bool, num_buckets: int = 32, max_distance: int = 128) -> None:
        super().__init__()
        self.causal, self.max_distance = causal, max_distance
        self.table = nn.Parameter(torch.zeros(num_buckets, num_heads))

    def forward(self, place: Positions, num_keys: int) -> Tensor:
        """Return the bias [..., H, T, S] of queries at these positions against keys from 0 on."""
        distance_TS = torch.arange(num_keys, device=self.table.device) - place.at.unsqueeze(-1)
        return self.table[self._bucket(distance_TS)].movedim(-1, -3)

    def _bucket(self, distance_TS: Tensor) -> Tensor:
        num_buckets = self.table.shape[0]
        if self.causal:
            return self._side(-distance_TS.clamp(max=0), num_buckets)
        half = num_buckets // 2
        return self._side(distance_TS.abs(), half) + half * (distance_TS > 0)

    def _side(self, distance_TS: Tensor, num_buckets: int) -> Tensor:
        exact = num_buckets // 2
        growth = torch.log(distance_TS.clamp(min=1) / exact) / math.log(self.max_distance / exact)
        shared = (exact + growth * (num_buckets - exact)).long().clamp(max=num_buckets - 1)
        return torch.where(distance_TS < exact, distance_TS, shared)


POSITIONS = ("sinusoidal", "sinusoidal_halves", "learned", "rotary", "relative")
