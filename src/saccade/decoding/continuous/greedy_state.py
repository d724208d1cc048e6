"""The decoding state in slots: tensors of fixed sizes, changed in place by operations that never wait for the device.

A row is a hypothesis of a sentence. An id stays where it was written, with the row that it continues; a hypothesis is
traced back from its last id, once its sentence is finished.
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


class StateSize(NamedTuple):
    """Room for B sentences of N hypotheses; steps of the output (two more than the most), the source and the prefix."""

    batch: int
    width: int
    steps: int
    source_steps: int
    prefix_steps: int = 0


class TopTokens(NamedTuple):
    """The M likeliest ids of each row, best first, and their log-probabilities; -inf: not allowed."""

    log_p_RM: Tensor
    token_RM: Tensor


class DecodingState:
    """The state that all searches share. Finished sentences stay as they are until others take their slots."""

    def __init__(self, options: DecodingOptions, size: StateSize, device: torch.device) -> None:
        batch, width, steps = size.batch, size.width, size.steps
        self.options, self.size, self.device = options, size, device
        self.live_B = torch.zeros(batch, dtype=torch.bool, device=device)
        self.place_B, self.limit_B = self._zeros(batch), self._zeros(batch)
        self.guarded_B = torch.zeros(batch, dtype=torch.bool, device=device)
        self.prefix_BP = self._zeros(batch, size.prefix_steps)
        self.last_BN = self._zeros(batch, width) + START
        self.token_BNC = self._zeros(batch, width, steps) + START
        self.log_p_BNC = torch.zeros(batch, width, steps, device=device)
        self.loops = LoopDetector(options, batch, width, device)
        self.slots = Slots(self.place_B, width, steps)

    @property
    def num_candidates(self) -> int:
        """The number of likeliest ids of each row that an update needs."""
        return 1

    def read_ids(self) -> Tensor:
        """Return the ids that each row has read, [R, C]; they are undefined behind its place."""
        return self.token_BNC.flatten(0, 1)

    def enter(self, index_E: Tensor, constraints: Constraints) -> None:
        """Begin sentences in some slots."""
        count, longest = constraints.prefix_BT.shape
        prefix_EP = constraints.prefix_BT.new_full((count, self.size.prefix_steps), PAD)
        prefix_EP[:, :longest] = constraints.prefix_BT
        self.prefix_BP[index_E] = prefix_EP
        self.limit_B[index_E], self.guarded_B[index_E] = constraints.limit_B, constraints.guarded_B
        for tensor, value in ((self.place_B, 0), (self.last_BN, START), (self.token_BNC[..., 0], START)):
            tensor.index_fill_(0, index_E, value)
        self.loops.enter(index_E)
        self.live_B.index_fill_(0, index_E, True)

    def update(self, found: TopTokens) -> Tensor | None:
        """Add one id to every live row; return the rows' parents [B, N] if they changed."""
        raise NotImplementedError

    def refill(self, other: DecodingState, index_E: Tensor) -> None:
        """Take some sentences of another state into the first slots."""
        for mine, theirs in zip(self._tensors(), other._tensors(), strict=True):
            refill(mine, theirs, index_E)

    def columns(self, num_steps: int) -> dict[str, Tensor]:
        """Return all that is needed to trace back the first steps of hypotheses, one row a sentence."""
        return {
            "place": self.place_B,
            "token": self.token_BNC[..., :num_steps],
            "log_p": self.log_p_BNC[..., :num_steps],
        }

    def _write(self, token_BN: Tensor, log_p_BN: Tensor) -> None:
        """Write the ids that are read next; in a finished sentence they fall behind its end."""
        next_BN1 = (self.place_B + 1)[:, None, None].expand(-1, self.size.width, 1)
        self.last_BN.copy_(token_BN)
        self.token_BNC.scatter_(2, next_BN1, token_BN[..., None])
        self.log_p_BNC.scatter_(2, next_BN1, log_p_BN[..., None])

    def _tensors(self) -> list[Tensor]:
        constant = [self.limit_B, self.guarded_B, self.prefix_BP]
        return [*constant, self.live_B, self.place_B, self.last_BN, self.token_BNC, self.log_p_BNC, *self.loops.tensors]

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.long, device=self.device)


@final
class GreedyState(DecodingState):
    """One hypothesis a sentence: at every step the likeliest id."""

    def update(self, found: TopTokens) -> None:
        """Add one id to every unfinished sentence."""
        if self.device.type == "cuda" and HAS_TRITON:
            from saccade.decoding.continuous.kernels.greedy_update import update

            return update(self, found)
        self._write(found.token_RM, found.log_p_RM)
        self.place_B += self.live_B
        self.loops.update(found.token_RM)
        looping_B = self.loops.detect(self.place_B, self.guarded_B)[:, 0]
        self.live_B &= ~((found.token_RM[:, 0] == END) | (self.limit_B <= self.place_B) | looping_B)
        return None


@final
class LoopDetector:
    """Counts, for each row and block size, how many ids up to the last equal those one block before.

    A tail of `size` ids repeats the same block when the last size - block of them do.
    """

    def __init__(self, options: DecodingOptions, batch: int, width: int, device: torch.device) -> None:
        self.is_on, rounds = options.max_rounds > 0, options.max_rounds
        sizes = [max(rounds * block, SHORTEST_LOOP) - block for block in range(1, LONGEST_BLOCK + 1)]
        self._size_K = torch.tensor(sizes, device=device)
        self.run_BNK = torch.zeros(batch, width, LONGEST_BLOCK, dtype=torch.long, device=device)
        self.recent_BNK = torch.full_like(self.run_BNK, PAD)

    @property
    def tensors(self) -> list[Tensor]:
        return [self.run_BNK, self.recent_BNK]

    def enter(self, index_E: Tensor) -> None:
        """Forget the ids of these slots; <s> and padding are never written by a row."""
        self.run_BNK.index_fill_(0, index_E, 0)
        self.recent_BNK.index_fill_(0, index_E, PAD)

    def update(self, token_BN: Tensor, parent_BN: Tensor | None = None) -> None:
        """Count one more id of every row, each continued from its parent."""
        if not self.is_on:
            return
        run_BNK, recent_BNK = self.run_BNK, self.recent_BNK
        if parent_BN is not None:
            parent_BNK = parent_BN[..., None].expand_as(run_BNK)
            run_BNK, recent_BNK = run_BNK.gather(1, parent_BNK), recent_BNK.gather(1, parent_BNK)
        token_BN1 = token_BN[..., None]
        self.run_BNK.copy_((run_BNK + 1) * (recent_BNK == token_BN1))
        self.recent_BNK.copy_(torch.cat([token_BN1, recent_BNK[..., :-1]], -1))

    def detect(self, place_B: Tensor, guarded_B: Tensor) -> Tensor:
        """Return which rows loop, [B, N]; like other searches, it checks only every few steps."""
        if not self.is_on:
            return torch.zeros_like(self.run_BNK[..., 0], dtype=torch.bool)
        checks_B = (place_B % LONGEST_BLOCK == 0) & (place_B >= SHORTEST_LOOP)
        checks_B &= guarded_B | (place_B >= LONGEST_LOOP)
        return (self.run_BNK >= self._size_K).any(-1) & checks_B[:, None]
