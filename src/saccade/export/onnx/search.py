"""ONNX Runtime in the place of torch: its numbers, searched by our own search."""

from __future__ import annotations

from dataclasses import replace
from typing import cast, final

from saccade.data.batches import pad_sources
from saccade.decoding import BeamOptions, Hypothesis, SamplingOptions, Stepper, search
from saccade.decoding.slices import Tick, narrow
from saccade.errors import UserError
from saccade.export.onnx.runtime import OnnxEngine
from saccade.export.proof import TOKENS, Ids
from saccade.tasks.texts import batch_by_length


@final
class OnnxSearch:
    """Searches with both graphs. They compute the steps, so every option is what it is in torch."""

    name = "onnx"

    def __init__(self, engine: OnnxEngine, network: Stepper) -> None:
        del network
        self._engine = engine

    def refuse(self, options: BeamOptions | SamplingOptions) -> None:
        """Refuse nothing."""

    def refuse_prefixes(self, options: BeamOptions | SamplingOptions) -> None:
        """Refuse nothing."""

    def search(
        self, sources: Ids, prefixes: Ids, options: BeamOptions | SamplingOptions, tick: Tick | None
    ) -> list[list[Hypothesis]]:
        """Return the best outputs of every source, best first."""
        longest, most = max(map(len, sources), default=0), self._engine.longest
        if most is not None:
            if longest >= most:
                raise UserError(f"source: {longest:,} tokens given; this model reads at most {most - 1:,}")
            options = replace(options, max_length=min(options.max_length, most))
        found: list[list[Hypothesis]] = [[] for _ in sources]
        hypotheses = options.width if isinstance(options, BeamOptions) else options.num_best
        for rows in batch_by_length([len(source) for source in sources], 2 * TOKENS // hypotheses):
            best = search(
                cast(Stepper, self._engine),
                *pad_sources([sources[row] for row in rows]),
                options,
                [prefixes[row] for row in rows],
                None if tick is None else narrow(tick, rows),
            )
            for row, hypotheses_of_row in zip(rows, best, strict=True):
                found[row] = hypotheses_of_row
        return found
