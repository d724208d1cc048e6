"""Beam search in slots: the search of `beam` with tensors instead of lists, for all sentences at once."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from saccade.attention.slots import Slots
from saccade.data.text.tokenizer import END
from saccade.decoding.constraints import Constraints
from saccade.decoding.continuous.greedy_state import DecodingState, StateSize, TopTokens
from saccade.decoding.options import DecodingOptions
from saccade.ops.kernels.availability import HAS_TRITON

WIDEST_KERNEL = 16  # most hypotheses whose candidates fit in a warp


@final
class BeamState(DecodingState):
    """N hypotheses a sentence. Those that ended or were cut are stored by their last step and row."""

    def __init__(self, options: DecodingOptions, size: StateSize, device: torch.device) -> None:
        super().__init__(options, size, device)
        batch, width = size.batch, size.width
        self.score_BN = torch.full((batch, width), -torch.inf, device=device)
        self.back_BNC = self._zeros(batch, width, size.steps)
        self._own_N = torch.arange(width, dtype=torch.uint8, device=device)
        self.row_BNC = self._own_N[:, None].expand(batch, -1, size.steps).contiguous()
        self.slots = Slots(self.place_B, width, size.steps, self.row_BNC)
        self.worth_BM = torch.full((batch, options.num_best), -torch.inf, dtype=torch.float64, device=device)
        self.ended_BM3 = torch.zeros(batch, options.num_best, 3, dtype=torch.float64, device=device)
        self.num_cut_B = self._zeros(batch)
        self.cut_BX2 = self._zeros(batch, 2 * width + 1, 2)  # the last is for those that aren't cut
        self.lost_B2 = torch.full((batch, 2), -torch.inf, dtype=torch.float64, device=device)  # by a loop, by the limit
        shares = [options.normalize_score(1.0, length) for length in range(size.steps)]
        self.share_C = torch.tensor(shares, dtype=torch.float64, device=device)
        self.last_share_B = torch.zeros(batch, dtype=torch.float64, device=device)  # at the limit

    @property
    def num_candidates(self) -> int:
        """2N of each row are enough: among them N don't end."""
        return 2 * self.size.width

    def read_ids(self) -> Tensor:
        """Return the ids that each hypothesis has read, [R, C], gathered from the rows that wrote them."""
        return self.token_BNC.gather(1, self.row_BNC.long()).flatten(0, 1)

    def enter(self, index_E: Tensor, constraints: Constraints) -> None:
        """Begin with N equal rows a sentence, of which only the first may be extended."""
        super().enter(index_E, constraints)
        self.score_BN.index_fill_(0, index_E, -torch.inf)
        self.score_BN[:, 0].index_fill_(0, index_E, 0)
        self.row_BNC[index_E] = self._own_N[:, None].expand(-1, self.size.steps)
        self.worth_BM.index_fill_(0, index_E, -torch.inf)
        self.num_cut_B.index_fill_(0, index_E, 0)
        self.lost_B2.index_fill_(0, index_E, -torch.inf)
        offset = self.options.length_offset
        share_E = ((constraints.limit_B.double() + offset) / (offset + 1)) ** -self.options.length_penalty
        self.last_share_B[index_E] = share_E
        self.slots.renew()

    def refill(self, other: DecodingState, index_E: Tensor) -> None:
        super().refill(other, index_E)
        self.slots.renew()

    def update(self, found: TopTokens) -> Tensor:
        """Choose the best of all extensions: store those that end, and continue with N others."""
        if self.device.type == "cuda" and HAS_TRITON and self.size.width <= WIDEST_KERNEL:
            from saccade.decoding.continuous.kernels.beam_update import update

            return update(self, found)
        (batch, width), each = self.score_BN.shape, found.token_RM.shape[1]
        total_BNM = self.score_BN[..., None] + found.log_p_RM.view(batch, width, each)
        total_BX = total_BNM.flatten(1).masked_fill(~self.live_B[:, None], -torch.inf)
        best_BX, at_BX = total_BX.topk(min(2 * width, width * each), dim=1)
        parent_BX, token_BX = at_BX // each, found.token_RM.view(batch, -1).gather(1, at_BX)
        ends_BX = token_BX == END
        self._collect_ended(best_BX[:, :width], parent_BX[:, :width], ends_BX[:, :width])
        score_BN, kept_BN = best_BX.masked_fill(ends_BX, -torch.inf).topk(min(width, best_BX.shape[1]), dim=1)
        parent_BN, token_BN = parent_BX.gather(1, kept_BN), token_BX.gather(1, kept_BN)
        self._write(token_BN, score_BN - self.score_BN.gather(1, parent_BN))
        self._follow_parents(parent_BN)
        self.score_BN.copy_(score_BN)
        self.place_B += self.live_B
        self.loops.update(token_BN, parent_BN)
        self._finish_sentences()
        self.slots.renew()
        return parent_BN

    def columns(self, num_steps: int) -> dict[str, Tensor]:
        own = {"worth": self.worth_BM, "ended": self.ended_BM3, "num_cut": self.num_cut_B, "cut": self.cut_BX2}
        own["lost"] = self.lost_B2
        return {**super().columns(num_steps), "back": self.back_BNC[..., :num_steps], **own}

    def _collect_ended(self, score_BN: Tensor, parent_BN: Tensor, ends_BN: Tensor) -> None:
        """Store candidates among the best N that end, and keep the best of all that have ended so far."""
        place_BN = self.place_B[:, None].expand_as(parent_BN)
        worth_BN = score_BN.double() * self.share_C[self.place_B + 1][:, None]
        worth_BX = torch.cat([self.worth_BM, worth_BN.masked_fill(~ends_BN, -torch.inf)], 1)
        last_BN = score_BN - self.score_BN.gather(1, parent_BN)
        ended_BX3 = torch.cat([self.ended_BM3, torch.stack([place_BN, parent_BN, last_BN], -1)], 1)
        worth_BM, at_BM = worth_BX.topk(self.worth_BM.shape[1], dim=1)
        self.worth_BM.copy_(worth_BM)
        self.ended_BM3.copy_(ended_BX3.gather(1, at_BM[..., None].expand(-1, -1, 3)))

    def _follow_parents(self, parent_BN: Tensor) -> None:
        """Give each row its parent's past; what it writes from now on is its own."""
        next_BN1 = (self.place_B + 1)[:, None, None].expand(-1, self.size.width, 1)
        self.back_BNC.scatter_(2, next_BN1, parent_BN[..., None])
        row_BNC = self.row_BNC.gather(1, parent_BN[..., None].expand_as(self.row_BNC))
        own_BN1 = self._own_N[:, None].expand_as(next_BN1)
        self.row_BNC.copy_(row_BNC.scatter(2, next_BN1, own_BN1))

    def _finish_sentences(self) -> None:
        """Cut rows that loop; in finished sentences cut the live rows too, if too few have ended."""
        width = self.size.width
        exists_BN = self.score_BN.isfinite()
        looping_BN = self.loops.detect(self.place_B, self.guarded_B)
        cut_BN = looping_BN & exists_BN
        looped_B = self.score_BN.masked_fill(~cut_BN, -torch.inf).amax(1).double() * self.share_C[self.place_B]
        self.score_BN.masked_fill_(looping_BN, -torch.inf)
        best_B = self.score_BN.amax(1)
        worst_B = self.worth_BM[:, -1]
        hope_B = best_B.double() * self.last_share_B
        reached_B = self.live_B & (self.place_B >= self.limit_B)
        self.lost_B2[:, 0].copy_(torch.maximum(self.lost_B2[:, 0], looped_B))
        self.lost_B2[:, 1].copy_(hope_B.where(reached_B, self.lost_B2[:, 1]))
        done_B = (self.place_B >= self.limit_B) | best_B.isneginf() | (self.num_cut_B + cut_BN.sum(1) >= width)
        done_B |= worst_B.isfinite() & (worst_B >= hope_B)
        cut_BN |= (self.live_B & done_B & ~worst_B.isfinite())[:, None] & self.score_BN.isfinite()
        at_BN = (self.num_cut_B[:, None] + cut_BN.cumsum(1) - 1).where(cut_BN, 2 * width)
        where_BN2 = torch.stack([self.place_B[:, None].expand_as(at_BN), self._own_N.expand_as(at_BN)], -1)
        self.cut_BX2.scatter_(1, at_BN[..., None].expand(-1, -1, 2), where_BN2)
        self.num_cut_B += cut_BN.sum(1)
        self.live_B &= ~done_B

    def _tensors(self) -> list[Tensor]:
        rows = [self.score_BN, self.back_BNC, self.row_BNC]
        kept = [self.last_share_B, self.worth_BM, self.ended_BM3, self.num_cut_B, self.cut_BX2, self.lost_B2]
        return [*super()._tensors(), *rows, *kept]
