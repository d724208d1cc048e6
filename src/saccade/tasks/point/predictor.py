"""A pointer network in use: the order in which it points at elements, and how often that is right."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from saccade.data.text.tokenizer import END, SPECIAL
from saccade.decoding import OPTION_NAMES, BeamOptions, Hypothesis, SamplingOptions, choose_options, count_steps, search
from saccade.decoding.slices import tick_of
from saccade.inspection.insight import Insight, Map, TextSide
from saccade.inspection.record import recording
from saccade.models.pointing.pointer_network import PointerNetwork
from saccade.tasks.base import Evaluation, Predictor, Traits, Watch, pass_on, several
from saccade.tasks.point.problems import (
    PROBLEMS,
    Example,
    collate,
    draw_examples,
    pad_elements,
    parse_example,
    to_places,
)
from saccade.tasks.point.result import Pointing, SizeCounts

TEST_SEED = 20_151_207
SAMPLES = {1: "0.5 0.25 0.75", 2: "0.1,0.2 0.9,0.3 0.4,0.8 0.5,0.4"}  # by the numbers of an element


@final
@dataclass(frozen=True)
class Pointer(Predictor):
    """A trained model that points, as `saccade.load` returns it. Inputs are `Example`s, or texts (`0.31 0.75 0.12`).

    Every method takes how to decode as keywords, as text to text does.
    """

    network: PointerNetwork
    kind: str
    options: BeamOptions
    test_sizes: tuple[int, ...] = ()
    num_test: int = 0
    batch_size: int = 128

    @property
    def traits(self) -> Traits:
        return Traits(
            "point",
            kinds=("cross",),
            predict_options=(*OPTION_NAMES, "attention"),
            evaluate_options=OPTION_NAMES,
            look_options=(*OPTION_NAMES, "kinds", "norms"),
            evidence={"attention": True},
            needs_files=False,
            beam=self.options.width,
            answers="elements",
            texts="anything",
            sample=SAMPLES[PROBLEMS[self.kind].width],
        )

    def predict(
        self, inputs: Iterable[str | Example], /, *, attention: bool = False, **decoding: Any
    ) -> list[Pointing]:
        """Return the best order for each set of elements; with `num_best`, the others are its `others`."""
        return list(self.stream(inputs, attention=attention, **decoding))

    def stream(
        self, inputs: Iterable[str | Example], /, *, attention: bool = False, **decoding: Any
    ) -> Iterator[Pointing]:
        """Point at elements of sets in order; with `attention`, a result shows the weights of every step."""
        found = self.stream_best(inputs, attention=attention, **decoding)
        return (replace(best[0], others=tuple(best[1:])) for best in found)

    def stream_best(
        self, inputs: Iterable[str | Example], /, *, attention: bool = False, **decoding: Any
    ) -> Iterator[Sequence[Pointing]]:
        """Return the `num_best` orders of each set, best first."""
        options = choose_options(self.options, decoding)
        examples, number = (self._parse(given) for given in several(inputs)), 0
        while batch := list(islice(examples, self.batch_size)):
            yield from self._point(batch, number, options, attention)
            number += len(batch)

    @torch.no_grad()
    def look(
        self,
        inputs: Iterable[str | Example],
        /,
        *,
        kinds: Collection[str] = ("cross",),
        norms: bool = False,
        **decoding: Any,
    ) -> list[Insight]:
        """Return the weights on all elements at every step, which are what is chosen from."""
        options = choose_options(self.options, decoding)
        return [self._look(self._parse(given), kinds, norms, options) for given in several(inputs)]

    def evaluate(self, paths: Sequence[Path], /, *, watch: Watch = pass_on, **decoding: Any) -> Evaluation:
        """Score problems of files, one a line, or without files random ones of the sizes that the run tests."""
        given = [self._parse(line) for path in paths for line in self.read(path)] if paths else list(self.draw_tests())
        given = sorted((one for one in given if one.places), key=lambda one: len(one.value_SC))
        counts = count_sizes(list(watch(self.stream(given, **decoding), len(given))))
        return Evaluation(plain_scores(counts), [one.line() for one in counts])

    def draw_tests(self) -> Iterator[Example]:
        """Draw the test's problems: the same every time."""
        for size in self.test_sizes:
            yield from draw_examples(self.kind, size, self.num_test, np.random.default_rng([TEST_SEED, size]))

    def num_steps(self, given: Any, /, **decoding: Any) -> int:
        """Count the steps of a search, over all hypotheses."""
        size = len(given.split()) if isinstance(given, str) else len(given.value_SC)
        return count_steps(choose_options(self.options, decoding), size + 1)

    def output_side(self, result: Any) -> TextSide:
        return TextSide.of(result.text, result.queries)

    def _parse(self, given: str | Example) -> Example:
        return parse_example(given, self.kind) if isinstance(given, str) else given

    def _point(
        self, batch: list[Example], first: int, options: BeamOptions | SamplingOptions, shows_weights: bool
    ) -> Iterator[Sequence[Pointing]]:
        """Search the orders of a batch; a blank text has an empty one."""
        rows = [row for row, one in enumerate(batch) if one.places]
        given = [batch[row] for row in rows]
        best = list[list[Hypothesis]]()
        if given:
            tick = tick_of([first + row for row in rows])
            best = search(self.network, *self._pad(given), options, tick=tick)
        found = dict(zip(rows, best, strict=True))
        for row, one in enumerate(batch):
            if row not in found:
                yield [Pointing(one, [], 0.0, [])]
                continue
            results = [_result(one, hypothesis) for hypothesis in found[row]]
            yield [self._with_weights(result) for result in results] if shows_weights else results

    @torch.no_grad()
    def _with_weights(self, result: Pointing) -> Pointing:
        return replace(result, weight_TS=self._read(result)[0].float().cpu())

    def _read(self, result: Pointing) -> Tensor:
        """Read an order again and return the weights of its steps, [1, T, S]."""
        batch = collate([Example(result.given.value_SC, result.places)]).to(self._device)
        weight_BTS: Tensor = self.network(batch.source_BSC, batch.source_length_B, batch.read_BT)
        return weight_BTS[:, : len(result.log_probabilities)]

    def _look(
        self, given: Example, kinds: Collection[str], norms: bool, options: BeamOptions | SamplingOptions
    ) -> Insight:
        task = self.traits.task
        (best,) = self._point([given], 0, options, False)
        if not given.places:
            return Insight(task, best[0], {}, {}, draws_itself=True)
        with recording(self.network, kinds=kinds, norms=norms) as record:
            weight_1TS = self._read(best[0])
        answer = replace(best[0], weight_TS=weight_1TS[0].float().cpu())
        sides = {
            "source": TextSide.of(" ".join(given.words), [*given.words, SPECIAL[END]]),
            "output": self.output_side(answer),
        }
        steps = slice(len(answer.log_probabilities))
        maps = {
            kind: Map(
                "output",
                "source",
                record.weights(kind)[:, 0, :, steps].float().cpu(),
                record.norms(kind)[:, 0, :, steps].float().cpu() if norms else None,
            )
            for kind in record.kinds
        }
        return Insight(task, answer, sides, maps, None, best[1:], draws_itself=True)

    def _pad(self, examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
        source_BSC, length_B = pad_elements(examples)
        return source_BSC.to(self._device), length_B.to(self._device)

    @property
    def _device(self) -> torch.device:
        return next(self.network.parameters()).device


def _result(given: Example, found: Hypothesis) -> Pointing:
    return Pointing(given, to_places(found.ids), found.score, found.log_probabilities)


def count_sizes(found: Sequence[Pointing]) -> list[SizeCounts]:
    """Count what is right of each size; equal sizes are together."""
    return [SizeCounts.of(size, list(same)) for size, same in groupby(found, lambda one: len(one.given.value_SC))]


def plain_scores(counts: Sequence[SizeCounts]) -> dict[str, Any]:
    """Return scores for programs; the first is the mean share of problems that are exactly right."""
    total = sum(one.num_problems for one in counts)
    exact = sum(one.exact * one.num_problems for one in counts) / total if total else 100.0
    return {"exact": exact, "num_problems": total, "sizes": [one._asdict() for one in counts]}
