"""From what was written in slots to hypotheses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.tokenizer import END
from saccade.decoding.beam import BeamOptions, Sentence
from saccade.decoding.constraints import Constraints
from saccade.decoding.options import Hypothesis

Columns = dict[str, Tensor]  # on the host; the first axis is the sentence's
Own = Sequence[tuple[Constraints, int]]  # of each sentence its constraints, and its row in them
Integers = NDArray[np.int64]


def greedy_outputs(columns: Columns, options: BeamOptions, own: Own) -> list[list[Hypothesis]]:
    """The one output of each sentence."""
    token, log_p, place = (columns[name].tolist() for name in ("token", "log_p", "place"))
    found = []
    for (ids,), (steps,), length, (constraints, row) in zip(token, log_p, place, own, strict=True):
        ids, steps = ids[1 : length + 1], steps[1 : length + 1]
        ended = ids[-1] == END
        kept = length if ended else constraints.kept(row, ids)
        found.append([options.hypothesis(ids[: kept - ended], steps[:kept], ended=ended)])
    return found


def beam_outputs(columns: Columns, options: BeamOptions, own: Own) -> list[list[Hypothesis]]:
    """The best outputs of each sentence."""
    sentences = [Sentence(options, limit=0) for _ in own]
    worth_BM, ended_BM3, cut_BX2 = (columns[name].numpy() for name in ("worth", "ended", "cut"))
    at_H, rank_H = np.nonzero(worth_BM > -np.inf)
    place_H, hypothesis_H, last_H = ended_BM3[at_H, rank_H].T
    written = _read_off(columns, at_H, place_H.astype(np.int64), hypothesis_H.astype(np.int64))
    for at, (ids, steps), last in zip(at_H.tolist(), written, last_H.tolist(), strict=True):
        sentences[at].finish(ids, [*steps, last])
    at_H, rank_H = np.nonzero(np.arange(cut_BX2.shape[1]) < columns["num_cut"].numpy()[:, None])
    for at, (ids, steps) in zip(at_H.tolist(), _read_off(columns, at_H, *cut_BX2[at_H, rank_H].T), strict=True):
        constraints, row = own[at]
        kept = constraints.kept(row, ids)
        sentences[at].cut_off(ids[:kept], steps[:kept])
    return [sentence.ranked() for sentence in sentences]


def _read_off(
    columns: Columns, sentence_H: Integers, place_H: Integers, hypothesis_H: Integers
) -> list[tuple[list[int], list[float]]]:
    """Ids and log-probabilities of the hypotheses that rows were at their steps, from there back to the first."""
    token_BNC, log_p_BNC, back_BNC = (columns[name].numpy() for name in ("token", "log_p", "back"))
    longest = int(place_H.max(initial=0))
    id_HT, step_HT = (np.empty((len(place_H), longest), values.dtype) for values in (token_BNC, log_p_BNC))
    for step in range(longest, 0, -1):
        where = sentence_H, hypothesis_H, step
        id_HT[:, step - 1], step_HT[:, step - 1] = token_BNC[where], log_p_BNC[where]
        hypothesis_H = np.where(step <= place_H, back_BNC[where], hypothesis_H)
    rows = zip(id_HT.tolist(), step_HT.tolist(), place_H.tolist(), strict=True)
    return [(ids[:place], steps[:place]) for ids, steps, place in rows]
