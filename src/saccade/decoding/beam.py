"""Beam search; a beam of one is greedy decoding.

At each step every live hypothesis is extended with every id and the best N are kept; one that ends in </s> leaves the
beam for the set of finished ones (Sutskever 2014, section 3.2). A sentence stops when no live hypothesis can still beat
its worst wanted finished one: log p only falls, so a live one is worth at most what it would be if it went on to the
maximum length for free. Searching on to that length would therefore find the same.

`continuous/beam_state.py` does the same for sentences in slots, on an accelerator.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from saccade.data.text.tokenizer import END, START
from saccade.decoding.constraints import Constraints, constrain
from saccade.decoding.greedy import greedy
from saccade.decoding.options import Cut, DecodingOptions, Hypothesis, check_at_least
from saccade.decoding.slices import Tick
from saccade.decoding.stepper import Stepper
from saccade.errors import UserError


@final
@dataclass(frozen=True, kw_only=True)
class BeamOptions(DecodingOptions):
    """Settings of beam search: `width` hypotheses are kept.

    With a `patience` p a search stops when p * width of them have ended (Kasai 2022, section 3), as CTranslate2's does
    with 1, and a better one may be missed. With 0 it goes on while a better one may come.
    """

    width: int = 1
    patience: float = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, width=1, patience=0)
        if self.num_best > self.width:
            said = f"num_best: {self.num_best} given; a beam of {self.width} holds no more than its width"
            raise UserError(f"{said}, so give a wider beam, or sample")

    @property
    def most_ended(self) -> int:
        """The number of ended hypotheses after which a search stops; 0: there is none."""
        return max(1, round(self.width * self.patience)) if self.patience else 0


@torch.inference_mode()
def beam_search(
    model: Stepper,
    source: Tensor,
    source_length_B: Tensor,
    options: BeamOptions,
    prefixes: Sequence[Sequence[int]] = (),
    tick: Tick | None = None,
) -> list[list[Hypothesis]]:
    """Return the `num_best` best outputs of every source, those that ended first, or fewer if there are no more."""
    if options.width == 1:
        return [[hypothesis] for hypothesis in greedy(model, source, source_length_B, options, prefixes, tick)]
    constraints = constrain(options, source, source_length_B, prefixes)
    sentences = [BeamResults(options, limit) for limit in constraints.limit_B.tolist()]
    beam = _first(model.start(source, source_length_B), constraints, sentences, options.width)
    while beam.sentences:
        beam = _extend(model, beam)
        if tick is not None and (wanted := tick()) is not None:
            for sentence, is_wanted in zip(sentences, wanted, strict=True):
                sentence.is_wanted = is_wanted
    return [sentence.best() for sentence in sentences]


@final
@dataclass
class BeamResults:
    """The hypotheses found for one source: the best `num_best` that ended, and those that were cut.

    A cut hypothesis keeps its place in the beam: when all places are taken, going on would only find more loops.
    """

    options: BeamOptions
    limit: int
    finished: list[Hypothesis] = field(default_factory=list)
    cut: list[Hypothesis] = field(default_factory=list)
    lost: CutScore = field(default_factory=lambda: CutScore())
    num_ended: int = 0
    is_wanted: bool = True

    def finish(self, ids: list[int], log_probabilities: list[float]) -> None:
        """Add a hypothesis that ended; the best `num_best` stay."""
        self.num_ended += 1
        heapq.heappush(self.finished, self.options.hypothesis(ids, log_probabilities))
        if len(self.finished) > self.options.num_best:
            heapq.heappop(self.finished)

    def cut_off(self, ids: list[int], log_probabilities: list[float], cut: Cut) -> None:
        """Add a hypothesis that didn't end."""
        self.cut.append(self.options.hypothesis(ids, log_probabilities, cut))

    def lose(self, log_probability: float, length: int, cut: Cut) -> None:
        """Remember a hypothesis that is cut at this length, if none before was better."""
        self.lost = max(self.lost, CutScore(self.options.normalize_score(log_probability, length), cut))

    @property
    def needs_more(self) -> bool:
        """True while fewer than `num_best` ended."""
        return len(self.finished) < self.options.num_best

    def is_done(self, best_live: float, length: int) -> bool:
        """Tell whether no live hypothesis can still change the result."""
        is_full = length >= self.limit or best_live == -math.inf or len(self.cut) >= self.options.width
        if is_full or not self.is_wanted or 0 < self.options.most_ended <= self.num_ended:
            return True
        if self.needs_more:
            return False
        return self.finished[0].score >= self.options.normalize_score(best_live, self.limit)

    def best(self) -> list[Hypothesis]:
        return name_cut(rank_hypotheses(self.finished, self.cut, self.options.num_best), self.lost)


class CutScore(NamedTuple):
    """The best score of hypotheses when they were cut, and by which option."""

    score: float = -math.inf
    cut: Cut = "max_rounds"


def name_cut(found: list[Hypothesis], lost: CutScore) -> list[Hypothesis]:
    """Name the option that cut a hypothesis which was better than the best that ended: it may have decided."""
    best, *others = found
    return [best._replace(cut=lost.cut), *others] if best.ended and lost.score > best.score else found


def rank_hypotheses(finished: list[Hypothesis], cut: list[Hypothesis], num_best: int) -> list[Hypothesis]:
    """Return the best hypotheses in order; cut ones only if too few ended."""
    if len(finished) + len(cut) == 1:
        return finished or cut
    distinct = {tuple(one.ids): one for one in sorted(cut)}.values()  # two loops may be cut to the same
    found = sorted(finished, reverse=True) + sorted(distinct, reverse=True)
    return found[:num_best] or [Hypothesis(-math.inf, [], [], ended=False, cut="max_length")]


@final
@dataclass(frozen=True)
class _Beam:
    """The live hypotheses [B, N] of the sentences still searched; the state's rows are in that order."""

    state: Any
    constraints: Constraints
    sentences: list[BeamResults]
    score_BN: Tensor
    ids_BNT: Tensor
    log_probability_BNT: Tensor

    def outputs(self, row: Tensor, hypothesis: Tensor) -> list[tuple[list[int], list[float]]]:
        """Return the ids and log-probabilities of some hypotheses."""
        ids, steps = self.ids_BNT[row, hypothesis, 1:].tolist(), self.log_probability_BNT[row, hypothesis].tolist()
        return list(zip(ids, steps, strict=True))


class _Candidates(NamedTuple):
    """The best extensions of each sentence, best first: their scores, the hypotheses they extend, and the new ids."""

    score_BN: Tensor
    parent_BN: Tensor
    token_BN: Tensor

    def best(self, allowed_BN: Tensor, count: int) -> _Candidates:
        """Return the best allowed ones; if there are too few, the others score -inf."""
        score_BN = self.score_BN.masked_fill(~allowed_BN, -torch.inf)
        score_BN, at_BN = score_BN.topk(min(count, score_BN.shape[1]), dim=1)
        return _Candidates(score_BN, self.parent_BN.gather(1, at_BN), self.token_BN.gather(1, at_BN))


def _first(state: Any, constraints: Constraints, sentences: list[BeamResults], width: int) -> _Beam:
    """Make N equal rows for each sentence; only the first has a finite score."""
    batch, device = len(sentences), constraints.limit_B.device
    row_N = torch.arange(batch, device=device).repeat_interleave(width)
    score_BN = torch.full((batch, width), -torch.inf, device=device)
    score_BN[:, 0] = 0
    ids_BNT = torch.full((batch, width, 1), START, device=device)
    steps_BNT = torch.zeros(batch, width, 0, device=device)
    return _Beam(state.rows(row_N), constraints, list(sentences), score_BN, ids_BNT, steps_BNT)


def _extend(model: Stepper, beam: _Beam) -> _Beam:
    """Extend every hypothesis by one id; among 2N candidates of a sentence at least N don't end."""
    batch, width = beam.score_BN.shape
    vectors, state = model.advance(beam.state, beam.ids_BNT[:, :, -1].reshape(-1, 1))
    step_NV = beam.constraints.log_probabilities(model.logits(vectors[:, -1]), beam.ids_BNT.flatten(0, 1))
    total_BV = (beam.score_BN.view(-1, 1) + step_NV).view(batch, -1)  # of every extension of N hypotheses
    best, flat = total_BV.topk(min(2 * width, total_BV.shape[1]), dim=1)
    found = _Candidates(best, flat // step_NV.shape[1], flat % step_NV.shape[1])
    ends_BN = found.token_BN == END
    _finish(beam, found, ends_BN, width)
    kept = found.best(~ends_BN, width)
    ids_BNT = torch.cat([_rows(beam.ids_BNT, kept.parent_BN), kept.token_BN[..., None]], -1)
    step_BN1 = (kept.score_BN - beam.score_BN.gather(1, kept.parent_BN))[..., None]
    steps_BNT = torch.cat([_rows(beam.log_probability_BNT, kept.parent_BN), step_BN1], -1)
    later = _Beam(state, beam.constraints, beam.sentences, kept.score_BN, ids_BNT, steps_BNT)
    return _drop_done(_cut_loops(later), kept.parent_BN)


def _finish(beam: _Beam, found: _Candidates, ends_BN: Tensor, width: int) -> None:
    """Store the candidates among the best N that end."""
    is_last_BN = ends_BN[:, :width] & found.score_BN[:, :width].isfinite()
    row, rank = is_last_BN.nonzero(as_tuple=True)
    parent = found.parent_BN[row, rank]
    last = (found.score_BN[row, rank] - beam.score_BN[row, parent]).tolist()
    for index, (ids, steps), step in zip(row.tolist(), beam.outputs(row, parent), last, strict=True):
        beam.sentences[index].finish(ids, [*steps, step])


def _cut_loops(beam: _Beam) -> _Beam:
    """Take hypotheses that repeat themselves out of the beam, which makes room for others."""
    looping_BN = beam.constraints.in_loop(beam.ids_BNT.flatten(0, 1)).view(beam.score_BN.shape)
    if not looping_BN.any():
        return beam
    row, hypothesis = (looping_BN & beam.score_BN.isfinite()).nonzero(as_tuple=True)
    for index, score in zip(row.tolist(), beam.score_BN[row, hypothesis].tolist(), strict=True):
        beam.sentences[index].lose(score, beam.ids_BNT.shape[2] - 1, "max_rounds")
    _cut_off(beam, row, hypothesis)
    score_BN = beam.score_BN.masked_fill(looping_BN, -torch.inf)
    return _Beam(beam.state, beam.constraints, beam.sentences, score_BN, beam.ids_BNT, beam.log_probability_BNT)


def _cut_off(beam: _Beam, row: Tensor, hypothesis: Tensor) -> None:
    for index, (ids, steps) in zip(row.tolist(), beam.outputs(row, hypothesis), strict=True):
        kept, cut = beam.constraints.cut(index, ids)
        beam.sentences[index].cut_off(ids[:kept], steps[:kept], cut)


def _drop_done(beam: _Beam, parent_BN: Tensor) -> _Beam:
    """Keep the sentences that aren't done; if too few hypotheses of a done one ended, cut its live ones."""
    (batch, width), device = parent_BN.shape, parent_BN.device
    length = beam.ids_BNT.shape[2] - 1
    best_live = beam.score_BN.amax(1).tolist()
    done = [s.is_done(live, length) for s, live in zip(beam.sentences, best_live, strict=True)]
    for sentence, live in zip(beam.sentences, best_live, strict=True):
        if length >= sentence.limit:
            sentence.lose(live, length, sentence.options.name_limit(sentence.limit))
    done_B = torch.tensor(done, device=device)
    needs_more_B = torch.tensor([s.needs_more for s in beam.sentences], device=device)
    _cut_off(beam, *((done_B & needs_more_B)[:, None] & beam.score_BN.isfinite()).nonzero(as_tuple=True))
    keep = (~done_B).nonzero()[:, 0]
    row_N = (keep[:, None] * width + parent_BN[keep]).flatten()
    unchanged = torch.equal(row_N, torch.arange(batch * width, device=device))
    sentences = [s for s, is_done in zip(beam.sentences, done, strict=True) if not is_done]
    state = beam.state if unchanged or not sentences else beam.state.rows(row_N)
    tensors = (beam.score_BN, beam.ids_BNT, beam.log_probability_BNT)
    return _Beam(state, beam.constraints.rows(keep), sentences, *(tensor[keep] for tensor in tensors))


def _rows(tensor_BNT: Tensor, parent_BN: Tensor) -> Tensor:
    return tensor_BNT.gather(1, parent_BN[..., None].expand(-1, -1, tensor_BNT.shape[-1]))
