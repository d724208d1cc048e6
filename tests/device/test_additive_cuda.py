"""Additive attention's own kernels on an accelerator: as exact as the reference, in bounded memory, inside a graph."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from cases import DTYPES, MASKS, build_score, random_inputs
from saccade import attend, explain, masks
from saccade.attention import Mask
from saccade.attention.kernels.additive import fractions, single
from saccade.attention.kernels.additive import fused as additive_fused
from saccade.attention.kernels.additive import weights as additive_kept
from saccade.attention.kernels.additive.fractions import Tiling
from saccade.attention.kernels.additive.scope import Dropout, Scope
from saccade.attention.kernels.additive.tiles import additive_score
from saccade.ops.cuda_graphs import record, warm_up

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
CUDA = torch.device("cuda")


def on_device(mask_name: str, batch: int, num_queries: int, num_keys: int) -> Mask:
    with CUDA:
        return MASKS[mask_name](batch, num_queries, num_keys)


def results(inputs: list[Tensor], score: torch.nn.Module, dtype: torch.dtype, **options: Any) -> list[Tensor]:
    score = copy.deepcopy(score).to(CUDA, dtype)
    tensors = [x.detach().to(CUDA, dtype).requires_grad_() for x in inputs]
    output = attend(*tensors, score=score, **options)
    gradients = torch.autograd.grad(output.float().square().sum(), [*tensors, *score.parameters()])
    return [output.detach().double(), *(gradient.double() for gradient in gradients)]


@pytest.mark.parametrize("mask_name", list(MASKS))
@pytest.mark.parametrize("dtype_name", [name for name in DTYPES if name != "float64"])
@pytest.mark.parametrize("sizes", [(3, 67, 131, 48, 40), (2, 1, 70, 300, 129), (2, 257, 300, 21, 256)])
def test_as_exact_as_the_reference(mask_name: str, dtype_name: str, sizes: tuple[int, int, int, int, int]) -> None:
    batch, num_queries, num_keys, width, value_width = sizes
    dtype, score = DTYPES[dtype_name], build_score("additive", width)
    inputs = [
        x.to(dtype)
        for x in random_inputs(batch, num_queries=num_queries, num_keys=num_keys, width=width, value_width=value_width)
    ]
    mask = on_device(mask_name, batch, num_queries, num_keys)
    assert "kernel" in explain(*(x.to(CUDA) for x in inputs), score=score.to(CUDA, dtype), mask=mask).why
    exact = results(inputs, score, torch.float64, mask=mask, backend="reference")
    plain = results(inputs, score, dtype, mask=mask, backend="reference")
    fused = results(inputs, score, dtype, mask=mask, backend="additive")
    rounding = torch.finfo(dtype).eps * max(float(true.abs().amax()) for true in exact)
    for index, (true, ours, theirs) in enumerate(zip(exact, fused, plain, strict=True)):
        assert ours.isfinite().all()
        factor, slack = (2, 8) if index == 0 else (3, 128)
        assert (ours - true).abs().amax() <= factor * (theirs - true).abs().amax() + slack * rounding


@pytest.mark.parametrize(
    "tiling", [Tiling(1, 1, 1), Tiling(1, 2, 4), Tiling(1, 2, 8), Tiling(2, 2, 1), Tiling(2, 2, 2)]
)
def test_every_tiling_gives_the_same(tiling: Tiling) -> None:
    sizes = [(2, 170, 150), (2, 190, 150), (2, 150), (2, 190, 64)]
    query, key, v, value = (torch.randn(*size, device=CUDA) for size in sizes)
    prepared = fractions.prepare(query, key, v)
    output, _ = fractions.attend(prepared, value, Scope(high=3), Dropout(), tiling)
    hidden = torch.tanh(query.double().unsqueeze(-2) + key.double().unsqueeze(-3))
    score = (
        (hidden * v.double()[:, None, None])
        .sum(-1)
        .masked_fill(~masks.causal(3).dense(170, 190, device=CUDA), -math.inf)
    )
    torch.testing.assert_close(output.double(), score.softmax(-1) @ value.double(), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("size", [1.0, 8.0, 20.0, 43.0, 60.0, 1e4, 1e30, math.inf, math.nan])
def test_no_range_gives_a_wrong_answer(size: float) -> None:
    query, key, v = (torch.randn(*shape, device=CUDA) for shape in ((1, 137, 23), (1, 133, 23), (1, 23)))
    if math.isfinite(size):
        query, key = query + size, key - size
    else:
        query[0, 1, 2] = size
    exact, theirs = (
        (torch.tanh(query.to(dtype).unsqueeze(-2) + key.to(dtype).unsqueeze(-3)) * v.to(dtype)).sum(-1)
        for dtype in (torch.float64, torch.float32)
    )
    ours, known = additive_score(query, key, v), exact.isfinite()
    assert torch.equal(ours.isfinite(), known)
    rounding = torch.finfo(torch.float32).eps * v.abs().sum()  # of a sum whose terms are as large as v
    assert (ours - exact)[known].abs().max() <= 2 * (theirs - exact)[known].abs().max() + rounding


@pytest.mark.parametrize("operator", [additive_fused.additive_attention, additive_kept.kept_attention])
def test_it_runs_in_a_graph_and_is_repeatable(operator: additive_fused.Operator) -> None:
    tensors = [torch.randn(*size, device=CUDA) for size in ((4, 70, 64), (4, 90, 64), (4, 64), (4, 90, 64))]
    seed = torch.tensor([5], device=CUDA)

    def both_ways() -> list[Tensor]:
        inputs = [x.detach().requires_grad_() for x in tensors]  # leaves belong to the stream they are first used on
        output, _ = operator(*inputs, None, None, None, 1, 0.1, seed)
        return [output.detach(), *torch.autograd.grad(output.square().sum(), inputs)]

    first = both_ways()
    warm_up(both_ways, CUDA)
    graph, captured = record(both_ways)
    graph.replay()
    for one, other in zip(first, captured, strict=True):
        assert torch.equal(one, other)


def test_values_of_any_width_in_turn() -> None:
    query, key, v = (torch.randn(*size, device=CUDA) for size in ((300, 64, 16), (300, 64, 16), (300, 16)))
    for width in (256, 64, 256, 512, 256):  # a kernel keeps the most shared memory that it has asked for
        value = torch.randn(300, 64, width, device=CUDA)
        output, _ = additive_fused.additive_attention(query, key, v, value, None, None, None, 1, 0.0, None)
        weight = (torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3)) * v[:, None, None]).sum(-1).softmax(-1)
        torch.testing.assert_close(output, weight @ value, atol=2e-5, rtol=1e-4)


def test_long_rows_in_under_two_gibibytes() -> None:
    steps, width = 32_768, 128
    inputs = [torch.randn(1, *size, device=CUDA) for size in ((steps, width), (steps, width), (width,), (steps, width))]
    for tensor in inputs:
        tensor.requires_grad_()
    torch.cuda.reset_peak_memory_stats()
    output, _ = additive_fused.additive_attention(*inputs, None, None, None, 1, 0.0, None)
    output.sum().backward()
    assert torch.cuda.max_memory_allocated() < 2 << 30
    assert all(tensor.grad is not None and tensor.grad.isfinite().all() for tensor in inputs)


def test_one_query_with_its_weights() -> None:
    score = build_score("additive", 64).to(CUDA, torch.float32)
    inputs = [torch.randn(5, steps, 64, device=CUDA, requires_grad=True) for steps in (1, 70, 70)]
    assert explain(*inputs, score=score, return_weights=True).why == single.REASON
    found = []
    for backend in ("additive", "reference"):
        output, weights = attend(*inputs, score=score, return_weights=True, backend=backend)
        loss = output.square().sum() + weights.square().sum()
        found.append([output, weights, *torch.autograd.grad(loss, inputs)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("dtype_name", [name for name in DTYPES if name != "float64"])
@pytest.mark.parametrize(
    ("num_rows", "num_keys", "width"), [(64, 30, 512), (64, 30, 1000), (5, 300, 33), (30, 90, 1500), (200, 7, 1000)]
)
def test_a_decoders_step(dtype_name: str, num_rows: int, num_keys: int, width: int) -> None:
    dtype = DTYPES[dtype_name]
    score = build_score("additive", width).to(CUDA, dtype).requires_grad_(False)
    inputs = [torch.randn(num_rows, steps, width, device=CUDA).to(dtype) for steps in (1, num_keys, num_keys)]
    query, memory, value = inputs
    length = torch.arange(num_rows, device=CUDA) % (num_keys + 1)
    for mask in (None, masks.padding(length)):
        found = []
        for kind, backend in ((torch.float64, "reference"), (dtype, "reference"), (dtype, "auto")):
            tensors, own = [x.to(kind) for x in (query, memory, value)], copy.deepcopy(score).to(kind)
            given: dict[str, Any] = {"memory": tensors[1], "score": own, "mask": mask, "return_weights": True}
            found.append([x.double() for x in attend(tensors[0], None, tensors[2], backend=backend, **given)])
        assert explain(query, None, value, memory=memory, score=score, mask=mask).why == single.REASON
        for true, plain, ours in zip(*found, strict=True):
            bound = 3 * (plain - true).abs().amax() + 8 * torch.finfo(dtype).eps * true.abs().amax()
            assert (ours - true).abs().amax() <= bound
    assert not found[2][0][length == 0].any()


def test_a_decoders_step_in_a_graph() -> None:
    score = build_score("additive", 64).to(CUDA, torch.float32).requires_grad_(False)
    query, memory, value = (torch.randn(8, steps, 64, device=CUDA) for steps in (1, 30, 30))

    def step() -> Tensor:
        answer = attend(query, None, value, memory=memory, score=score)
        assert isinstance(answer, Tensor)
        return answer

    first = step()
    warm_up(step, CUDA)
    graph, captured = record(step)
    graph.replay()
    assert torch.equal(first, captured)
