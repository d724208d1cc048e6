"""Samples come as often as they are likely, and depend on nothing but seed and source."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch

from saccade.data.text.tokenizer import START
from saccade.decoding import BeamOptions, SamplingOptions, beam_search, sample
from saccade.decoding.sampling import draw_ids, probabilities
from steppers import TableModel, outputs, small_transformer, sources

COUNT = 4000


def table_model(temperature: float = 1.0) -> TableModel:
    """One that itself never writes padding and <s>."""
    model = TableModel()
    model.table[..., : START + 1] = -math.inf
    model.table /= temperature
    return model


@pytest.mark.parametrize("temperature", [1.0, 0.7, 2.0])
def test_outputs_come_as_often_as_they_are_likely(temperature: float) -> None:
    """Pearson's chi-square over the outputs expected at least five times: about one for each of them."""
    torch.manual_seed(5)
    model = table_model()
    torch.manual_seed(5)
    sharpened = table_model(temperature)
    options = SamplingOptions(num_best=COUNT, max_length=4, temperature=temperature)
    (found,) = sample(model, *sources(3), options)
    counts = Counter(tuple(hypothesis.ids) for hypothesis in found if hypothesis.ended)
    expected = {tuple(ids): COUNT * math.exp(sharpened.score(3, ids)) for ids in outputs(options)}
    terms = [(counts[ids] - mean) ** 2 / mean for ids, mean in expected.items() if mean >= 5]
    assert len(terms) > 10
    assert sum(terms) < len(terms) + 4 * math.sqrt(2 * len(terms))
    assert found == sorted(found, reverse=True)
    for hypothesis in found[:50]:  # scores are the model's own, whatever the temperature
        steps = model.steps(3, hypothesis.ids)[: len(hypothesis.log_probabilities)]
        assert hypothesis.log_probabilities == pytest.approx(steps, abs=1e-5)


def test_temperature_top_k_and_top_p_by_hand() -> None:
    log_p = torch.tensor([[0.5, 0.0, 0.3, 0.2]]).log()

    def kept(**options: float) -> list[float]:
        p_NV = probabilities(log_p, SamplingOptions(**options))  # type: ignore[arg-type]
        return (p_NV / p_NV.sum()).tolist()[0]

    assert kept() == pytest.approx([0.5, 0, 0.3, 0.2])
    assert kept(temperature=0.5) == pytest.approx([0.25 / 0.38, 0, 0.09 / 0.38, 0.04 / 0.38])
    assert kept(temperature=1e-30) == pytest.approx([1, 0, 0, 0])
    assert kept(top_k=2) == pytest.approx([0.625, 0, 0.375, 0])
    assert kept(top_k=9) == kept()
    assert kept(top_p=0.4) == pytest.approx([1, 0, 0, 0])
    assert kept(top_p=0.6) == pytest.approx([0.625, 0, 0.375, 0])
    assert kept(top_k=2, top_p=0.6) == pytest.approx([1, 0, 0, 0])  # of the two, the first holds 0.625


def test_draws_by_hand() -> None:
    p_NV = torch.tensor([[0.0, 0.5, 0.0, 0.25, 0.25, 0.0]], dtype=torch.float64).expand(5, -1)
    uniform_N = torch.tensor([0.0, 0.49, 0.5, 0.75, 1 - 2**-24], dtype=torch.float64)
    assert draw_ids(p_NV, uniform_N).tolist() == [1, 1, 3, 4, 4]


def test_only_the_likeliest_is_greedy() -> None:
    model = TableModel()
    (greedy,) = zip(*beam_search(model, *sources(3, 4, 5, 6), BeamOptions()), strict=True)
    (drawn_once,) = zip(*sample(model, *sources(3, 4, 5, 6), SamplingOptions(top_k=1)), strict=True)
    assert drawn_once == greedy


def test_a_sample_depends_on_seed_and_source_alone() -> None:
    model = small_transformer()
    source, length = torch.randint(4, 11, (5, 7)), torch.tensor([7, 3, 5, 3, 6])
    source[3, :3] = source[1, :3]
    options = SamplingOptions(num_best=3, temperature=3.0, min_length=70)  # past one block of random numbers
    together = sample(model, source, length, options)
    for row, size in enumerate(length.tolist()):
        (alone,) = sample(model, source[row : row + 1, :size], length[row : row + 1], options)
        assert [h.ids for h in alone] == [h.ids for h in together[row]]
    assert [h.ids for h in together[1]] == [h.ids for h in together[3]]
    assert len({tuple(h.ids) for best in together for h in best}) == 12
    (other,) = sample(model, source[:1], length[:1], replace(options, seed=2))
    assert not {tuple(h.ids) for h in other} & {tuple(h.ids) for h in together[0]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, r"temperature: 0.0 given; it must be above 0"),
        ({"temperature": math.nan}, r"temperature: nan given"),
        ({"top_p": 0.0}, r"top_p: 0.0 given; it must be above 0 and at most 1"),
        ({"top_p": 1.1}, r"top_p: 1.1 given"),
        ({"top_k": -1}, r"top_k: -1 given; it must be 0 or more"),
        ({"seed": -1}, r"seed: -1 given; it must be 0 or more"),
        ({"min_length": -1}, r"min_length: -1 given; it must be 0 or more"),
    ],
)
def test_mistakes_are_named(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplingOptions(**options)  # type: ignore[arg-type]
