"""Rules for what may be written next, and for when an output is long enough: the same for every way of decoding.

Forbidden ids lose their probability, the others keep the model's own: scores stay true log-probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from saccade.data.text.tokenizer import END, PAD, START, UNKNOWN
from saccade.decoding.options import Cut, DecodingOptions
from saccade.errors import UserError

LONGEST_BLOCK = 16  # ids; longer refrains are rare, and end at the maximum length
SHORTEST_LOOP = 32  # ids; a row of dots or zeros, written in characters, is no loop yet
LONGEST_LOOP = 512  # ids; what goes round for longer is cut, whatever the source


@final
@dataclass(frozen=True)
class Constraints:
    """For each sentence the ids it must begin with (padding behind them), its limit, and whether loops are cut."""

    options: DecodingOptions
    prefix_BT: Tensor
    limit_B: Tensor
    guarded_B: Tensor

    def rows(self, index_B: Tensor) -> Constraints:
        return Constraints(self.options, self.prefix_BT[index_B], self.limit_B[index_B], self.guarded_B[index_B])

    def log_probabilities(self, logits_NV: Tensor, ids_NT: Tensor) -> Tensor:
        """Return log p of the next id after `ids_NT` (<s> included), -inf if it is forbidden; B divides N."""
        log_p_NV = logits_NV.float().log_softmax(-1)
        step_NV = log_p_NV.clone()
        step_NV[:, PAD : START + 1] = -torch.inf
        if not self.options.writes_unknown:
            step_NV[:, UNKNOWN] = -torch.inf
        if self.options.no_repeat_ngram:
            step_NV.scatter_(1, _find_repeating(ids_NT, self.options.no_repeat_ngram), -torch.inf)
        num_written = ids_NT.shape[1] - 1
        if num_written < self.options.min_length:
            step_NV[:, END] = -torch.inf
            stuck_N = step_NV.isneginf().all(1)  # nothing else is left to write: rather short than never
            step_NV[:, END] = step_NV[:, END].where(~stuck_N, log_p_NV[:, END])
        if num_written < self.prefix_BT.shape[1]:
            forced_N = self.prefix_BT[:, num_written].repeat_interleave(len(ids_NT) // len(self.prefix_BT))
            step_NV = _force(step_NV, log_p_NV, forced_N[:, None])
        return step_NV

    def in_loop(self, ids_NT: Tensor) -> Tensor:
        """Find the rows that repeat themselves; checked every few steps, since a loop doesn't end by itself."""
        rounds = self.options.max_rounds
        looping_N = torch.zeros(len(ids_NT), dtype=torch.bool, device=ids_NT.device)
        if rounds and (ids_NT.shape[1] - 1) % LONGEST_BLOCK == 0 and ids_NT.shape[1] > SHORTEST_LOOP:
            for block in range(1, LONGEST_BLOCK + 1):
                looping_N |= _loops(ids_NT, block, rounds)
            if ids_NT.shape[1] <= LONGEST_LOOP:
                looping_N &= self.guarded_B.repeat_interleave(len(ids_NT) // len(self.guarded_B))
        return looping_N

    def cut(self, sentence: int, ids: Sequence[int]) -> tuple[int, Cut]:
        """Count the ids to keep of an output that didn't end, and say what cut it: if it ends in a loop, that is cut.

        Below its limit it is cut without a loop of its own where loops took all other places of the beam.
        """
        kept = before_loop(ids, self.options.max_rounds)
        if kept < len(ids) and (len(ids) >= LONGEST_LOOP or bool(self.guarded_B[sentence])):
            return kept, "max_rounds"
        limit = int(self.limit_B[sentence])
        return len(ids), self.options.name_limit(limit) if len(ids) >= limit else "max_rounds"


def constrain(
    options: DecodingOptions, source: Tensor, source_length_B: Tensor, prefixes: Sequence[Sequence[int]]
) -> Constraints:
    """Make the constraints of a batch; the output of a source that itself repeats may repeat for a while."""
    prefixes = prefixes or [()] * len(source)
    longest = max(map(len, prefixes))
    if longest >= options.max_length:
        raise UserError(
            f"prefixes: one of {longest} ids given; it must be shorter than max_length, {options.max_length}"
        )
    padded = [[*prefix, *[PAD] * (longest - len(prefix))] for prefix in prefixes]
    limits = options.limits(source_length_B.tolist(), prefixes)
    device = source.device
    prefix_BT = torch.tensor(padded, dtype=torch.long, device=device)
    guarded_B = ~_holds_loop(source) if options.max_rounds else torch.ones(len(source), dtype=torch.bool, device=device)
    return Constraints(options, prefix_BT, torch.tensor(limits, device=device), guarded_B)


def before_loop(ids: Sequence[int], rounds: int) -> int:
    """Count the ids to keep when the loop at the end is cut: all before it, and its first round."""
    blocks = range(1, LONGEST_BLOCK + 1 if rounds and len(ids) >= SHORTEST_LOOP else 1)
    block = next((block for block in blocks if _ends_in_loop(ids, block, rounds)), None)
    if block is None:
        return len(ids)
    first = len(ids) - block
    while first and ids[first - 1] == ids[first - 1 + block]:
        first -= 1
    return first + block


def _ends_in_loop(ids: Sequence[int], block: int, rounds: int) -> bool:
    size = max(rounds * block, SHORTEST_LOOP)
    tail = ids[-size:]
    return len(tail) == size and tail[block:] == tail[:-block]


def _loops(ids_NT: Tensor, block: int, rounds: int) -> Tensor:
    """Find the rows that end in the same block, again and again."""
    size = max(rounds * block, SHORTEST_LOOP)
    tail = ids_NT[:, -size:]
    if tail.shape[1] < size:
        return torch.zeros(len(ids_NT), dtype=torch.bool, device=ids_NT.device)
    return (tail[:, block:] == tail[:, :-block]).all(1)


def _holds_loop(source: Tensor) -> Tensor:
    """Find sources of ids in which a block comes at least four times in a row, over half of SHORTEST_LOOP ids."""
    found_B = torch.zeros(len(source), dtype=torch.bool, device=source.device)
    for block in range(1, LONGEST_BLOCK + 1) if source.dim() == 2 and _may_loop(source) else ():
        run = max(4 * block, SHORTEST_LOOP // 2) - block
        if source.shape[1] >= run + block:
            same_BS = (source[:, block:] == source[:, :-block]) & (source[:, block:] != PAD)
            count_BS = nn.functional.pad(same_BS.cumsum(1, dtype=torch.int32), (1, 0))
            found_B |= (count_BS[:, run:] - count_BS[:, :-run] == run).any(-1)
    return found_B


def _may_loop(source_BS: Tensor) -> bool:
    """Tell whether enough ids come again in any row, which is rare: a loop has only a block of different ids."""
    sorted_BS = source_BS.sort(1).values
    again_BS = (sorted_BS[:, 1:] == sorted_BS[:, :-1]) & (sorted_BS[:, 1:] != PAD)
    return bool((again_BS.sum(1) >= SHORTEST_LOOP // 2 * 3 // 4).any())


def _find_repeating(ids_NT: Tensor, size: int) -> Tensor:
    """Return the ids that would complete an n-gram already written, filled up with <s>, which is never written."""
    if ids_NT.shape[1] < size:
        return torch.full_like(ids_NT[:, :1], START)
    grams_NTn = ids_NT.unfold(1, size, 1)
    last_N1n = ids_NT[:, ids_NT.shape[1] - size + 1 :].unsqueeze(1)
    return grams_NTn[..., -1].masked_fill(~(grams_NTn[..., :-1] == last_N1n).all(-1), START)


def _force(step_NV: Tensor, log_p_NV: Tensor, forced_N1: Tensor) -> Tensor:
    """Forbid rows with a forced id all others; it keeps its true log-probability."""
    only_NV = torch.full_like(step_NV, -torch.inf).scatter_(1, forced_N1, log_p_NV.gather(1, forced_N1))
    return torch.where(forced_N1 != PAD, only_NV, step_NV)
