"""What a model's thread does with a request: its estimated cost, and its parts, between which others go first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from saccade.decoding.slices import supervise
from saccade.inspection.insight import Insight, Map, TextSide
from saccade.inspection.views import flow
from saccade.serving import work
from saccade.serving.http.responses import encode_json
from saccade.serving.models import ServedRun
from saccade.serving.waiting import SLOW_COST, ModelCall
from saccade.tasks.base import Traits
from saccade.tasks.translate.result import TranslationResult
from servers import predictor_of


class Counter:
    """Counts how often a computation pauses."""

    def __init__(self) -> None:
        self.count = 0

    def pause(self) -> None:
        self.count += 1

    def find_wanted(self) -> Sequence[bool] | None:
        return None


class Looker:
    """Sees 3 layers of 5 heads, 7 steps and 11 keys."""

    traits = Traits("translate")

    def look(self, texts: list[str]) -> list[Insight]:
        sides = {name: TextSide.of(text, text.split()) for name, text in (("output", "a b"), ("source", "c d"))}
        cross = Map("output", "source", torch.rand(3, 5, 7, 11))
        return [Insight("translate", TranslationResult(text, 0.0, [], []), sides, {"cross": cross}) for text in texts]


def test_an_insight_is_encoded_in_parts() -> None:
    """Encoding holds Python's lock: a long answer at once would keep the event loop, and everybody, waiting."""
    looker, counter = Looker(), Counter()
    torch.manual_seed(1)
    with supervise(counter):
        (found,) = work.look(looker, ["a b"])  # type: ignore[arg-type]
    assert counter.count >= 3 * 5
    torch.manual_seed(1)
    (right,) = looker.look(["a b"])
    assert found == encode_json(right.plain())
    assert max(map(len, work._encode(right.plain()["attention"]))) < 11 * 9  # a row of 11 weights


def test_long_pairs_are_aligned_one_by_one_and_short_ones_together() -> None:
    class Reader(Looker):
        def look(self, texts: Sequence[str], targets: Sequence[str] = ()) -> list[Insight]:
            seen.append(len(texts))
            assert len(texts) == len(targets)
            return [replace(one, maps={}) for one in super().look([*texts])]

    seen, counter = list[int](), Counter()
    with supervise(counter):
        found = work.align_pairs(Reader(), [("x" * 400, "y" * 400)] * 3 + [("a b", "c d")] * 50)  # type: ignore[arg-type]
    assert (seen, counter.count, len(found)) == ([1, 1, 1, 50], 4, 53)


def test_parts_are_the_whole() -> None:
    nested: list[Any] = [{"a": {}, "b": [[[1.5, 2], [3]], [[4]]]}, [[[]]], [[1], [2]], [[[["x", {"y": 1}]]]]]
    for content in (*nested, {}, [], "é", None):
        right = encode_json(content)
        assert b"".join(work._encode(content)) == right


def test_flow_pauses_for_each_output() -> None:
    counter = Counter()
    with supervise(counter):
        flow.encoder(torch.rand(2, 3, 13, 13))
    assert counter.count == 13


def test_what_costs_much_is_estimated_to(translating: list[ServedRun]) -> None:
    predictor = predictor_of(translating[0])

    def cost(call: Any, text: str | tuple[str, str], **options: Any) -> int:
        return work.estimate_cost(predictor, ModelCall(call, tuple(options.items())), text)

    short, long = "a b c d", "a b c d " * 40
    assert cost(work.translate, short) < cost(work.look, short) < SLOW_COST
    assert cost(work.look, long) > cost(work.translate, long) + predictor.num_pieces(long) ** 2 / 20
    assert cost(work.look, short, targets=long) > SLOW_COST  # what it looks at, though nothing is searched for
    assert cost(work.translate, long, width=16, num_best=16) == 8 * cost(work.translate, long, width=2)
    assert cost(work.look, short, views=("flow",)) == SLOW_COST
    assert cost(work.align_pairs, (short, short)) < 20
    assert cost(work.align_pairs, ("a " * 200, "b " * 200)) > SLOW_COST  # which takes 35 ms, and never pauses
