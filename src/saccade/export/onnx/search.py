"""ONNX Runtime in the place of torch: its numbers, searched by our own search."""

from __future__ import annotations

from typing import cast, final

from saccade.decoding import BeamOptions, Hypothesis, SamplingOptions, Stepper
from saccade.decoding.slices import Tick
from saccade.export.onnx.runtime import OnnxEngine
from saccade.export.proof import Ids
from saccade.export.stepped import keep_within, search_steps


@final
class OnnxSearch:
    """Searches with both graphs. They compute the steps, so every option is what it is in torch."""

    name = "onnx"

    def __init__(self, engine: OnnxEngine, network: Stepper) -> None:
        del network
        self._engine = engine

    def refuse(self, options: BeamOptions | SamplingOptions) -> None:
        """Refuse nothing: every option works."""

    def refuse_prefixes(self, options: BeamOptions | SamplingOptions) -> None:
        """Refuse nothing: prefixes work with every option."""

    def search(
        self, sources: Ids, prefixes: Ids, options: BeamOptions | SamplingOptions, tick: Tick | None
    ) -> list[list[Hypothesis]]:
        """Return the best outputs of every source, best first."""
        options = keep_within(self._engine.longest, sources, options)
        return search_steps(cast(Stepper, self._engine), sources, prefixes, options, tick)
