"""ONNX Runtime in the place of torch: every option of every search does what it does with the model itself."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from exports import portable, recurrent, transformer
from runs import make_run
from saccade.data.batches import pad_sources
from saccade.decoding import BeamOptions, Hypothesis, SamplingOptions, Stepper, search
from saccade.decoding.slices import ComputationEnded, supervise, tick_of
from saccade.errors import UserError
from saccade.export.onnx import runtime, write
from saccade.export.onnx.search import OnnxSearch
from saccade.runs.load import load
from saccade.tasks.base import Portable

FAMILIES: dict[str, Any] = {
    "rotary": lambda: transformer(positions="rotary"),
    "learned": lambda: transformer(positions="learned"),
    "bahdanau": recurrent,
    "luong": lambda: recurrent("luong", cell="lstm", layers=2),
    "none": lambda: recurrent("none"),
}


def searcher(model: Portable, folder: Path) -> OnnxSearch:
    write.write(model, folder, "float32")
    return OnnxSearch(runtime.OnnxEngine(model, folder), cast(Stepper, model.network))


def sources(count: int, longest: int = 12) -> list[list[int]]:
    draw = random.Random(4)
    return [[draw.randint(4, 14) for _ in range(draw.randint(1, longest))] for _ in range(count)]


def tell(found: list[list[Hypothesis]]) -> list[list[Any]]:
    return [[(one.ids, one.ended, one.cut, pytest.approx(one.score, abs=1e-4)) for one in best] for best in found]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "options",
    [
        BeamOptions(width=1),
        BeamOptions(width=4, num_best=3, no_repeat_ngram=2),
        BeamOptions(width=3, min_length=4, writes_unknown=False, length_penalty=2.0),
        BeamOptions(width=2, max_length_factor=5.0, max_rounds=2),
        SamplingOptions(num_best=2, temperature=0.8),
    ],
    ids=["greedy", "no_repeat", "min_length", "max_rounds", "samples"],
)
def test_every_option_does_what_it_does_here(tmp_path: Path, family: str, options: Any) -> None:
    torch.manual_seed(1)
    model, given = portable(FAMILIES[family]()), sources(9)
    engine = searcher(model, tmp_path)
    for longest in (0, 2):
        prefixes = [[4 + row % 7] * min(row % 3, longest) for row in range(len(given))]
        torch.manual_seed(2)
        ours = search(cast(Stepper, model.network), *pad_sources(given), options, prefixes)
        torch.manual_seed(2)
        found = engine.search(given, prefixes, options, None)
        assert [[(one.ids, one.ended, one.cut, one.score) for one in best] for best in found] == tell(ours)


def test_others_may_go_first_and_end_it(tmp_path: Path) -> None:
    class Supervisor:
        count = 0

        def pause(self) -> None:
            self.count += 1
            if self.count > 3:
                raise ComputationEnded

        def find_wanted(self) -> None:
            return None

    engine, by = searcher(portable(transformer()), tmp_path), Supervisor()
    with supervise(by), pytest.raises(ComputationEnded):
        engine.search(sources(5), [[]] * 5, BeamOptions(width=2), tick_of(range(5)))
    assert by.count == 4


def test_positions_end_where_the_table_does(tmp_path: Path) -> None:
    engine = searcher(portable(transformer(positions="learned")), tmp_path)
    with pytest.raises(UserError, match="64 tokens given; this model reads at most 63"):
        engine.search([[4] * 64], [[]], BeamOptions(), None)
    (found,) = engine.search([[4] * 63], [[]], BeamOptions(width=1, max_length_factor=9, max_rounds=0), None)
    assert len(found[0].log_probabilities) <= 64


def test_a_run_with_an_additive_score_takes_it(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "model.score=additive")
    here, there = load(run), load(run, engine="onnx")
    for options in ({"prefixes": ["a", "", "b c"]}, {"glossary": {"c": "g"}}, {"sample": True, "seed": 3}):
        ours, theirs = ([one.plain() for one in side.predict(["a b c", "", "d"], **options)] for side in (here, there))
        assert [one["text"] for one in ours] == [one["text"] for one in theirs]
