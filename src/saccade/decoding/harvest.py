"""From what was written in slots to hypotheses."""

from __future__ import annotations

from typing import Any

from saccade.data.tokenizer import END
from saccade.decoding.beam import BeamOptions, Sentence
from saccade.decoding.constraints import Constraints
from saccade.decoding.options import Hypothesis

Columns = dict[str, Any]  # of one sentence: numbers and lists of them


def greedy_output(columns: Columns, options: BeamOptions, constraints: Constraints, row: int) -> list[Hypothesis]:
    """The one output of a sentence, from its columns as lists."""
    length = columns["place"]
    ids, steps = columns["token"][0][1 : length + 1], columns["log_p"][0][1 : length + 1]
    ended = ids[-1] == END
    kept = length if ended else constraints.kept(row, ids)
    return [options.hypothesis(ids[: kept - ended], steps[:kept], ended=ended)]


def beam_outputs(columns: Columns, options: BeamOptions, constraints: Constraints, row: int) -> list[Hypothesis]:
    """The best outputs of a sentence, from its columns as lists."""
    sentence = Sentence(options, limit=0)
    for worth, (place, hypothesis, last) in zip(columns["worth"], columns["ended"], strict=True):
        if worth > -float("inf"):
            ids, steps = _read_off(columns, int(place), int(hypothesis))
            sentence.finish(ids, [*steps, last])
    for place, hypothesis in columns["cut"][: columns["num_cut"]]:
        ids, steps = _read_off(columns, place, hypothesis)
        kept = constraints.kept(row, ids)
        sentence.cut_off(ids[:kept], steps[:kept])
    return sentence.ranked()


def _read_off(columns: Columns, place: int, hypothesis: int) -> tuple[list[int], list[float]]:
    """Ids and log-probabilities of the hypothesis that a row was at a step, from there back to the first."""
    ids, steps = [], []
    for step in range(place, 0, -1):
        ids.append(columns["token"][hypothesis][step])
        steps.append(columns["log_p"][hypothesis][step])
        hypothesis = columns["back"][hypothesis][step]
    return ids[::-1], steps[::-1]
