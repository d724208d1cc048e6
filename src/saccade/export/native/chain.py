"""A tagger's chain in the native library: torch goes from step to step, with some ten operators in each."""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from saccade.export.native.library import load_library
from saccade.layers.crf import HOPELESS, LinearChain


class Paths(NamedTuple):
    """The best tags [B, T] and their scores [B], and the logarithm of the sum over all paths [B]."""

    tag_BT: Tensor
    score_B: Tensor
    log_sum_B: Tensor


@final
class NativeChain(nn.Module):
    """A chain whose paths the native library finds; where gradients are wanted, the chain itself does."""

    def __init__(self, chain: LinearChain) -> None:
        super().__init__()
        self.chain, self.num_tags = chain, chain.num_tags

    def log_probability(self, emission_BTV: Tensor, tag_BT: Tensor, length_B: Tensor) -> Tensor:
        """Return log p of each row's tags, [B]."""
        return self.chain.score(emission_BTV, tag_BT, length_B) - self.log_partition(emission_BTV, length_B)

    def log_partition(self, emission_BTV: Tensor, length_B: Tensor) -> Tensor:
        found = self._find(emission_BTV, length_B)
        return self.chain.log_partition(emission_BTV, length_B) if found is None else found.log_sum_B

    @torch.no_grad()
    def best(self, emission_BTV: Tensor, length_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best tags [B, T], 0 behind the length, and their scores [B]."""
        found = self._find(emission_BTV, length_B)
        return self.chain.best(emission_BTV, length_B) if found is None else (found.tag_BT, found.score_B)

    def marginals(self, emission_BTV: Tensor, length_B: Tensor) -> Tensor:
        """Return p(y_t = v | x), [B, T, V]."""
        return self.chain.marginals(emission_BTV, length_B)

    def _find(self, emission_BTV: Tensor, length_B: Tensor) -> Paths | None:
        """Find the paths, or None where the library can't."""
        is_plain = emission_BTV.dtype == torch.float32 and not torch.is_grad_enabled()
        if not is_plain or not len(length_B) or int(length_B.min()) < 1:
            return None
        (count, steps, tags), emission_BTV = emission_BTV.shape, emission_BTV.contiguous()
        pair_VV, length_B = self.chain.pairs().detach().contiguous(), length_B.long().contiguous()
        found = Paths(torch.empty(count, steps, dtype=torch.long), torch.empty(count), torch.empty(count))
        given = (emission_BTV, length_B, pair_VV)
        failed = load_library().saccade_chain(
            count, steps, tags, *(one.data_ptr() for one in given), HOPELESS, *(one.data_ptr() for one in found)
        )
        if failed:
            raise MemoryError("there is no memory for the paths of these texts")
        return found
