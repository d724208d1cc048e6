"""What may be written and when it is enough, for beams and samples alike."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from saccade.data.text.tokenizer import END, PAD, START
from saccade.decoding import BeamOptions, Hypothesis, SamplingOptions, Stepper, beam_search, sample
from saccade.decoding.constraints import before_loop
from saccade.errors import UserError
from steppers import LETTERS, VOCABULARY, Counted, TableModel, sources

WAYS = ["greedy", "beam", "sample"]


def decode(
    way: str, model: Stepper, source: tuple[Tensor, Tensor], prefixes: Sequence[Sequence[int]] = (), **options: float
) -> list[Hypothesis]:
    """The best output of each source."""
    if way == "sample":
        return [best[0] for best in sample(model, *source, SamplingOptions(**options), prefixes)]  # type: ignore[arg-type]
    width = 1 if way == "greedy" else 4
    return [best[0] for best in beam_search(model, *source, BeamOptions(width=width, **options), prefixes)]  # type: ignore[arg-type]


class Cycle(Counted):
    """Writes the letters round and round, and never </s>."""

    def __init__(self, period: int) -> None:
        super().__init__()
        self.table = torch.full((VOCABULARY,) * 4, -20.0)
        for at, letter in enumerate(LETTERS[:period]):
            self.table[:, :, letter, LETTERS[(at + 1) % period]] = 0
        self.table[:, :, START, LETTERS[0]] = 0
        self.table[..., END] = -math.inf


@pytest.mark.parametrize("way", WAYS)
def test_minimum_length(way: str) -> None:
    for hypothesis in decode(way, TableModel(), sources(3, 4, 5), min_length=6):
        assert len(hypothesis.ids) >= 6


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_ngram_is_written_twice(way: str, size: int) -> None:
    model = TableModel()
    model.table[..., END] -= 4
    for hypothesis in decode(way, model, sources(3, 4, 5, 6), no_repeat_ngram=size, max_length_factor=20.0):
        grams = [tuple(hypothesis.ids[at : at + size]) for at in range(len(hypothesis.ids) - size + 1)]
        assert len(grams) == len(set(grams)) > 0


@pytest.mark.parametrize("way", WAYS)
def test_what_has_nothing_left_to_write_ends_before_the_minimum_length(way: str) -> None:
    for hypothesis in decode(way, TableModel(), sources(3, 4), min_length=9, no_repeat_ngram=1):
        assert sorted(hypothesis.ids) == LETTERS
        assert hypothesis.ended
        assert math.isfinite(hypothesis.score)


@pytest.mark.parametrize("way", WAYS)
def test_outputs_begin_with_their_prefix_at_its_true_probability(way: str) -> None:
    model = TableModel()
    prefixes = [[5, 5, 5, 3, 4], [], [6], [4, 4]]
    found = decode(way, model, sources(3, 4, 5, 6), prefixes, no_repeat_ngram=2)
    for source, prefix, hypothesis in zip((3, 4, 5, 6), prefixes, found, strict=True):
        assert hypothesis.ids[: len(prefix)] == prefix
        steps = model.steps(source, hypothesis.ids)[: len(hypothesis.log_probabilities)]
        assert hypothesis.log_probabilities == pytest.approx(steps, abs=1e-5)
    (free,) = decode(way, model, sources(4), no_repeat_ngram=2)
    assert free.ids == found[1].ids  # an empty prefix is none


def test_a_prefix_may_reach_past_the_usual_limit_but_not_past_the_maximum() -> None:
    (found,) = decode("greedy", TableModel(), sources(3), [[3, 4] * 10], max_length_factor=0.5)
    assert found.ids[:20] == [3, 4] * 10
    with pytest.raises(UserError, match="prefixes: one of 20 ids given; it must be shorter than max_length, 20"):
        decode("greedy", TableModel(), sources(3), [[3, 4] * 10], max_length=20)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("period", [1, 2, 3])
def test_a_loop_is_cut_after_its_first_round(way: str, period: int) -> None:
    length = torch.tensor([500, 500])
    source = torch.arange(1000).view(2, 500) % VOCABULARY
    source[:, ::7] = 3 + torch.randint(0, 4, (2, 72))  # no loop of its own
    model = Cycle(period)
    for hypothesis in decode(way, model, (source, length)):
        assert hypothesis.ids == LETTERS[:period]
        assert len(hypothesis.log_probabilities) == period
        assert hypothesis.cut == "max_rounds"
        assert not hypothesis.ended
    assert model.num_steps < 200


@pytest.mark.parametrize("way", WAYS)
def test_a_source_that_loops_may_be_answered_in_kind(way: str) -> None:
    source = torch.tensor([[*[4, 5] * 40, END], [*[4, 5, 6, 3, 6] * 2, END, *[PAD] * 70]])
    first, second = decode(way, Cycle(2), (source, torch.tensor([81, 11])), max_length_factor=1.0, max_length=90)
    assert len(first.ids) == 90
    assert len(second.ids) == 21  # its limit; too short to be a loop
    assert (first.cut, second.cut) == ("max_length", "max_length_factor")
    _, padded = decode(way, Cycle(2), (source, torch.tensor([81, 11])), max_length_factor=9.0)
    assert len(padded.ids) == 2  # padding is no loop
    model = Cycle(2)
    (long,) = decode(way, model, (source[:1], torch.tensor([81])), max_length_factor=50.0)
    assert len(long.ids) == 2
    assert model.num_steps < 1000  # not for ever
    (free,) = decode(way, Cycle(2), (source[1:, :11], torch.tensor([11])), max_length_factor=9.0, max_rounds=0)
    assert len(free.ids) == 109


def test_a_row_of_dots_is_no_loop() -> None:
    assert before_loop([5, 6, *[4] * 31], 8) == 33
    assert before_loop([5, 6, *[4] * 32], 8) == 3
    assert before_loop([9, *range(3, 19)] + [*range(3, 19)] * 7, 8) == 17
    assert before_loop([9, *range(3, 19)] + [*range(3, 19)] * 6, 8) == 113
