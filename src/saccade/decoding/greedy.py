"""Greedy decoding, and the loop that it shares with sampling: one hypothesis for each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor

from saccade.data.text.tokenizer import END, START
from saccade.decoding.constraints import Constraints, constrain
from saccade.decoding.options import DecodingOptions, Hypothesis
from saccade.decoding.slices import Tick
from saccade.decoding.stepper import Stepper

# Takes log-probabilities [N, V], the rows' numbers [N] and the step; returns the next id of each row, [N].
Pick = Callable[[Tensor, Tensor, int], Tensor]


@torch.inference_mode()
def greedy(
    model: Stepper,
    source: Tensor,
    source_length_B: Tensor,
    options: DecodingOptions,
    prefixes: Sequence[Sequence[int]] = (),
    tick: Tick | None = None,
) -> list[Hypothesis]:
    """Write the likeliest id at every step, y_t = argmax p(y | y_<t, x)."""
    constraints = constrain(options, source, source_length_B, prefixes)
    state = model.start(source, source_length_B)
    return write(model, state, constraints, lambda step_NV, _rows, _step: step_NV.argmax(1), tick)


def write(
    model: Stepper, state: Any, constraints: Constraints, pick: Pick, tick: Tick | None = None
) -> list[Hypothesis]:
    """Write every row to its end; rows that are done leave the batch when they are an eighth of it."""
    rows = _first(state, constraints)
    found: list[Hypothesis | None] = [None] * len(rows.number_N)
    while len(rows.number_N):
        rows = _extend(model, rows, pick)
        if tick is not None and (wanted := tick()) is not None:
            rows = rows.end_unwanted(torch.tensor(wanted).repeat_interleave(len(found) // len(wanted)))
        done_N = rows.length_N > 0
        num_done = int(done_N.sum())
        if num_done and 8 * num_done >= len(done_N):
            for number, hypothesis in _outputs(rows.only(done_N.nonzero()[:, 0], with_state=False)):
                found[number] = hypothesis
            rows = rows.only((~done_N).nonzero()[:, 0])
    return [hypothesis for hypothesis in found if hypothesis is not None]


@final
@dataclass(frozen=True)
class _Rows:
    """The rows being written; `length_N` is the output's length of a row that is done, 0 for the others."""

    state: Any
    constraints: Constraints
    number_N: Tensor
    ids_NT: Tensor
    log_probability_NT: Tensor
    length_N: Tensor

    def only(self, index_N: Tensor, *, with_state: bool = True) -> _Rows:
        state = self.state.rows(index_N) if with_state and len(index_N) else None
        tensors = (self.number_N, self.ids_NT, self.log_probability_NT, self.length_N)
        return _Rows(state, self.constraints.rows(index_N), *(tensor[index_N] for tensor in tensors))

    def end_unwanted(self, wanted: Tensor) -> _Rows:
        """Let rows end here whose numbers aren't wanted."""
        goes_on_N = (self.length_N > 0) | wanted.to(self.number_N.device)[self.number_N]
        return replace(self, length_N=self.length_N.where(goes_on_N, self.log_probability_NT.shape[1]))


def _first(state: Any, constraints: Constraints) -> _Rows:
    device, count = constraints.limit_B.device, len(constraints.limit_B)
    numbers, lengths = torch.arange(count, device=device), torch.zeros(count, dtype=torch.long, device=device)
    ids_NT = torch.full((count, 1), START, device=device)
    return _Rows(state, constraints, numbers, ids_NT, torch.zeros(count, 0, device=device), lengths)


def _extend(model: Stepper, rows: _Rows, pick: Pick) -> _Rows:
    """Extend every row by one id; those of rows that are done are ignored."""
    vectors, state = model.advance(rows.state, rows.ids_NT[:, -1:])
    step_NV = rows.constraints.log_probabilities(model.logits(vectors[:, -1]), rows.ids_NT)
    step = rows.ids_NT.shape[1]
    token_N1 = pick(step_NV, rows.number_N, step - 1)[:, None]
    ids_NT = torch.cat([rows.ids_NT, token_N1], 1)
    log_probability_NT = torch.cat([rows.log_probability_NT, step_NV.gather(1, token_N1)], 1)
    done_N = (token_N1[:, 0] == END) | (rows.constraints.limit_B <= step) | rows.constraints.in_loop(ids_NT)
    length_N = rows.length_N.where((rows.length_N > 0) | ~done_N, step)
    return _Rows(state, rows.constraints, rows.number_N, ids_NT, log_probability_NT, length_N)


def _outputs(rows: _Rows) -> list[tuple[int, Hypothesis]]:
    """Return the outputs of rows that are done, with their numbers."""
    options = rows.constraints.options
    columns = (rows.number_N, rows.ids_NT[:, 1:], rows.log_probability_NT, rows.length_N)
    found = []
    for row, (number, ids, steps, length) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        ended = ids[length - 1] == END
        kept, cut = (length, None) if ended else rows.constraints.cut(row, ids[:length])
        found.append((number, options.hypothesis(ids[: kept - ended], steps[:kept], cut)))
    return found
