"""Beam search; a beam of one is greedy decoding.

At each step every live hypothesis is extended with every id and the best N are kept; one that ends in </s> leaves the
beam for the set of finished ones (Sutskever 2014, section 3.2). Scores are log p / ((5 + length) / 6)^alpha (Wu 2016,
equation 14). A sentence stops when no live hypothesis can still beat its worst wanted finished one: log p only falls,
so a live one is worth at most what it would be if it went on to the maximum length for free.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from saccade.data.tokenizer import END, PAD, START
from saccade.decoding.stepper import Stepper


class Hypothesis(NamedTuple):
    """A finished output: its score, its ids without </s>, and the log-probability of each id, </s> included."""

    score: float
    ids: list[int]
    log_probabilities: list[float]


@final
@dataclass(frozen=True)
class BeamOptions:
    """How to search. `max_length` counts ids per source id, plus ten."""

    width: int = 1
    num_best: int = 1
    length_penalty: float = 0.6
    min_length: int = 0
    max_length_factor: float = 2.0

    def __post_init__(self) -> None:
        for name, least in (("width", 1), ("num_best", 1), ("length_penalty", 0), ("min_length", 0)):
            if (value := getattr(self, name)) < least:
                raise ValueError(f"{name}: {value} given; it must be {least} or more")
        if self.num_best > self.width:
            raise ValueError(f"num_best: {self.num_best} given; a beam of {self.width} holds no more than its width")

    def limit(self, source_length: int) -> int:
        """The longest output for a source."""
        return int(self.max_length_factor * source_length) + 10

    def normalised(self, log_probability: float, length: int) -> float:
        """The score that hypotheses are ranked by; `length` counts </s>."""
        return log_probability / ((5 + length) / 6) ** self.length_penalty


@final
@dataclass
class _Sentence:
    """One source's search: its finished hypotheses, best `num_best` only."""

    options: BeamOptions
    limit: int
    finished: list[Hypothesis] = field(default_factory=list)

    def finish(self, log_probability: float, ids: list[int], log_probabilities: list[float]) -> None:
        score = self.options.normalised(log_probability, len(log_probabilities))
        heapq.heappush(self.finished, Hypothesis(score, ids, log_probabilities))
        if len(self.finished) > self.options.num_best:
            heapq.heappop(self.finished)

    def is_done(self, best_live: float, length: int) -> bool:
        if length >= self.limit:
            return True
        if len(self.finished) < self.options.num_best:
            return False
        return self.finished[0].score >= self.options.normalised(best_live, self.limit)


@final
@dataclass
class _Beam:
    """The live hypotheses of the sentences still searched: [B, N] of them, their rows in the state in that order."""

    state: Any
    score_BN: Tensor
    ids_BNT: Tensor
    log_probability_BNT: Tensor
    sentence_of_B: list[int]

    def rows(self, keep: Sequence[int]) -> _Beam:
        """Only some of the sentences."""
        index = torch.tensor(keep, device=self.score_BN.device, dtype=torch.long)
        width = self.score_BN.shape[1]
        flat = (index[:, None] * width + torch.arange(width, device=index.device)).flatten()
        sentences = [self.sentence_of_B[row] for row in keep]
        return _Beam(
            self.state.rows(flat), self.score_BN[index], self.ids_BNT[index], self.log_probability_BNT[index], sentences
        )


@torch.inference_mode()
def beam_search(
    model: Stepper, source_BS: Tensor, source_length_B: Tensor, options: BeamOptions
) -> list[list[Hypothesis]]:
    """For every source its best outputs, best first."""
    sentences = [_Sentence(options, options.limit(length)) for length in source_length_B.tolist()]
    beam = _first(model, source_BS, source_length_B, options.width)
    length = 0
    while beam.sentence_of_B:
        length += 1
        beam = _extend(model, beam, sentences, options, length)
        best_live = beam.score_BN.amax(1).tolist()
        places = enumerate(zip(beam.sentence_of_B, best_live, strict=True))
        open_rows = [row for row, (index, best) in places if not sentences[index].is_done(best, length)]
        if len(open_rows) < len(beam.sentence_of_B):
            _close(beam, set(range(len(best_live))) - set(open_rows), sentences)
            beam = beam.rows(open_rows)
    return [sorted(sentence.finished, reverse=True) for sentence in sentences]


def _first(model: Stepper, source_BS: Tensor, source_length_B: Tensor, width: int) -> _Beam:
    """N equal rows a sentence, of which only the first may be extended."""
    batch, device = source_BS.shape[0], source_BS.device
    row = torch.arange(batch, device=device).repeat_interleave(width)
    score_BN = torch.full((batch, width), -torch.inf, device=device)
    score_BN[:, 0] = 0
    ids_BNT = torch.full((batch, width, 1), START, device=device)
    state = model.start(source_BS, source_length_B).rows(row)
    return _Beam(state, score_BN, ids_BNT, torch.zeros(batch, width, 0, device=device), list(range(batch)))


def _extend(model: Stepper, beam: _Beam, sentences: list[_Sentence], options: BeamOptions, length: int) -> _Beam:
    """One id more: 2N candidates a sentence hold N that don't end, whatever happens to the rest."""
    batch, width = beam.score_BN.shape
    vectors, state = model.advance(beam.state, beam.ids_BNT[:, :, -1].reshape(-1, 1))
    step_NV = _log_probabilities(model.logits(vectors[:, -1]), length <= options.min_length)
    vocabulary = step_NV.shape[-1]
    total = beam.score_BN[..., None] + step_NV.view(batch, width, vocabulary)
    best, flat = total.flatten(1).topk(min(2 * width, width * vocabulary), dim=1)
    parent, token = flat // vocabulary, flat % vocabulary
    ends = token == END
    _finish(beam, sentences, best, parent, ends, width)
    kept = _kept(best, ends, width)
    parent, token, best = parent.gather(1, kept), token.gather(1, kept), best.gather(1, kept)
    best = best.masked_fill(token == END, -torch.inf)  # a tiny vocabulary may have nothing else to offer
    row = (torch.arange(batch, device=parent.device)[:, None] * width + parent).flatten()
    ids_BNT = torch.cat([_rows(beam.ids_BNT, parent), token[..., None]], -1)
    step = (best - beam.score_BN.gather(1, parent))[..., None]
    log_probability_BNT = torch.cat([_rows(beam.log_probability_BNT, parent), step], -1)
    return _Beam(state.rows(row), best, ids_BNT, log_probability_BNT, beam.sentence_of_B)


def _log_probabilities(logits_NV: Tensor, forbid_end: bool) -> Tensor:
    """log softmax in float32; padding and <s> are never written, </s> not before the minimum length."""
    step_NV = logits_NV.float().log_softmax(-1)
    step_NV[:, [PAD, START, END] if forbid_end else [PAD, START]] = -torch.inf
    return step_NV


def _finish(beam: _Beam, sentences: list[_Sentence], best: Tensor, parent: Tensor, ends: Tensor, width: int) -> None:
    """Candidates among the best N that end leave the beam."""
    for row, rank in (ends[:, :width] & best[:, :width].isfinite()).nonzero().tolist():
        hypothesis = int(parent[row, rank])
        total = float(best[row, rank])
        last = total - float(beam.score_BN[row, hypothesis])
        steps = beam.log_probability_BNT[row, hypothesis].tolist()
        sentences[beam.sentence_of_B[row]].finish(total, beam.ids_BNT[row, hypothesis, 1:].tolist(), [*steps, last])


def _kept(best: Tensor, ends: Tensor, width: int) -> Tensor:
    """Which candidates stay: the best N that don't end."""
    return best.masked_fill(ends, -torch.inf).topk(min(width, best.shape[1]), dim=1).indices


def _close(beam: _Beam, rows: set[int], sentences: list[_Sentence]) -> None:
    """A sentence that reached its maximum length with nothing finished gives its best live hypothesis, cut there."""
    for row in rows:
        sentence = sentences[beam.sentence_of_B[row]]
        if not sentence.finished:
            best = int(beam.score_BN[row].argmax())
            steps = beam.log_probability_BNT[row, best].tolist()
            sentence.finish(float(beam.score_BN[row, best]), beam.ids_BNT[row, best, 1:].tolist(), steps)


def _rows(tensor_BNT: Tensor, parent_BN: Tensor) -> Tensor:
    return tensor_BNT.gather(1, parent_BN[..., None].expand(-1, -1, tensor_BNT.shape[-1]))
