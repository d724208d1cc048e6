"""Linear layers of few rows, interpreted: what torch says, of rows or of a norm that nobody has computed yet."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.attention import MultiHeadAttention
from saccade.decoding import BeamOptions, DecodingEngine, beam_search
from saccade.layers.residual import DroppedOutput, LazySum, Norm
from saccade.models.transformer import BlockSizes, Residual
from saccade.ops import lazy_norm as module
from saccade.ops.kernels.few_rows import product
from saccade.ops.lazy_norm import FEW, LazyNorm
from saccade.ops.linear import Linear
from slot_cases import assert_same, small_model, work_of

SHAPES: list[Any] = [((1, 1, 16), 64), ((3, 1, 20), 37), ((5, 512), 9), ((16, 2048), 5), ((2, 4100), 3), ((1, 5), 1)]


def plain(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
    y = F.linear(x, weight, bias)
    return F.relu(y) if relu else y


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("is_biased", [True, False])
@pytest.mark.parametrize(("shape", "num_outputs"), SHAPES)
def test_it_is_as_exact_as_torch(
    shape: tuple[int, ...], num_outputs: int, is_biased: bool, relu: bool, dtype: torch.dtype
) -> None:
    sizes = (shape, (num_outputs, shape[-1]), (num_outputs,))
    x, weight, bias = (torch.randn(size).to(dtype) for size in sizes)
    given: Any = (x, weight, bias if is_biased else None, relu)
    wide: Any = (x.double(), weight.double(), bias.double() if is_biased else None, relu)
    mine, other, true = product(*given), plain(*given), plain(*wide)
    assert (mine.shape, mine.dtype) == (other.shape, dtype)
    bound = 3 * (other - true).abs().amax() + 8 * torch.finfo(dtype).eps * true.abs().amax()
    assert (mine - true).abs().amax() <= bound


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize(("shape", "num_outputs"), SHAPES)
def test_a_norm_before_it(shape: tuple[int, ...], num_outputs: int, adds: bool, dtype: torch.dtype) -> None:
    x, answer, total = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype) if adds else None, torch.zeros(shape)
    scale, shift = torch.randn(shape[-1]).to(dtype), torch.randn(shape[-1]).to(dtype)
    weight, total = torch.randn(num_outputs, shape[-1]).to(dtype), total.to(dtype)
    mine = product(LazyNorm(x, answer, total, scale, shift, 1e-5), weight, None, False)
    summed = x if answer is None else x + answer
    if answer is not None:
        torch.testing.assert_close(total, summed, atol=0.0, rtol=2 * torch.finfo(dtype).eps)  # bits are cut off
        summed = total
    normed = F.layer_norm(summed.double(), shape[-1:], scale.double(), shift.double(), 1e-5)
    true = normed @ weight.double().mT
    most = normed.abs() @ weight.double().abs().mT  # every number of the norm is rounded, and so is what comes out
    assert ((mine - true).abs() <= 4 * torch.finfo(dtype).eps * (most / 2 + true.abs())).all()


@pytest.fixture
def _few_are_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_fused", lambda x: x.is_floating_point())


@pytest.mark.usefixtures("_few_are_fused")
def test_a_lazy_sum_is_computed_by_the_layer_that_reads_it() -> None:
    residual, layer = Residual(BlockSizes(8, 2, 16)).eval(), Linear(8, 8)
    x, output = torch.randn(2, 1, 8), torch.randn(2, 1, 8)
    with torch.no_grad():
        lazy = LazySum(x, DroppedOutput(output))
        normed = residual.norm(lazy)
        assert isinstance(normed, LazyNorm)
        layer(normed)
        torch.testing.assert_close(lazy.total(), x + output)
        few = residual(LazySum(x, DroppedOutput(output)), layer)
        with torch.enable_grad():
            whole = residual(LazySum(x, DroppedOutput(output)), layer)
    torch.testing.assert_close(few.total(), whole.total(), atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("_few_are_fused")
def test_many_rows_and_those_that_learn_have_theirs_computed() -> None:
    norm = Norm(8)
    assert isinstance(norm(LazySum(torch.randn(FEW, 1, 8))), Tensor)
    with torch.no_grad():
        assert isinstance(norm(LazySum(torch.randn(FEW, 1, 8))), LazyNorm)
        assert isinstance(norm(LazySum(torch.randn(FEW + 1, 1, 8))), Tensor)
        assert isinstance(norm(LazySum(torch.randn(0, 1, 8))), Tensor)
        assert not module.are_few(torch.randn(1, module.WIDEST + 1))
        assert not module.are_few(torch.randn(module.FEWER + 1, 8), module.MANY_OUTPUTS + 1)
        with torch.autocast("cpu", torch.bfloat16):
            assert isinstance(norm(LazySum(torch.randn(1, 1, 8))), Tensor)


@pytest.mark.parametrize("how", [{}, {"activation": "swiglu"}, {"norm": "post"}, {"positions": "rotary"}])
def test_sentences_are_written_as_before(how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model, work = small_model(**how), work_of([torch.randint(4, 11, (length,)) for length in (3, 7)])
    options = BeamOptions(width=2, num_best=2, max_length=6)
    expected = beam_search(model, *work.load(range(2)), options)
    monkeypatch.setattr(module, "is_fused", lambda x: x.is_floating_point())
    assert_same(DecodingEngine(model).generate(work, options), expected)
    for part in model.modules():
        if isinstance(part, MultiHeadAttention):
            part.join()
    assert_same(DecodingEngine(model).generate(work, options), expected)
