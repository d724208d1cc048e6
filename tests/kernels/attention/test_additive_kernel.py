"""The CUDA kernels of additive attention, compiled for this CPU: as exact as the reference, whatever the range."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cases import DTYPES, MASKS, build_score, random_inputs
from kernels.host_kernels import COMPILER, HostCompiler, HostModule
from saccade import attend, explain, masks
from saccade.attention import Mask, Score
from saccade.attention.call import Call, resolve
from saccade.attention.kernels.additive import (
    fractions,
    project,
    single,
    sources,
)
from saccade.attention.kernels.additive import (
    fused as additive_fused,
)
from saccade.attention.kernels.additive import (
    gradient as additive_gradient,
)
from saccade.attention.kernels.additive import (
    series as additive_series,
)
from saccade.attention.kernels.additive import (
    weights as additive_kept,
)
from saccade.attention.kernels.additive.fractions import Tiling
from saccade.attention.kernels.additive.scope import Dropout, Scope
from saccade.attention.kernels.additive.tiles import additive_score
from saccade.attention.scores import Additive
from saccade.ops.kernels import nvrtc

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no g++ to compile the kernels for a CPU")


@pytest.fixture(scope="module")
def compiler() -> HostCompiler:
    return HostCompiler(ROOT / "build" / "host_kernels")


@pytest.fixture(autouse=True)
def on_the_cpu(compiler: HostCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "load", compiler)
    monkeypatch.setattr(nvrtc, "refuses", lambda device: None)


def plain(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    hidden = torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3))
    return (hidden @ v[:, None, :, None]).squeeze(-1)


def gradients(*tensors: Tensor, add: bool = False) -> Tensor:
    launch, of_v = additive_gradient.gradients(*tensors, add=add)
    launch()
    return of_v


def results(
    inputs: list[Tensor], score: Score, mask: Mask | None, dtype: torch.dtype, backend: str = "reference"
) -> list[Tensor]:
    score = copy.deepcopy(score).to(dtype)
    tensors = [x.detach().to(dtype).requires_grad_() for x in inputs]
    output = attend(*tensors, score=score, mask=mask, backend=backend)
    gradients = torch.autograd.grad(output.float().square().sum(), [*tensors, *score.parameters()])
    return [output.detach().double(), *(gradient.double() for gradient in gradients)]


@pytest.mark.parametrize("mask_name", list(MASKS))
def test_forward_and_backward_are_as_exact_as_the_reference(mask_name: str) -> None:
    for name, dtype in DTYPES.items():
        if name == "float64":
            continue
        score = build_score("additive", 21).to(dtype)
        inputs = [x.to(dtype) for x in random_inputs(2, num_queries=35, num_keys=70, width=21, value_width=19)]
        mask = MASKS[mask_name](2, 35, 70)
        assert "one kernel" in explain(*inputs, score=score, mask=mask).why
        exact = results(inputs, score, mask, torch.float64)
        reference = results(inputs, score, mask, dtype)
        fused = results(inputs, score, mask, dtype, "additive")
        rounding = torch.finfo(dtype).eps * max(float(true.abs().amax()) for true in exact)
        for index, (true, ours, theirs) in enumerate(zip(exact, fused, reference, strict=True)):
            bound = 3 * (theirs - true).abs().amax() + 64 * rounding
            if index == 0:
                bound = 2 * (theirs - true).abs().amax() + 8 * rounding
            assert (ours - true).abs().amax() <= bound


@pytest.mark.parametrize("mask_name", ["full", "padding", "dense", "window_beyond"])
def test_one_query_is_as_exact_as_the_reference(mask_name: str) -> None:
    for (name, dtype), width in zip(DTYPES.items(), (0, 300, 70, 21), strict=True):
        if name == "float64":
            continue
        score = build_score("additive", width).to(dtype)
        inputs = [x.to(dtype) for x in random_inputs(3, num_queries=1, num_keys=37, width=width, value_width=width)]
        mask = MASKS[mask_name](3, 1, 37)
        assert "one small kernel" in explain(*inputs, score=score, mask=mask).why
        exact = results(inputs, score, mask, torch.float64)
        reference = results(inputs, score, mask, dtype)
        fused = results(inputs, score, mask, dtype, "additive")
        rounding = torch.finfo(dtype).eps * max(float(true.abs().amax()) for true in exact)
        for true, ours, theirs in zip(exact, fused, reference, strict=True):
            assert (ours - true).abs().amax() <= 3 * (theirs - true).abs().amax() + 16 * rounding


def looked(
    inputs: tuple[Tensor, Tensor, Tensor], score: Score, mask: Mask | None, dtype: torch.dtype, backend: str
) -> list[Tensor]:
    query, memory, value = (x.to(dtype) for x in inputs)
    value = value.nan_to_num() if backend == "reference" else value
    how: dict[str, Any] = {"memory": memory, "score": copy.deepcopy(score).to(dtype), "mask": mask, "backend": backend}
    with torch.no_grad():
        output, weights = attend(query, None, value, return_weights=True, **how)
        if backend == "auto":
            assert torch.equal(attend(query, None, value, **how), output)
    return [output.double(), weights.double()]


@pytest.mark.parametrize(("num_keys", "width", "value_width"), [(1, 3, 7), (30, 132, 100), (70, 40, 520), (9, 7, 2200)])
@pytest.mark.parametrize("is_padded", [False, True])
def test_a_decoders_step(num_keys: int, width: int, value_width: int, is_padded: bool) -> None:
    length = torch.tensor([num_keys, 1, (num_keys + 1) // 2, 0, num_keys]) if is_padded else None
    for name, dtype in DTYPES.items():
        if name == "float64":
            continue
        score = build_score("additive", 12, hidden_width=width).to(dtype)
        query, memory, value = (
            torch.randn(5, *shape).to(dtype) for shape in ((1, 12), (num_keys, width), (num_keys, value_width))
        )
        if length is not None:
            value[1, 1:] = math.nan  # nobody looks there
        mask = None if length is None else masks.padding(length)

        inputs = (query, memory, value)
        exact, theirs = (looked(inputs, score, mask, kind, "reference") for kind in (torch.float64, dtype))
        ours = looked(inputs, score, mask, dtype, "auto")
        for true, one, other in zip(exact, theirs, ours, strict=True):
            bound = 3 * (one - true).abs().amax() + 8 * torch.finfo(dtype).eps * true.abs().amax()
            assert (other - true).abs().amax() <= bound
        if length is not None:
            assert (ours[0][3] == 0).all()


@pytest.mark.parametrize("shape", [(2, 2), (2, 3), (3, 2, 2)])
@pytest.mark.parametrize("is_strided", [False, True])
def test_a_decoders_step_of_several_axes(shape: tuple[int, ...], is_strided: bool) -> None:
    score = build_score("additive", 12, hidden_width=5)
    if is_strided:
        score.v = torch.nn.Parameter(torch.randn(5, 2)[:, 0])
    query, memory, value = (torch.randn(*shape, *own) for own in ((1, 12), (6, 5), (6, 7)))
    mask = masks.padding(torch.tensor([2, 6, 4][: shape[0]]))
    theirs, ours = (looked((query, memory, value), score, mask, torch.float32, kind) for kind in ("reference", "auto"))
    for one, other in zip(theirs, ours, strict=True):
        torch.testing.assert_close(other, one, atol=1e-5, rtol=1e-4)


def projected(query: Tensor, weight: Tensor) -> Tensor:
    module = nvrtc.load(single.FILES, {"INPUT": fractions.INPUTS[query.dtype]}, query.device)
    made, parts = project.project(query, weight, module)
    assert parts == len(made)
    assert parts > 1 or query.shape[-1] < 64
    return made.double().sum(0)


@pytest.mark.parametrize(("count", "width", "num_outputs"), [(1, 5, 3), (70, 300, 45), (128, 516, 40), (3, 1032, 33)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_few_queries_are_projected_in_parts(count: int, width: int, num_outputs: int, dtype: torch.dtype) -> None:
    query, weight = torch.randn(count, 1, width).to(dtype), torch.randn(num_outputs, width).to(dtype)
    exact = query.squeeze(1).double() @ weight.double().mT
    torch.testing.assert_close(projected(query, weight), exact, atol=2e-6 * width**0.5, rtol=1e-6)


@pytest.mark.parametrize("centre", [0.0, 1.0])
def test_projections_are_as_exact_as_plain_ones(centre: float) -> None:
    query, weight = torch.randn(40, 1, 2000) + centre, torch.randn(40, 2000) + centre
    exact = query.squeeze(1).double() @ weight.double().mT
    ours, plainly = projected(query, weight) - exact, (query.squeeze(1) @ weight.mT).double() - exact
    assert ours.square().mean() <= plainly.square().mean()


@pytest.mark.parametrize("size", [3.4028e38, math.inf, math.nan])
def test_what_is_not_finite_is_projected_as_it_is_written(size: float) -> None:
    query, weight = torch.randn(5, 1, 130) / 1000, torch.randn(9, 130) / 1000
    query[1, 0, 3] = weight[2, 100] = size
    weight[4, 3] = 0
    plainly = (query.squeeze(1).double() @ weight.double().mT).float().double()
    torch.testing.assert_close(projected(query, weight), plainly, equal_nan=True, atol=1e-5, rtol=1e-5)


STEPS = [
    (2, 30, 132, 260),
    (1, 70, 1500, 300),
    (3, 1100, 36, 64),
    (40, 5, 8, 150),
    (2, 9, 1027, 130),
    (66, 17, 64, 128),
]


@pytest.mark.parametrize("has_clusters", [False, True])
@pytest.mark.parametrize(("count", "num_keys", "width", "value_width"), STEPS)
def test_blocks_of_an_entry_share_its_keys(
    count: int, num_keys: int, width: int, value_width: int, has_clusters: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HostModule, "has_clusters", has_clusters)
    query, key, v = torch.randn(count, 1, width), torch.randn(count, num_keys, width), torch.randn(1, width)
    value, mask = torch.randn(count, num_keys, value_width), torch.rand(count, 1, 1, num_keys) < 0.8
    mask[0, ..., : num_keys // 2 + 1] = False  # all keys of the first block
    output, weights = single.additive_single(query, key, v, value, mask, None, None, 1, 0.0, None)
    score = plain(query.double(), key.double(), v.double().expand(count, -1)).masked_fill(~mask.squeeze(1), -math.inf)
    expected = score.softmax(-1).nan_to_num()
    torch.testing.assert_close(weights.double(), expected.squeeze(1), atol=3e-6, rtol=1e-4)
    torch.testing.assert_close(output.double(), expected @ value.double(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("count", [1, 40, 200])
def test_blocks_share_the_values_of_few_entries(count: int) -> None:
    query, key, v = torch.randn(count, 1, 8), torch.randn(count, 5, 8), torch.randn(1, 8)
    value = torch.randn(count, 5, 150)
    output, weights = single.additive_single(query, key, v, value, None, None, None, 1, 0.0, None)
    expected = plain(query, key, v.expand(count, -1)).softmax(-1)
    torch.testing.assert_close(weights, expected.squeeze(1), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(output, expected @ value, atol=1e-5, rtol=1e-5)


def test_the_weights_of_one_query_learn_too() -> None:
    score = build_score("additive", 9, heads=(2,)).float()
    inputs = [torch.randn(3, 2, steps, 9, requires_grad=True) for steps in (1, 11, 11)]
    leaves = [*inputs, *score.parameters()]
    found = []
    for backend in ("additive", "reference"):
        output, weights = attend(*inputs, score=score, return_weights=True, backend=backend)
        loss = output.square().sum() + weights.square().sum()
        found.append([weights, *torch.autograd.grad(loss, leaves)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("size", [1.0, 1e4, 1e30, math.inf, math.nan])
def test_one_query_of_any_range(size: float) -> None:
    query, key, value, v = torch.randn(2, 1, 140), torch.randn(2, 6, 140), torch.randn(2, 6, 3), torch.randn(1, 140)
    query[0, 0, 3], key[0, 2, 3], key[1, 1, 5] = size, -size + 0.5, size
    output, weights = single.additive_single(query, key, v, value, None, None, None, 1, 0.0, None)
    expected = plain(query, key, v.expand(2, -1)).softmax(-1)
    torch.testing.assert_close(weights, expected.squeeze(1), equal_nan=True, atol=2e-6, rtol=1e-4)
    torch.testing.assert_close(output, expected @ value, equal_nan=True, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1, 1), (3, 1, 65, 5, 33), (2, 67, 3, 130, 8), (2, 3, 129, 66, 65)])
@pytest.mark.parametrize("operator", [additive_fused.additive_attention, additive_kept.kept_attention])
def test_any_size(operator: additive_fused.Operator, shape: tuple[int, int, int, int, int]) -> None:
    count, num_queries, num_keys, width, value_width = shape
    sizes = [(count, num_queries, width), (count, num_keys, width), (count, width), (count, num_keys, value_width)]
    inputs = [torch.randn(*size, requires_grad=True) for size in sizes]
    query, key, v, value = inputs
    ours, kept = operator(*inputs, None, None, None, 1, 0.0, None)
    score = plain(query.double(), key.double(), v.double())
    theirs = score.softmax(-1) @ value.double()
    torch.testing.assert_close(ours.double(), theirs, atol=3e-6, rtol=1e-5)
    expected = score.softmax(-1) if kept.dim() == 3 else score.logsumexp(-1)
    torch.testing.assert_close(kept.double(), expected, atol=1e-5, rtol=1e-5)
    direction = torch.randn_like(ours)
    found = torch.autograd.grad(ours, inputs, direction)
    for one, other in zip(found, torch.autograd.grad(theirs, inputs, direction.double()), strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=2e-4)


def test_values_may_have_no_width() -> None:
    inputs = [torch.randn(2, 5, 8), torch.randn(2, 3, 8), torch.randn(2, 3, 0)]
    for score in (Additive(8, 8), Additive(8, 8, heads=(2,))):
        tensors = [x[:, None].expand(-1, *score.heads, -1, -1) for x in inputs] if score.heads else inputs
        output = attend(*tensors, score=score, backend="additive")
        torch.testing.assert_close(output, attend(*tensors, score=score, backend="reference"))


@pytest.mark.parametrize("tiling", [Tiling(1, 1, 1), Tiling(1, 2, 4), Tiling(2, 2, 1), Tiling(2, 2, 2)])
def test_every_tiling_gives_the_same(tiling: Tiling) -> None:
    query, key, value, v = torch.randn(1, 70, 50), torch.randn(1, 90, 50), torch.randn(1, 90, 40), torch.randn(1, 50)
    prepared = fractions.prepare(query, key, v)
    output, _ = fractions.attend(prepared, value, Scope(high=3), Dropout(), tiling)
    allowed = masks.causal(3).dense(70, 90)
    score = plain(query.double(), key.double(), v.double()).masked_fill(~allowed, -math.inf)
    torch.testing.assert_close(output.double(), score.softmax(-1) @ value.double(), atol=2e-5, rtol=1e-5)


def kept_of_few_keys(
    query: Tensor, key: Tensor, v: Tensor, value: Tensor, allowed: Tensor | None = None, high: int | None = None
) -> tuple[Tensor, Tensor]:
    """By the kernel that prepares nothing, which keeps the weights too."""
    assert fractions.tiling_to_attend_raw(query, key, value) is not None
    found: tuple[Tensor, Tensor] = additive_kept.kept_attention(query, key, v, value, allowed, None, high, 1, 0.0, None)
    return found


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 4, 1), (3, 40, 30, 72, 24), (133, 3, 32, 8, 33), (2, 33, 64, 148, 40), (133, 2, 61, 72, 32)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_few_keys_are_not_prepared(sizes: tuple[int, int, int, int, int], dtype: torch.dtype) -> None:
    count, num_queries, num_keys, width, value_width = sizes
    shapes = [(count, num_queries, width), (count, num_keys, width), (count, num_keys, value_width)]
    query, key, value = (torch.randn(*shape).to(dtype) for shape in shapes)
    v, allowed = torch.randn(count, width), torch.rand(count, 1, num_queries, num_keys) < 0.7
    allowed[-1] = False  # an entry, and most likely some rows, may see nothing
    for mask, high in ((None, None), (allowed, None), (None, -2)):
        score = plain(query.double(), key.double(), v.double())
        ahead = torch.arange(num_keys) - torch.arange(num_queries)[:, None]
        hidden = ahead > (num_keys if high is None else high) if mask is None else ~allowed[:, 0]
        exact = score.masked_fill(hidden, -math.inf).softmax(-1).nan_to_num(0.0)
        output, kept = kept_of_few_keys(query, key, v, value, mask, high)
        torch.testing.assert_close(kept.double(), exact, atol=2e-5, rtol=2e-5)
        rounding = torch.finfo(dtype).eps * (1 if dtype == torch.float32 else 4)
        torch.testing.assert_close(output.double(), exact @ value.double(), atol=2e-5 + rounding, rtol=2e-5 + rounding)
        again, _ = additive_fused.additive_attention(query, key, v, value, mask, None, high, 1, 0.0, None)
        torch.testing.assert_close(again, output, atol=0, rtol=0)


@pytest.mark.parametrize("size", [1e-4, 3.0, 5.0, 8.0, 20.0, 43.0, 1e4, 1e30, math.inf, math.nan])
def test_no_range_of_few_keys_gives_a_wrong_answer(size: float) -> None:
    for centre, spread in ((size, 1.0), (0.0, size)):
        query, key = centre + spread * torch.randn(1, 37, 24), -centre + spread * torch.randn(1, 33, 24)
        v, value = torch.randn(1, 24), torch.randn(1, 33, 8)
        v[0, 3:9] = 0
        exact = plain(query.double(), key.double(), v.double()).softmax(-1)
        output, kept = kept_of_few_keys(query, key, v, value)
        theirs = plain(query, key, v).softmax(-1)
        if not math.isfinite(size):
            torch.testing.assert_close(kept, theirs, equal_nan=True)
            continue
        assert (kept - exact).abs().max() <= 2 * (theirs - exact).abs().max() + 3e-6
        torch.testing.assert_close(output.double(), exact @ value.double(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_v_of_few_keys_may_be_anything(value: float) -> None:
    query, key, v = torch.randn(1, 3, 4), torch.randn(1, 4, 4), torch.randn(1, 4)
    v[0, 1] = value
    _, kept = kept_of_few_keys(query, key, v, torch.randn(1, 4, 3))
    torch.testing.assert_close(kept, plain(query, key, v).softmax(-1), equal_nan=True)


@pytest.mark.parametrize("centre", [0.0, 1.0])
def test_many_keys_are_summed_as_exactly_as_in_float32(centre: float) -> None:
    query, key, v, value = (torch.randn(*size) for size in ((1, 8, 4), (1, 3072, 4), (1, 4), (1, 3072, 32)))
    value += centre
    output, _ = additive_fused.additive_attention(query, key, v, value, None, None, None, 1, 0.0, None)
    exact = plain(query.double(), key.double(), v.double()).softmax(-1) @ value.double()
    ours, theirs = ((x.double() - exact).square().mean() for x in (output, plain(query, key, v).softmax(-1) @ value))
    assert ours <= 4 * theirs


@pytest.mark.parametrize("size", [1e-4, 1.0, 8.0, 20.0, 43.0, 60.0, 1e4, 1e30])
def test_no_range_gives_a_wrong_answer(size: float) -> None:
    # queries near +size and keys near -size, so that their sums are where tanh bends; and the same far from it
    for centre, spread in ((size, 1.0), (0.0, size)):
        query = (centre + spread * torch.randn(1, 37, 23)).requires_grad_()
        key = (-centre + spread * torch.randn(1, 33, 23)).requires_grad_()
        v = torch.randn(1, 23)
        exact = plain(query.double(), key.double(), v.double())
        ours, theirs = additive_score(query, key, v), plain(query, key, v)
        assert (ours - exact).abs().max() <= 2 * (theirs - exact).abs().max() + 3e-6
        gradients = torch.autograd.grad(ours.sum(), (query, key))
        for one, other in zip(gradients, torch.autograd.grad(theirs.sum(), (query, key)), strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "sizes", [(2, 21, 30, 70), (2, 40, 61, 65), (1, 200, 140, 6), (1, 130, 300, 8), (2, 9, 132, 129)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_one_block_or_many(sizes: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    count, num_queries, num_keys, width = sizes
    query, key = (torch.randn(count, steps, width).to(dtype) for steps in (num_queries, num_keys))
    query[:, 20:, 1] *= 30  # some tiles are beyond the range of exponentials
    v, g = torch.randn(count, width), torch.randn(count, num_queries, num_keys)
    leaves = [x.double().requires_grad_() for x in (query, key, v)]
    exact = torch.autograd.grad(plain(*leaves), leaves, g.double())
    of_query, of_key, again = torch.empty_like(query), torch.empty_like(key), torch.ones_like(key, dtype=torch.float32)
    of_v = gradients(query, key, v, g, of_query, of_key)
    gradients(query, key, v, g, of_query, again, add=True)
    for one, other in zip((of_query, of_key, of_v), exact, strict=True):
        rounding = torch.finfo(one.dtype).eps * other.abs().amax()
        torch.testing.assert_close(one.double(), other, atol=float(rounding) + 1e-4, rtol=1e-4)
    torch.testing.assert_close(again.double(), 1 + exact[1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("num_queries", [256, 530])
def test_gradients_of_keys_come_in_stretches(num_queries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(additive_gradient, "FILLED", 1)  # one block goes over all queries
    query, key, v = torch.randn(2, num_queries, 7), torch.randn(2, 5, 7), torch.randn(2, 7)
    g = torch.randn(2, num_queries, 5)
    leaves = [x.double().requires_grad_() for x in (query, key, v)]
    exact = torch.autograd.grad(plain(*leaves), leaves, g.double())
    of_query, of_key, more = torch.empty_like(query), torch.empty_like(key), torch.ones_like(key)
    of_v = gradients(query, key, v, g, of_query, of_key)
    gradients(query, key, v, g, of_query, more, add=True)
    for one, other in zip((of_query, of_key, of_v, more), (*exact, 1 + exact[1]), strict=True):
        torch.testing.assert_close(one.double(), other, atol=1e-5, rtol=1e-5)


def test_the_bounds_hold_what_they_say() -> None:
    query, key, v = 4 * torch.randn(2, 40, 30), 4 * torch.randn(2, 70, 30), torch.randn(2, 30)
    made = fractions.prepare(query, key, v)
    exponential_of_key = made.swapped_key.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    factors = made.reciprocal_v[:, None, None] + made.folded_query[:, :, None] * exponential_of_key[:, None]
    for size, column in ((4, 0), (2, 1)):
        products = factors.double().abs().log2().unflatten(-1, (-1, size)).sum(-1).amax((1, 2, 3))
        limits = made.query_bound[:, :, column].amax(-1) + made.key_bound[:, :, column].amax(-1)
        assert (products <= limits).all()
        assert (limits < products + 60).all()  # and not so high that nothing would ever be quick


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_infinities_and_nan_propagate_as_in_the_equation(value: float) -> None:
    for which in range(2):
        query, key, v = torch.randn(1, 3, 5), torch.randn(1, 4, 5), torch.randn(1, 5)
        (query, key)[which][0, 1, 2] = value
        expected = plain(query, key, v)
        torch.testing.assert_close(additive_score(query, key, v), expected, equal_nan=True)
        values = torch.randn(1, 4, 3)
        output, _ = additive_fused.additive_attention(query, key, v, values, None, None, None, 1, 0.0, None)
        torch.testing.assert_close(output, expected.softmax(-1) @ values, equal_nan=True)


@pytest.mark.parametrize("count", [fractions.ONE_EACH, fractions.MANY])
def test_many_small_scores_take_large_tiles(count: int) -> None:
    query, key, v = torch.randn(count, 3, 5), torch.randn(count, 4, 5), torch.randn(count, 5)
    torch.testing.assert_close(additive_score(query, key, v), plain(query, key, v), atol=2e-6, rtol=0)


def test_dimensions_without_weight_change_nothing() -> None:
    query, key, v = torch.randn(1, 5, 12), torch.randn(1, 7, 12), torch.randn(1, 12)
    v[0, ::3] = 0
    v[0, 1] = 1e-20
    torch.testing.assert_close(additive_score(query, key, v), plain(query, key, v), atol=2e-6, rtol=0)
    assert (additive_score(query, key, torch.zeros_like(v)) == 0).all()


def test_the_series_keeps_its_bound_and_leaves_what_is_beyond() -> None:
    count, num_queries, num_keys, width = 3, 9, 40, 24
    query, key = torch.randn(count, num_queries, width), torch.randn(count, num_keys, width)
    query[:2], key[:2] = query[:2].clamp(-2.4, 2.4), key[:2].clamp(-2.5, 2.5)  # the third entry is out of range
    query[2, 4, :4] = 9.0
    v = torch.randn(count, width)
    made = additive_series.features(query, key, v)
    score = made.query.double() @ made.key.double().mT
    exact = plain(query.double(), key.double(), v.double())
    rounding = 2 * 2**-11 * sum(additive_series.COEFFICIENTS)
    bound = (additive_series.ERROR * 1.01 + rounding) * v.abs().sum(-1).double()
    assert ((score - exact).abs().amax((1, 2)) <= bound)[:2].all()
    assert (score - exact).abs().max() > bound[2]  # the guard is needed
    value = torch.randn(count, num_keys, 7)
    inputs = [x.requires_grad_() for x in (query, key, v, value)]
    options = (None, None, 3, 1, 0.25, torch.tensor([11]))
    ours, _ = additive_series.additive_series(*inputs, *options)
    theirs, _ = additive_fused.additive_attention(*inputs, *options)
    assert torch.equal(ours[2], theirs[2])
    torch.testing.assert_close(ours, theirs, atol=1e-2, rtol=0)
    direction = torch.randn_like(ours)
    for one, other in zip(
        torch.autograd.grad(ours, inputs, direction), torch.autograd.grad(theirs, inputs, direction), strict=True
    ):
        assert torch.equal(one, other)


def test_the_series_is_as_near_as_it_says() -> None:
    x = torch.linspace(0, additive_series.RANGE, 10_001, dtype=torch.float64)
    odd = torch.arange(1, 2 * additive_series.TERMS, 2)
    sines = torch.sin(additive_series.BASE * odd * x[:, None])
    series = sines @ torch.tensor(additive_series.COEFFICIENTS, dtype=torch.float64)
    assert (series - x.tanh()).abs().max() <= additive_series.ERROR


@pytest.mark.parametrize("operator", [additive_fused.additive_attention, additive_kept.kept_attention])
def test_dropout_is_drawn_from_the_seed(operator: additive_fused.Operator) -> None:
    num_keys, share = 64, 0.3
    query, key, v = torch.randn(4, 70, 8), torch.randn(4, num_keys, 8), torch.randn(4, 8)
    identity = torch.eye(num_keys).expand(4, -1, -1).contiguous()  # the output is then the weights themselves
    inputs = [x.requires_grad_() for x in (query, key, v, identity)]
    seed = torch.tensor([123_456_789_012])
    kept, _ = operator(*inputs, None, None, None, 1, share, seed)
    again, _ = operator(*inputs, None, None, None, 1, share, seed)
    other, _ = operator(*inputs, None, None, None, 1, share, seed + 1)
    assert torch.equal(kept, again)
    assert not torch.equal(kept, other)
    factor = (kept != 0).double() / (1 - share)
    assert abs(float((kept == 0).double().mean()) - share) < 0.01
    assert (kept == 0).double().mean(0).std() < 0.3  # no pair is dropped in every entry
    expected = (plain(query.double(), key.double(), v.double()).softmax(-1) * factor) @ identity.double()
    torch.testing.assert_close(kept.double(), expected, atol=1e-5, rtol=1e-5)
    direction = torch.randn_like(kept)
    ours = torch.autograd.grad(kept, inputs, direction)
    for one, theirs in zip(ours, torch.autograd.grad(expected, inputs, direction.double()), strict=True):
        torch.testing.assert_close(one, theirs, atol=2e-5, rtol=2e-4)


def test_a_bounded_number_of_pairs_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [(3, 70, 9), (3, 40, 9), (3, 9), (3, 40, 6)]
    inputs = [torch.randn(*size, requires_grad=True) for size in sizes]
    mask, seed = torch.rand(3, 1, 70, 40) < 0.7, torch.tensor([7])
    output, _ = additive_fused.additive_attention(*inputs, mask, -30, 20, 1, 0.2, seed)
    direction = torch.randn_like(output)
    whole = torch.autograd.grad(output, inputs, direction, retain_graph=True)
    for pairs in (2 * 70 * 40, 32 * 40):  # two entries at a time; 32 queries of one
        monkeypatch.setattr(additive_fused, "PAIRS", pairs)
        parts = torch.autograd.grad(output, inputs, direction, retain_graph=True)
        for one, other in zip(whole, parts, strict=True):
            torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)
    kept, _ = additive_kept.kept_attention(*inputs, mask, -30, 20, 1, 0.2, seed)
    torch.testing.assert_close(kept, output, atol=1e-6, rtol=1e-5)
    for one, other in zip(whole, torch.autograd.grad(kept, inputs, direction), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)


def test_custom_op_obeys_torchs_rules() -> None:
    inputs = [torch.randn(*size, requires_grad=True) for size in ((2, 3, 5), (2, 7, 5), (2, 5), (2, 7, 4))]
    for operator in (additive_fused.additive_attention, additive_kept.kept_attention):
        torch.library.opcheck(operator, (*inputs, None, None, 1, 1, 0.0, None))


def test_packed_sentences_are_laid_side_by_side() -> None:
    start = torch.tensor([0, 3, 3, 20, 41, 41])  # an empty sentence, an unused slot, and padding behind
    mask = masks.packed(start, num_queries=45, longest=23) & masks.causal()
    score = build_score("additive", 8, heads=(2,)).float()
    inputs = [torch.randn(1, 2, 45, 8, requires_grad=True) for _ in range(3)]
    leaves = [*inputs, *score.parameters()]
    found = []
    for backend in ("additive", "reference"):
        output = attend(*inputs, score=score, mask=mask, backend=backend)
        found.append([output, *torch.autograd.grad(output.square().sum(), leaves)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)


def test_heads_and_their_masks() -> None:
    score = build_score("additive", 8, heads=(3,), hidden_width=8).float()
    inputs = [torch.randn(2, 3, steps, 8) for steps in (5, 9, 9)]
    for mask in (
        masks.padding(torch.tensor([4, 9])),
        masks.dense(torch.rand(2, 3, 5, 9) < 0.6),
        masks.dense(torch.rand(1, 3, 5, 9) < 0.6),
        masks.causal(2) & masks.padding(torch.tensor([[4, 9, 2], [1, 0, 8]])),
    ):
        ours = additive_fused.run(_call(inputs, score, mask)).output
        torch.testing.assert_close(ours, attend(*inputs, score=score, mask=mask, backend="reference"))


def _call(inputs: list[Tensor], score: Score, mask: Mask) -> Call:
    query, key, value = inputs
    return resolve(
        query,
        key,
        value,
        score=score,
        normalizer="softmax",
        mask=mask,
        bias=None,
        memory=None,
        dropout=0.0,
        return_weights=False,
        return_log_probability=False,
    )


def test_what_ships_compiles_for_an_h200() -> None:
    if nvrtc._nvrtc() is None:
        pytest.skip("NVRTC is not installed here")
    tilings = (fractions.LARGE, fractions.SMALL, fractions.FEW)
    raw = (fractions.SHORT, fractions.SHORT_FEW, fractions.FEW)
    for dtype, tiling, few_keys in zip(fractions.INPUTS, tilings, raw, strict=True):
        for defines in (tiling.defines(dtype), few_keys.defines(dtype, raw=True)):
            compile_for_hopper((*fractions.TILED, *sources("additive_attend.cu")), {**defines, "BLOCKS": 1})
        for of_scores in (fractions.ALONE, fractions.LARGE, fractions.FEW):
            compile_for_hopper((*fractions.TILED, *sources("additive_score.cu")), of_scores.defines(dtype))
    for dtype in fractions.INPUTS:
        defines = {"INPUT": fractions.INPUTS[dtype]}
        for lanes in additive_kept.ROW_LANES:
            compile_for_hopper((*fractions.BASE, *sources("additive_softmax.cu")), {**defines, "LANES": lanes})
        for warps in additive_gradient.WARPS:
            compile_for_hopper(additive_gradient.FILES, {**defines, "WARPS": warps})
        compile_for_hopper(single.FILES, defines)
        compile_for_hopper(additive_series.FILES, {**defines, "TERMS": additive_series.TERMS})


def compile_for_hopper(files: tuple[Path, ...], defines: dict[str, int]) -> None:
    flags = [f"-D{name}={value}" for name, value in defines.items()]
    assert nvrtc.compile_cubin(nvrtc.join_sources(files), ["--gpu-architecture=sm_90", *flags])


def test_sources_are_packaged() -> None:
    assert all(path.is_file() for path in (*fractions.TILED, *sources("additive_attend.cu")))
