"""Sequences written back: a trained network in use, and how well it remembers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from saccade.data.text.tokenizer import END, SPECIAL
from saccade.inspection.insight import Insight, Map, TextSide
from saccade.inspection.record import recording
from saccade.layers.recurrent.turing_machine import TuringMachine
from saccade.tasks.base import Evaluation, Predictor, Traits, Watch, pass_on, several
from saccade.tasks.remember.result import HeadTracks, Recollection, SizeCounts
from saccade.tasks.remember.sequences import BitSequence, Encoder, Size, count_steps, draw_sequences, parse_sequence

TEST_SEED = 20_141_020


@final
@dataclass(frozen=True)
class Recaller(Predictor):
    """A trained model that remembers, from `saccade.load`. Inputs are `BitSequence`s, or texts (`0110 1010 x2`)."""

    network: nn.Module
    encoder: Encoder
    tests: list[Size]
    num_test: int
    batch_size: int = 64

    @property
    def traits(self) -> Traits:
        has_heads = isinstance(self.network, TuringMachine)
        return Traits(
            "remember",
            kinds=("cross", "decoder") if has_heads else (),
            predict_options=("attention",) if has_heads else (),
            look_options=("kinds", "norms") if has_heads else (),
            evidence={"attention": True} if has_heads else {},
            needs_files=False,
            answers="text",
            sample="0" * self.encoder.width,
        )

    def predict(self, inputs: Iterable[str | BitSequence], /, *, attention: bool = False) -> list[Recollection]:
        """Return what is written back of each sequence."""
        return list(self.stream(inputs, attention=attention))

    def stream(self, inputs: Iterable[str | BitSequence], /, *, attention: bool = False) -> Iterator[Recollection]:
        """Write sequences back in order; with `attention`, a result shows where the heads were."""
        sequences = (self._parse(given) for given in several(inputs))
        for size, alike in groupby(sequences, key=lambda one: one.size):
            while batch := list(islice(alike, self.batch_size)):
                yield from self._recall(batch, attention) if size.length else map(_write_nothing, batch)

    def num_steps(self, given: Any, /, **decoding: Any) -> int | None:
        """Count the steps of a sequence, whatever it may ask for."""
        del decoding
        return count_steps(given) if isinstance(given, str) else given.size.num_steps

    @torch.no_grad()
    def look(
        self,
        inputs: Iterable[str | BitSequence],
        /,
        *,
        kinds: Collection[str] = ("cross", "decoder"),
        norms: bool = False,
    ) -> list[Insight]:
        """Return where the heads were at every step, and which vector each written one was read from."""
        return [self._look(self._parse(given), kinds, norms) for given in several(inputs)]

    def evaluate(self, paths: Sequence[Path], /, *, watch: Watch = pass_on) -> Evaluation:
        """Score sequences of files, a sequence a line, or without files random ones of the sizes that the run tests."""
        sequences = [self._parse(line) for path in paths for line in self.read(path)]
        given = [one for one in sequences if len(one.bit_SW)] if paths else list(self.draw_tests())
        given.sort(key=lambda one: one.size)
        found = list(watch(self.stream(given), len(given)))
        counts = count_sizes(given, found)
        return Evaluation(plain_scores(counts), [one.line() for one in counts])

    def draw_tests(self) -> Iterator[BitSequence]:
        """Draw the test's sequences: the same every time."""
        for size in self.tests:
            random = np.random.default_rng([TEST_SEED, *size])
            yield from draw_sequences(size, self.encoder.width, self.num_test, random)

    @torch.no_grad()
    def run(self, sequences: Sequence[BitSequence]) -> Tensor:
        """Return the unnormalised outputs for sequences of one size: what is written, and the end, [B, T, W + 1]."""
        batch = self.encoder.batch(sequences).to(next(self.network.parameters()).device)
        output_BTC: Tensor = self.network(batch.input_BTC)
        return output_BTC[:, -batch.output_BTC.shape[1] :].float().cpu()

    def _parse(self, given: str | BitSequence) -> BitSequence:
        return parse_sequence(given, self.encoder.width) if isinstance(given, str) else given

    def _recall(self, batch: list[BitSequence], shows_heads: bool) -> Iterator[Recollection]:
        weights: Sequence[HeadTracks | None] = [None] * len(batch)
        if shows_heads:
            with recording(self.network, kinds=("decoder",)) as record:
                output_BTC = self.run(batch)
            weights = self._tracks(record.weights("decoder"))
        else:
            output_BTC = self.run(batch)
        for given, output_TC, tracks in zip(batch, output_BTC.sigmoid(), weights, strict=True):
            share_TW = output_TC[:-1, :-1]
            bit_TW = (share_TW > 0.5).to(torch.uint8).numpy()
            yield Recollection(given, bit_TW, share_TW, float(output_TC[-1, -1]), tracks, shows_heads)

    def _tracks(self, weight_LBHTS: Tensor) -> list[HeadTracks]:
        assert isinstance(self.network, TuringMachine)
        return [HeadTracks(weight_HTS, self.network.heads.num_reading) for weight_HTS in weight_LBHTS[0].float().cpu()]

    def _look(self, given: BitSequence, kinds: Collection[str], norms: bool) -> Insight:
        task, source = self.traits.task, [*given.words, SPECIAL[END]]
        if not isinstance(self.network, TuringMachine) or not len(given.bit_SW):
            (answer,) = self.predict([given])
            sides = {"source": TextSide.of(" ".join(given.words), given.words)}
            return Insight(task, answer, {**sides, "output": self.output_side(answer)}, {}, draws_itself=True)
        with recording(self.network, kinds=("decoder",), norms=norms) as record:
            (answer,) = self._recall([given], False)
        norm_LHTS = record.norms("decoder")[:, 0].float().cpu() if norms else None
        (tracks,) = self._tracks(record.weights("decoder"))
        answer = Recollection(given, answer.bit_TW, answer.share_TW, answer.end, tracks, True)
        written = [*answer.words, SPECIAL[END]]
        places = [str(place) for place in range(tracks.weight_HTS.shape[-1])]
        sides = {
            "source": TextSide.of(" ".join(given.words), source),
            "output": TextSide.of(answer.line(), written),
            "steps": TextSide.of("", [*source, *written]),
            "places": TextSide.of("", places),
        }
        found = {
            "cross": Map("output", "source", tracks.sources(len(source))[None, None]),
            "decoder": Map("steps", "places", tracks.weight_HTS[None], norm_LHTS),
        }
        maps = {kind: found[kind] for kind in found if kind in kinds}
        return Insight(task, answer, sides, maps, draws_itself=True)


def _write_nothing(given: BitSequence) -> Recollection:
    return Recollection(given, given.bit_SW, torch.zeros(given.bit_SW.shape), 1.0)


def count_sizes(given: Sequence[BitSequence], found: Sequence[Recollection]) -> list[SizeCounts]:
    """Count what is right of each size; `given` has equal sizes together."""
    pairs = groupby(zip(given, found, strict=True), key=lambda pair: pair[0].size)
    return [SizeCounts.of(size, [one for _, one in same]) for size, same in pairs]


def plain_scores(counts: Sequence[SizeCounts]) -> dict[str, Any]:
    """Return scores for programs; the first is that of the smallest size."""
    if not counts:
        return {"bits_right": 100.0, "sizes": []}
    return {"bits_right": counts[0].bits_right, "exact": counts[0].exact, "sizes": [one.plain() for one in counts]}
