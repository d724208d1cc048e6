"""An engine's steps, searched by our own search: every option is what it is in torch."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from saccade.data.batches import pad_sources
from saccade.decoding import BeamOptions, Hypothesis, SamplingOptions, Stepper, search
from saccade.decoding.slices import Tick, narrow
from saccade.errors import UserError
from saccade.export.proof import TOKENS, Ids
from saccade.tasks.texts import batch_by_length

AnyOptions = TypeVar("AnyOptions", BeamOptions, SamplingOptions, BeamOptions | SamplingOptions)


def keep_within(most: int | None, sources: Ids, options: AnyOptions) -> AnyOptions:
    """Let no output be longer than a model's table of positions; refuse sources that are."""
    if most is None:
        return options
    if (longest := max(map(len, sources), default=0)) >= most:
        raise UserError(f"source: {longest:,} tokens given; this model reads at most {most - 1:,}")
    return replace(options, max_length=min(options.max_length, most))


def search_steps(
    steps: Stepper, sources: Ids, prefixes: Ids, options: BeamOptions | SamplingOptions, tick: Tick | None
) -> list[list[Hypothesis]]:
    """Return the best outputs of every source, best first."""
    found: list[list[Hypothesis]] = [[] for _ in sources]
    hypotheses = options.width if isinstance(options, BeamOptions) else options.num_best
    for rows in batch_by_length([len(source) for source in sources], 2 * TOKENS // hypotheses):
        best = search(
            steps,
            *pad_sources([sources[row] for row in rows]),
            options,
            [prefixes[row] for row in rows],
            None if tick is None else narrow(tick, rows),
        )
        for row, hypotheses_of_row in zip(rows, best, strict=True):
            found[row] = hypotheses_of_row
    return found
