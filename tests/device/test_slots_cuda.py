"""Decoding in slots on an accelerator: captured steps, kernels, another precision. Skipped where there is none."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from saccade.decoding import BeamOptions, DecodingEngine, beam_search
from saccade.decoding.continuous import step
from saccade.layers.residual import DroppedOutput, LazySum, Norm
from saccade.models.transformer import BlockSizes, Transformer
from saccade.ops.lazy_norm import LazyNorm, are_few
from saccade.ops.linear import Linear
from slot_cases import BEAMS, assert_beams_updated, assert_same, random_sources, small_model, work_of

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
    writer = DecodingEngine(copy.deepcopy(model).cuda())
    for _ in range(3):  # steps captured, then readings, then both replayed
        assert_same(writer.generate(work, options), expected)


@pytest.mark.parametrize(("width", "num_best", "num_ids", "rounds"), [*BEAMS, (16, 5, 40, 2)])
def test_a_beams_step(width: int, num_best: int, num_ids: int, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from saccade.decoding.continuous.kernels.beam_update import update

    options = BeamOptions(width=width, num_best=num_best, max_rounds=rounds, length_penalty=0.6)
    assert_beams_updated(update, options, num_ids, torch.device("cuda"), monkeypatch)


def test_prefixes() -> None:
    torch.manual_seed(1)
    prefixes = [torch.randint(3, 11, (row % 4,)).tolist() for row in range(12)]
    model, work = small_model(), work_of(random_sources(12), prefixes)
    for width in (1, 3):
        options = BeamOptions(width=width)
        expected = beam_search(model, *work.load(range(12)), options, prefixes)
        assert_same(DecodingEngine(copy.deepcopy(model).cuda()).generate(work, options), expected)


def test_weights_that_change_are_seen() -> None:
    torch.manual_seed(2)
    model, work, options = small_model().cuda(), work_of(random_sources(5)), BeamOptions(width=2)
    writer = DecodingEngine(model)
    for _ in range(2):
        writer.generate(work, options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    assert_same(writer.generate(work, options), beam_search(copy.deepcopy(model).cpu(), *work.load(range(5)), options))


def test_bfloat16_is_near() -> None:
    torch.manual_seed(3)
    model, work, options = small_model().cuda(), work_of(random_sources(64)), BeamOptions(width=4)
    half, whole = (DecodingEngine(model, dtype).generate(work, options) for dtype in (torch.bfloat16, None))
    for mine, theirs in zip(half, whole, strict=True):
        assert mine[0].score == pytest.approx(theirs[0].score, abs=0.2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_rows", [1, 3, 16])
@pytest.mark.parametrize(("width", "num_outputs"), [(512, 1536), (2048, 512), (512, 37_000), (1024, 4096), (20, 37)])
def test_linear_layers_of_few_rows(num_rows: int, width: int, num_outputs: int, dtype: torch.dtype) -> None:
    torch.manual_seed(4)
    layer, norm = Linear(width, num_outputs).to("cuda", dtype), Norm(width).to("cuda", dtype)
    x, answer = (torch.randn(num_rows, 1, width, device="cuda", dtype=dtype) for _ in range(2))
    with torch.no_grad():
        for relu in (True, False):
            lazy = LazySum(x, DroppedOutput(answer))
            normed = norm(lazy)
            assert isinstance(normed, LazyNorm)
            mine = layer(normed, relu=relu)
            total = lazy.total()
            assert total.equal(x + answer)
            read = F.layer_norm(total.double(), (width,), norm.weight.double(), norm.bias.double(), norm.eps).to(dtype)
            true = F.linear(read.double(), layer.weight.double(), layer.bias.double())
            true = true.relu() if relu else true
            bound = 8 * torch.finfo(dtype).eps * true.abs().amax()
            assert (mine - true).abs().amax() <= bound
            if not are_few(read, num_outputs):  # torch's product, which may add up all terms one after the other
                bound += 8 * torch.finfo(torch.float32).eps * true.abs().amax()
            assert (layer(read, relu=relu) - true).abs().amax() <= bound


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_one_sentence_after_the_other(width: int, dtype: torch.dtype | None) -> None:
    torch.manual_seed(5)
    sizes = BlockSizes(256, 4, 512)
    model = Transformer(
        source=300, target_vocabulary=300, sizes=sizes, num_encoder_layers=2, num_decoder_layers=3
    ).eval()
    nn.init.normal_(model.target.weight, std=0.3)
    writer, options = DecodingEngine(copy.deepcopy(model).cuda(), dtype), BeamOptions(width=width, max_length=40)
    for _ in range(6):  # of one shape, so that reading, entering and writing are all replayed
        work = work_of([torch.randint(4, 300, (13,))])
        found, expected = writer.generate(work, options), beam_search(model, *work.load([0]), options)
        if dtype is None:
            assert_same(found, expected)
        else:
            assert found[0][0].score == pytest.approx(expected[0][0].score, rel=2**-7)  # two logits' last bits


def test_kernels_that_begin_early_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(6)
    model, work, options = small_model().cuda(), work_of(random_sources(1)), BeamOptions(width=1)
    early = [DecodingEngine(model).generate(work, options) for _ in range(2)]
    monkeypatch.setattr(step, "start_early", nullcontext)
    for found in early:
        assert found == DecodingEngine(model).generate(work, options)
