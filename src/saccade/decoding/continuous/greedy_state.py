"""What is written in slots: tensors of fixed sizes, changed in place by operations that never wait for the device.

A row is a hypothesis of a sentence. What it writes at a step stays where it was written, with the row that it came
from; a hypothesis is read off backwards, once its sentence is done.
"""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from torch import Tensor

from saccade.attention.slots import Slots, refill
from saccade.data.text.tokenizer import END, PAD, START
from saccade.decoding.constraints import LONGEST_BLOCK, LONGEST_LOOP, SHORTEST_LOOP, Constraints
from saccade.decoding.options import DecodingOptions
from saccade.ops.kernels.availability import HAS_TRITON


class Size(NamedTuple):
    """B sentences of N hypotheses, so many steps of output (two more than the longest may have), source and prefix."""

    batch: int
    width: int
    steps: int
    source_steps: int
    prefix_steps: int = 0


class Likeliest(NamedTuple):
    """The M likeliest ids of each row, best first, and their log-probabilities; -inf: not allowed."""

    log_p_RM: Tensor
    token_RM: Tensor


class Board:
    """What every way of writing keeps. Sentences that are done stay as they are until others take their slots."""

    def __init__(self, options: DecodingOptions, size: Size, device: torch.device) -> None:
        batch, width, steps = size.batch, size.width, size.steps
        self.options, self.size, self.device = options, size, device
        self.live_B = torch.zeros(batch, dtype=torch.bool, device=device)
        self.place_B, self.limit_B = self._whole(batch), self._whole(batch)
        self.guarded_B = torch.zeros(batch, dtype=torch.bool, device=device)
        self.prefix_BP = self._whole(batch, size.prefix_steps)
        self.last_BN = self._whole(batch, width) + START
        self.token_BNC = self._whole(batch, width, steps) + START
        self.log_p_BNC = torch.zeros(batch, width, steps, device=device)
        self.loops = Loops(options, batch, width, device)
        self.slots = Slots(self.place_B, width, steps)

    @property
    def count(self) -> int:
        """How many of the likeliest ids of each row it wants to see."""
        return 1

    def ids(self) -> Tensor:
        """What each row has read, [R, C]; behind its place anything."""
        return self.token_BNC.flatten(0, 1)

    def enter(self, index_E: Tensor, constraints: Constraints) -> None:
        """Sentences that begin, in some slots."""
        count, longest = constraints.prefix_BT.shape
        prefix_EP = constraints.prefix_BT.new_full((count, self.size.prefix_steps), PAD)
        prefix_EP[:, :longest] = constraints.prefix_BT
        self.prefix_BP[index_E] = prefix_EP
        self.limit_B[index_E], self.guarded_B[index_E] = constraints.limit_B, constraints.guarded_B
        for tensor, value in ((self.place_B, 0), (self.last_BN, START), (self.token_BNC[..., 0], START)):
            tensor.index_fill_(0, index_E, value)
        self.loops.enter(index_E)
        self.live_B.index_fill_(0, index_E, True)

    def take(self, found: Likeliest) -> Tensor | None:
        """One id more in every live row; if rows went on from others, from which, [B, N]."""
        raise NotImplementedError

    def refill(self, other: Board, index_E: Tensor) -> None:
        """Some sentences of another board, in the first slots."""
        for mine, theirs in zip(self._tensors(), other._tensors(), strict=True):
            refill(mine, theirs, index_E)

    def columns(self, num_steps: int) -> dict[str, Tensor]:
        """All that is needed to read off what was written, one row a sentence, of so many steps."""
        return {
            "place": self.place_B,
            "token": self.token_BNC[..., :num_steps],
            "log_p": self.log_p_BNC[..., :num_steps],
        }

    def _write(self, token_BN: Tensor, log_p_BN: Tensor) -> None:
        """The ids that are read next. In a sentence that is done, this falls behind its end."""
        next_BN1 = (self.place_B + 1)[:, None, None].expand(-1, self.size.width, 1)
        self.last_BN.copy_(token_BN)
        self.token_BNC.scatter_(2, next_BN1, token_BN[..., None])
        self.log_p_BNC.scatter_(2, next_BN1, log_p_BN[..., None])

    def _tensors(self) -> list[Tensor]:
        constant = [self.limit_B, self.guarded_B, self.prefix_BP]
        return [*constant, self.live_B, self.place_B, self.last_BN, self.token_BNC, self.log_p_BNC, *self.loops.tensors]

    def _whole(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.long, device=self.device)


@final
class GreedyBoard(Board):
    """One hypothesis a sentence: at every step the likeliest id."""

    def take(self, found: Likeliest) -> None:
        """One id more, in every sentence that is not done."""
        if self.device.type == "cuda" and HAS_TRITON:
            from saccade.decoding.continuous.kernels.greedy_update import take

            return take(self, found)
        self._write(found.token_RM, found.log_p_RM)
        self.place_B += self.live_B
        self.loops.follow(found.token_RM)
        looping_B = self.loops.found(self.place_B, self.guarded_B)[:, 0]
        self.live_B &= ~((found.token_RM[:, 0] == END) | (self.limit_B <= self.place_B) | looping_B)
        return None


@final
class Loops:
    """For each row and block size, how many ids in a row, up to the last, are those one block before.

    A tail of `size` ids is the same block again and again when the last size - block of them are.
    """

    def __init__(self, options: DecodingOptions, batch: int, width: int, device: torch.device) -> None:
        self.is_on, rounds = options.max_rounds > 0, options.max_rounds
        sizes = [max(rounds * block, SHORTEST_LOOP) - block for block in range(1, LONGEST_BLOCK + 1)]
        self._size_K = torch.tensor(sizes, device=device)
        self.run_BNK = torch.zeros(batch, width, LONGEST_BLOCK, dtype=torch.long, device=device)
        self.recent_BNK = torch.full_like(self.run_BNK, PAD)

    @property
    def tensors(self) -> list[Tensor]:
        """What changes."""
        return [self.run_BNK, self.recent_BNK]

    def enter(self, index_E: Tensor) -> None:
        """Nothing was written yet; <s> and padding are nothing that a row writes."""
        self.run_BNK.index_fill_(0, index_E, 0)
        self.recent_BNK.index_fill_(0, index_E, PAD)

    def follow(self, token_BN: Tensor, parent_BN: Tensor | None = None) -> None:
        """The rows after one id more, each gone on from its parent."""
        if not self.is_on:
            return
        run_BNK, recent_BNK = self.run_BNK, self.recent_BNK
        if parent_BN is not None:
            parent_BNK = parent_BN[..., None].expand_as(run_BNK)
            run_BNK, recent_BNK = run_BNK.gather(1, parent_BNK), recent_BNK.gather(1, parent_BNK)
        token_BN1 = token_BN[..., None]
        self.run_BNK.copy_((run_BNK + 1) * (recent_BNK == token_BN1))
        self.recent_BNK.copy_(torch.cat([token_BN1, recent_BNK[..., :-1]], -1))

    def found(self, place_B: Tensor, guarded_B: Tensor) -> Tensor:
        """Which rows go round and round, [B, N]; looked at every few steps, as elsewhere."""
        if not self.is_on:
            return torch.zeros_like(self.run_BNK[..., 0], dtype=torch.bool)
        looks_B = (place_B % LONGEST_BLOCK == 0) & (place_B >= SHORTEST_LOOP)
        looks_B &= guarded_B | (place_B >= LONGEST_LOOP)
        return (self.run_BNK >= self._size_K).any(-1) & looks_B[:, None]
