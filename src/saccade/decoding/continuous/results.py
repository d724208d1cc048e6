"""Turns slot tensors into `Hypothesis` objects, only for outputs that are returned."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.text.tokenizer import END
from saccade.decoding.beam import BeamOptions, CutScore, name_cut, rank_hypotheses
from saccade.decoding.constraints import LONGEST_BLOCK, LONGEST_LOOP, SHORTEST_LOOP, before_loop
from saccade.decoding.options import Cut, Hypothesis

Columns = dict[str, Tensor]  # on the host; the first axis is the sentence's
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
CUTS: tuple[Cut | None, ...] = (None, "max_length", "max_length_factor", "max_rounds")  # as numbers in arrays
TAIL = 8  # ids; an output whose last ones are not those some block before doesn't end in a loop


def collect_greedy(
    columns: Columns, options: BeamOptions, limit_B: Integers, guarded_B: Flags
) -> list[list[Hypothesis]]:
    """Return the one output of each sentence."""
    token_BC, log_p_BC = (columns[name][:, 0].numpy() for name in ("token", "log_p"))
    place_B = columns["place"].numpy()
    ended_B = token_BC[np.arange(len(place_B)), place_B] == END
    written = _Hypotheses(token_BC[:, 1:], log_p_BC[:, 1:], place_B)
    shorter = written.without_loops(options, guarded_B)
    cut_B = np.where(ended_B, 0, written.find_cuts(shorter, limit_B, options))
    length_B = np.where(ended_B, place_B, shorter.length_N)
    return [[one] for one in written._replace(length_N=length_B).hypotheses(options, cut_B)]


def collect_beam(columns: Columns, options: BeamOptions, limit_B: Integers, guarded_B: Flags) -> list[list[Hypothesis]]:
    """Return the best outputs of each sentence."""
    finished: dict[int, list[Hypothesis]] = {}
    cut: dict[int, list[Hypothesis]] = {}
    has_ended_BM = columns["worth"].numpy() > -np.inf
    at_N, rank_N = np.nonzero(has_ended_BM)
    if len(at_N):
        place_N, hypothesis_N, last_N = columns["ended"].numpy()[at_N, rank_N].T
        written = _trace_back(columns, at_N, place_N.astype(np.int64), hypothesis_N.astype(np.int64)).append(last_N)
        for at, one in zip(at_N.tolist(), written.hypotheses(options, np.zeros_like(at_N)), strict=True):
            finished.setdefault(at, []).append(one)
    num_wanted_B = options.num_best - has_ended_BM.sum(1)
    cut_BX2 = columns["cut"].numpy()
    is_cut_BX = np.arange(cut_BX2.shape[1]) < np.where(num_wanted_B > 0, columns["num_cut"].numpy(), 0)[:, None]
    at_N, rank_N = np.nonzero(is_cut_BX)
    if len(at_N):
        written = _trace_back(columns, at_N, *cut_BX2[at_N, rank_N].T)
        shorter = written.without_loops(options, guarded_B[at_N])
        cut_N = written.find_cuts(shorter, limit_B[at_N], options)
        may_N = _may_be_best(shorter, at_N, rank_N, num_wanted_B, options)
        may_N |= np.isin(at_N, at_N[shorter.length_N < written.length_N])  # two loops may be cut to the same output
        at_N, shorter = at_N[may_N], shorter.select(may_N)
        for at, one in zip(at_N.tolist(), shorter.hypotheses(options, cut_N[may_N]), strict=True):
            cut.setdefault(at, []).append(one)
    found = [rank_hypotheses(finished.get(at, []), cut.get(at, []), options.num_best) for at in range(len(guarded_B))]
    loop_B, length_B = columns["lost"].numpy().T
    for at in np.nonzero(np.maximum(loop_B, length_B) > -np.inf)[0].tolist():
        by_length = CutScore(float(length_B[at]), options.name_limit(int(limit_B[at])))
        found[at] = name_cut(found[at], max(CutScore(float(loop_B[at]), "max_rounds"), by_length))
    return found


class _Hypotheses(NamedTuple):
    """Hypotheses as arrays: ids, log-probabilities and the number of the latter; behind it they are undefined."""

    id_NT: Integers
    log_p_NT: NDArray[np.floating]
    length_N: Integers

    def select(self, is_kept_N: Flags) -> _Hypotheses:
        return _Hypotheses(self.id_NT[is_kept_N], self.log_p_NT[is_kept_N], self.length_N[is_kept_N])

    def append(self, log_p_N: NDArray[np.floating]) -> _Hypotheses:
        log_p_NT = np.pad(self.log_p_NT.astype(np.float64), ((0, 0), (0, 1)))
        log_p_NT[np.arange(len(log_p_N)), self.length_N] = log_p_N
        return _Hypotheses(self.id_NT, log_p_NT, self.length_N + 1)

    def without_loops(self, options: BeamOptions, is_guarded_N: Flags) -> _Hypotheses:
        """Shorten outputs that didn't end to what `Constraints.cut` would leave of them."""
        if not options.max_rounds or self.id_NT.shape[1] < SHORTEST_LOOP:
            return self
        length_N = self.length_N.copy()
        may_N = (length_N >= LONGEST_LOOP) | (is_guarded_N & (length_N >= SHORTEST_LOOP))
        at_NX = np.maximum(length_N, SHORTEST_LOOP)[:, None] + np.arange(-TAIL - LONGEST_BLOCK, 0)
        tail_NX = np.take_along_axis(self.id_NT, at_NX, 1)
        last_NX = tail_NX[:, LONGEST_BLOCK:]
        may_N &= np.any([(tail_NX[:, i : i + TAIL] == last_NX).all(1) for i in range(LONGEST_BLOCK)], 0)
        for row in np.nonzero(may_N)[0].tolist():
            length_N[row] = before_loop(self.id_NT[row, : length_N[row]].tolist(), options.max_rounds)
        return self._replace(length_N=length_N)

    def find_cuts(self, shorter: _Hypotheses, limit_N: Integers, options: BeamOptions) -> Integers:
        """Say what cut outputs, as numbers of CUTS: as `Constraints.cut`. `shorter` are the same without loops."""
        is_loop_N = (shorter.length_N < self.length_N) | (self.length_N < limit_N)
        by_length_N = np.where(limit_N >= options.max_length, CUTS.index("max_length"), CUTS.index("max_length_factor"))
        return np.where(is_loop_N, CUTS.index("max_rounds"), by_length_N)

    def scores(self, options: BeamOptions) -> NDArray[np.float64]:
        """Return the scores, nearly: the order of this sum is not that of `hypotheses`."""
        steps = np.arange(self.log_p_NT.shape[1])
        total_N = np.where(steps < self.length_N[:, None], self.log_p_NT, 0).sum(1, dtype=np.float64)
        shares = np.array([options.normalize_score(1.0, length) for length in range(len(steps) + 1)])
        return total_N * shares[self.length_N]

    def hypotheses(self, options: BeamOptions, cut_N: Integers) -> list[Hypothesis]:
        """Return objects; the last log-probability of an output that ended, of cut 0, is that of </s>."""
        columns = (self.id_NT, self.log_p_NT, self.length_N, cut_N)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [
            options.hypothesis(_first(ids, length - (not cut)), _first(steps, length), CUTS[cut])
            for ids, steps, length, cut in rows
        ]


def _first(row: list[Any], count: int) -> list[Any]:
    """Return the first `count` items of a list without another owner; copies would keep the garbage collector busy."""
    return row if count == len(row) else row[:count]


def _may_be_best(
    written: _Hypotheses, at_N: Integers, rank_N: Integers, num_wanted_B: Integers, options: BeamOptions
) -> Flags:
    """Return which may be among the best of their sentences; those with nearly equal scores all may."""
    score_N = written.scores(options)
    score_BX = np.full((len(num_wanted_B), int(rank_N.max()) + 1), -np.inf)
    score_BX[at_N, rank_N] = score_N
    last_B = np.clip(num_wanted_B, 1, score_BX.shape[1]) - 1
    least_B = -np.take_along_axis(np.sort(-score_BX, 1), last_B[:, None], 1)[:, 0]
    return score_N >= (least_B - 1e-6 * (1 + np.abs(least_B)))[at_N]


def _trace_back(columns: Columns, sentence_N: Integers, place_N: Integers, hypothesis_N: Integers) -> _Hypotheses:
    """Trace hypotheses back from their last steps and rows to the first."""
    token, log_p, back = (columns[name].numpy().reshape(-1) for name in ("token", "log_p", "back"))
    _, width, num_steps = columns["back"].shape
    longest = int(place_N.max(initial=0))
    at_TN = np.empty((longest, len(place_N)), np.int64)
    first_N = sentence_N * (width * num_steps)
    at_N = first_N + hypothesis_N * num_steps
    for step in range(longest, 0, -1):
        at_TN[step - 1] = at_N + step
        at_N = np.where(step <= place_N, first_N + back.take(at_TN[step - 1]) * num_steps, at_N)
    at_NT = at_TN.T
    return _Hypotheses(token.take(at_NT), log_p.take(at_NT), place_N)
