"""Decoding in slots on an accelerator: captured steps, kernels, another precision. Skipped where there is none."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from saccade.decoding import BeamOptions, Writer, beam_search
from slot_cases import assert_same, random_sources, small_model, work_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
POSITIONS = ("sinusoidal", "learned", "rotary", "relative")


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize(
    "how", [{}, {"min_length": 4}, {"no_repeat_ngram": 2}, {"max_rounds": 2, "max_length_factor": 6.0}]
)
def test_as_on_the_cpu(positions: str, width: int, how: dict[str, Any]) -> None:
    torch.manual_seed(width)
    model, work = small_model(positions=positions), work_of(random_sources(40))
    options = BeamOptions(width=width, num_best=width, **how)
    expected = beam_search(model, *work.load(range(40)), options)
    writer = Writer(copy.deepcopy(model).cuda())
    for _ in range(3):  # steps captured, then readings, then both replayed
        assert_same(writer.write(work, options), expected)


def test_prefixes() -> None:
    torch.manual_seed(1)
    prefixes = [torch.randint(3, 11, (row % 4,)).tolist() for row in range(12)]
    model, work = small_model(), work_of(random_sources(12), prefixes)
    for width in (1, 3):
        options = BeamOptions(width=width)
        expected = beam_search(model, *work.load(range(12)), options, prefixes)
        assert_same(Writer(copy.deepcopy(model).cuda()).write(work, options), expected)


def test_weights_that_change_are_seen() -> None:
    torch.manual_seed(2)
    model, work, options = small_model().cuda(), work_of(random_sources(5)), BeamOptions(width=2)
    writer = Writer(model)
    for _ in range(2):
        writer.write(work, options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    assert_same(writer.write(work, options), beam_search(copy.deepcopy(model).cpu(), *work.load(range(5)), options))


def test_bfloat16_is_near() -> None:
    torch.manual_seed(3)
    model, work, options = small_model().cuda(), work_of(random_sources(64)), BeamOptions(width=4)
    half, whole = (Writer(model, dtype).write(work, options) for dtype in (torch.bfloat16, None))
    for mine, theirs in zip(half, whole, strict=True):
        assert mine[0].score == pytest.approx(theirs[0].score, abs=0.2)
