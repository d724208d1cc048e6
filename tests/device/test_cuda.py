"""The same laws on an accelerator. Skipped where there is none; the log of the last run is in docs/log.md."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from cases import DTYPES, MASKS, NORMALIZER_NAMES, SCORE_NAMES, build_score, random_inputs
from saccade import MultiHeadAttention, attend, explain, masks
from saccade.attention import Mask

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
EDGES = [name for name in MASKS if name not in ("where", "window_beyond")]


def on_device(mask_name: str, batch: int, num_queries: int, num_keys: int) -> Mask:
    with torch.device("cuda"):
        return MASKS[mask_name](batch, num_queries, num_keys)


def results(inputs: list[Tensor], score: torch.nn.Module, dtype: torch.dtype, **options: Any) -> list[Tensor]:
    score = copy.deepcopy(score).to("cuda", dtype)
    tensors = [x.detach().to("cuda", dtype).requires_grad_() for x in inputs]
    output = attend(*tensors, score=score, **options)
    leaves = [*tensors, *score.parameters()]
    gradients = torch.autograd.grad(output.float().square().sum(), leaves, allow_unused=True)
    found = [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, leaves, strict=True)]
    return [output.detach().double(), *(gradient.double() for gradient in found)]


@pytest.mark.parametrize("score_name", SCORE_NAMES)
@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax"])
@pytest.mark.parametrize("mask_name", EDGES)
@pytest.mark.parametrize("dtype_name", list(DTYPES))
def test_auto_is_as_exact_as_the_reference(score_name: str, normalizer: str, mask_name: str, dtype_name: str) -> None:
    dtype, score = DTYPES[dtype_name], build_score(score_name, 16)
    inputs = [x.to(dtype) for x in random_inputs(3, num_queries=67, num_keys=131, width=16, value_width=24)]
    options: dict[str, Any] = {"normalizer": normalizer, "mask": on_device(mask_name, 3, 67, 131)}
    exact = results(inputs, score.to(dtype), torch.float64, backend="reference", **options)
    plain = results(inputs, score, dtype, backend="reference", **options)
    fused = results(inputs, score, dtype, **options)
    assert all(tensor.isfinite().all() for tensor in fused)
    if normalizer == "sparsemax" and dtype.itemsize == 2:
        return  # keys at the edge of the support may fall on either side
    rounding = torch.finfo(dtype).eps * max(float(true.abs().amax()) for true in exact)
    for true, ours, theirs in zip(exact, fused, plain, strict=True):
        bound = 3 * (theirs - true).abs().amax() + 128 * rounding  # w's gradient sums 3 x 131 terms
        assert (ours - true).abs().amax() <= bound


@pytest.mark.parametrize("dtype_name", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("score_name", SCORE_NAMES)
def test_empty_rows_give_zeros_and_finite_gradients(score_name: str, dtype_name: str) -> None:
    dtype = DTYPES[dtype_name]
    score = build_score(score_name, 16).to("cuda", dtype)
    inputs = [
        x.to("cuda", dtype).requires_grad_()
        for x in random_inputs(2, 3, num_queries=9, num_keys=17, width=16, value_width=16)
    ]
    allowed = torch.ones(2, 3, 9, 17, dtype=torch.bool, device="cuda")
    allowed[0, :, 4] = allowed[1] = False
    output = attend(*inputs, score=score, mask=allowed)
    assert (output[~allowed.any(-1)] == 0).all()
    gradients = torch.autograd.grad(output.float().sum(), inputs, allow_unused=True)
    assert all(gradient is None or gradient.isfinite().all() for gradient in gradients)


COMPILED = [*((name, "softmax") for name in SCORE_NAMES), *(("scaled_dot", name) for name in NORMALIZER_NAMES[1:])]


@pytest.mark.parametrize(("score_name", "normalizer"), COMPILED)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_compiled_equals_eager(score_name: str, normalizer: str) -> None:
    score = build_score(score_name, 16).to("cuda", torch.float32)
    inputs = [
        x.to("cuda", torch.float32) for x in random_inputs(3, num_queries=33, num_keys=65, width=16, value_width=16)
    ]
    mask = on_device("causal_and_padding", 3, 33, 65)
    torch._dynamo.reset()
    options: dict[str, Any] = {"score": score, "normalizer": normalizer, "mask": mask}
    compiled = torch.compile(lambda *x: attend(*x, **options), fullgraph=True)
    torch.testing.assert_close(compiled(*inputs), attend(*inputs, **options), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("score_name", SCORE_NAMES)
def test_autocast(score_name: str) -> None:
    score = build_score(score_name, 16).to("cuda", torch.float32)
    inputs = [
        x.to("cuda", torch.float32) for x in random_inputs(3, num_queries=33, num_keys=65, width=16, value_width=16)
    ]
    with torch.autocast("cuda", torch.bfloat16):
        cast = attend(*inputs, score=score)
    torch.testing.assert_close(cast.float(), attend(*inputs, score=score), atol=0.05, rtol=0.05)


def test_a_long_window_and_heads() -> None:
    attention = MultiHeadAttention(64, 4, num_key_value_heads=2).cuda()
    x = torch.randn(2, 1000, 64, device="cuda")
    mask = masks.window(16) & masks.padding(torch.tensor([1000, 300], device="cuda"))
    torch.testing.assert_close(
        attention(x, mask=mask), attention(x, mask=mask, backend="reference"), atol=1e-4, rtol=1e-4
    )
    torch.testing.assert_close(attention(x, mask=mask, backend="window"), attention(x, mask=mask), atol=1e-4, rtol=1e-4)
    long = torch.randn(1, 8, 16_384, 64, device="cuda")
    assert explain(long, long, long, mask=masks.window(128)).backend == "window"
