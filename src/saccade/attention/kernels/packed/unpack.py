"""Puts packed sentences side by side, each padded to the longest, for kernels that know batches and not packed rows."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from saccade.attention.call import Call
from saccade.attention.kernels.additive.scope import Scope
from saccade.attention.masks.mask import Packing


class UnpackedPlaces(NamedTuple):
    """Places of a row's tokens in [sentences, longest], and back; all of fixed size, so that it can be captured."""

    packing: Packing
    num_queries: int

    @property
    def slots(self) -> int:
        """The number of sentences that there may be."""
        return self.packing.query_start.shape[0] - 1

    def queries(self, x_BTD: Tensor) -> Tensor:
        """Spread queries [B, T, D] to [B sentences, longest, D]."""
        return self._spread(x_BTD, self.packing.query_start)

    def keys(self, x_BSD: Tensor) -> Tensor:
        """Spread keys [B, S, D] to [B sentences, longest, D]."""
        return self._spread(x_BSD, self.packing.key_start)

    def scope(self, low: int | None, high: int | None) -> Scope:
        """Return the band, and the keys that exist."""
        start = self.packing.key_start
        length = start[1:] - start[:-1]
        there = torch.arange(self.packing.longest, device=start.device) < length[:, None]
        return Scope(low, high, there[None, :, None], self.slots)

    def back(self, x_BSD: Tensor) -> Tensor:
        """Gather [B sentences, longest, D] back to [B, T, D]; zeros behind the last sentence."""
        start, longest = self.packing.query_start, self.packing.longest
        step = torch.arange(self.num_queries, device=start.device)
        sentence = (torch.searchsorted(start, step, right=True) - 1).clamp(0, self.slots - 1)
        place = (sentence * longest + step - start[sentence]).clamp(0, self.slots * longest - 1)
        rows = x_BSD.unflatten(0, (-1, self.slots)).flatten(1, 2).index_select(1, place)
        return rows.masked_fill(((step < start[0]) | (step >= start[-1]))[:, None], 0.0)

    def _spread(self, x: Tensor, start: Tensor) -> Tensor:
        rows = start[:-1, None] + torch.arange(self.packing.longest, device=start.device)
        chosen = x.index_select(1, rows.clamp(max=x.shape[1] - 1).flatten())
        return chosen.unflatten(1, rows.shape).flatten(0, 1)


def unpack(call: Call) -> UnpackedPlaces | None:
    """Unpack a call whose mask is packed sentences; None if it isn't, or if a band counts steps of the row."""
    packing = call.mask.packing
    if packing is None or (packing.query_start is not packing.key_start and call.mask.band != (None, None)):
        return None
    return UnpackedPlaces(packing, call.num_queries)
