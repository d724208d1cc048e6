"""From what was written in slots to hypotheses: of those that nobody will see, none is made."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.text.tokenizer import END
from saccade.decoding.beam import BeamOptions, rank_hypotheses
from saccade.decoding.constraints import LONGEST_BLOCK, LONGEST_LOOP, SHORTEST_LOOP, before_loop
from saccade.decoding.options import Hypothesis

Columns = dict[str, Tensor]  # on the host; the first axis is the sentence's
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
TAIL = 8  # ids; an output whose last ones are not those some block before doesn't end in a loop


def greedy_outputs(columns: Columns, options: BeamOptions, guarded_B: Flags) -> list[list[Hypothesis]]:
    """The one output of each sentence."""
    token_BC, log_p_BC = (columns[name][:, 0].numpy() for name in ("token", "log_p"))
    place_B = columns["place"].numpy()
    ended_B = token_BC[np.arange(len(place_B)), place_B] == END
    written = _Written(token_BC[:, 1:], log_p_BC[:, 1:], place_B)
    length_B = np.where(ended_B, place_B, written.without_loops(options, guarded_B).length_H)
    return [[one] for one in written._replace(length_H=length_B).hypotheses(options, ended_B)]


def beam_outputs(columns: Columns, options: BeamOptions, guarded_B: Flags) -> list[list[Hypothesis]]:
    """The best outputs of each sentence."""
    finished: dict[int, list[Hypothesis]] = {}
    cut: dict[int, list[Hypothesis]] = {}
    has_ended_BM = columns["worth"].numpy() > -np.inf
    at_H, rank_H = np.nonzero(has_ended_BM)
    if len(at_H):
        place_H, hypothesis_H, last_H = columns["ended"].numpy()[at_H, rank_H].T
        written = _read_off(columns, at_H, place_H.astype(np.int64), hypothesis_H.astype(np.int64)).and_then(last_H)
        for at, one in zip(at_H.tolist(), written.hypotheses(options, np.ones_like(at_H, np.bool_)), strict=True):
            finished.setdefault(at, []).append(one)
    num_wanted_B = options.num_best - has_ended_BM.sum(1)
    cut_BX2 = columns["cut"].numpy()
    is_cut_BX = np.arange(cut_BX2.shape[1]) < np.where(num_wanted_B > 0, columns["num_cut"].numpy(), 0)[:, None]
    at_H, rank_H = np.nonzero(is_cut_BX)
    if len(at_H):
        written = _read_off(columns, at_H, *cut_BX2[at_H, rank_H].T)
        shorter = written.without_loops(options, guarded_B[at_H])
        may_H = _among_best(shorter, at_H, rank_H, num_wanted_B, options)
        may_H |= np.isin(at_H, at_H[shorter.length_H < written.length_H])  # two loops may be cut to the same
        at_H, shorter = at_H[may_H], shorter.only(may_H)
        for at, one in zip(at_H.tolist(), shorter.hypotheses(options, np.zeros_like(at_H, np.bool_)), strict=True):
            cut.setdefault(at, []).append(one)
    return [rank_hypotheses(finished.get(at, []), cut.get(at, []), options.num_best) for at in range(len(guarded_B))]


class _Written(NamedTuple):
    """Some hypotheses: ids and log-probabilities, and how many of the latter each has; behind these anything."""

    id_HT: Integers
    log_p_HT: NDArray[np.floating]
    length_H: Integers

    def only(self, is_kept_H: Flags) -> _Written:
        """Some of them."""
        return _Written(self.id_HT[is_kept_H], self.log_p_HT[is_kept_H], self.length_H[is_kept_H])

    def and_then(self, log_p_H: NDArray[np.floating]) -> _Written:
        """One step more."""
        log_p_HT = np.pad(self.log_p_HT.astype(np.float64), ((0, 0), (0, 1)))
        log_p_HT[np.arange(len(log_p_H)), self.length_H] = log_p_H
        return _Written(self.id_HT, log_p_HT, self.length_H + 1)

    def without_loops(self, options: BeamOptions, is_guarded_H: Flags) -> _Written:
        """What stays of those that didn't end: `Constraints.kept`."""
        if not options.max_rounds or self.id_HT.shape[1] < SHORTEST_LOOP:
            return self
        length_H = self.length_H.copy()
        may_H = (length_H >= LONGEST_LOOP) | (is_guarded_H & (length_H >= SHORTEST_LOOP))
        at_HX = np.maximum(length_H, SHORTEST_LOOP)[:, None] + np.arange(-TAIL - LONGEST_BLOCK, 0)
        tail_HX = np.take_along_axis(self.id_HT, at_HX, 1)
        last_HX = tail_HX[:, LONGEST_BLOCK:]
        may_H &= np.any([(tail_HX[:, i : i + TAIL] == last_HX).all(1) for i in range(LONGEST_BLOCK)], 0)
        for row in np.nonzero(may_H)[0].tolist():
            length_H[row] = before_loop(self.id_HT[row, : length_H[row]].tolist(), options.max_rounds)
        return self._replace(length_H=length_H)

    def scores(self, options: BeamOptions) -> NDArray[np.float64]:
        """Nearly their scores: the order of a sum is not that of `hypotheses`."""
        steps = np.arange(self.log_p_HT.shape[1])
        total_H = np.where(steps < self.length_H[:, None], self.log_p_HT, 0).sum(1, dtype=np.float64)
        shares = np.array([options.normalised(1.0, length) for length in range(len(steps) + 1)])
        return total_H * shares[self.length_H]

    def hypotheses(self, options: BeamOptions, ended_H: Flags) -> list[Hypothesis]:
        """As objects; an output that ended has its last log-probability for </s>."""
        columns = (self.id_HT, self.log_p_HT, self.length_H, ended_H)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [
            options.hypothesis(_first(ids, length - ended), _first(steps, length), ended=ended)
            for ids, steps, length, ended in rows
        ]


def _first(row: list[Any], count: int) -> list[Any]:
    """So many of a list that nobody else has; a copy of each would keep the garbage collector busy."""
    return row if count == len(row) else row[:count]


def _among_best(
    written: _Written, at_H: Integers, rank_H: Integers, num_wanted_B: Integers, options: BeamOptions
) -> Flags:
    """Which may be among the best of their sentences, so many of each; those that are as good as equal all may."""
    score_H = written.scores(options)
    score_BX = np.full((len(num_wanted_B), int(rank_H.max()) + 1), -np.inf)
    score_BX[at_H, rank_H] = score_H
    last_B = np.clip(num_wanted_B, 1, score_BX.shape[1]) - 1
    least_B = -np.take_along_axis(np.sort(-score_BX, 1), last_B[:, None], 1)[:, 0]
    return score_H >= (least_B - 1e-6 * (1 + np.abs(least_B)))[at_H]


def _read_off(columns: Columns, sentence_H: Integers, place_H: Integers, hypothesis_H: Integers) -> _Written:
    """The hypotheses that rows were at their steps, from there back to the first."""
    token, log_p, back = (columns[name].numpy().reshape(-1) for name in ("token", "log_p", "back"))
    _, width, num_steps = columns["back"].shape
    longest = int(place_H.max(initial=0))
    at_TH = np.empty((longest, len(place_H)), np.int64)
    first_H = sentence_H * (width * num_steps)
    at_H = first_H + hypothesis_H * num_steps
    for step in range(longest, 0, -1):
        at_TH[step - 1] = at_H + step
        at_H = np.where(step <= place_H, first_H + back.take(at_TH[step - 1]) * num_steps, at_H)
    at_HT = at_TH.T
    return _Written(token.take(at_HT), log_p.take(at_HT), place_H)
