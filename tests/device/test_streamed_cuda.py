"""The dot family with every normaliser and scope on an accelerator, each beside its reference."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from cases import DTYPES, build_score, packed, random_inputs
from saccade import attend, explain, masks
from saccade.attention import Mask
from saccade.attention.masks import LocalP

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
CUDA = torch.device("cuda")
BATCH, STEPS, WIDTH = 3, 200, 16

# from queries [B, T, D] and a LocalP; some rows see nothing
SCOPES: dict[str, Callable[[Tensor, LocalP], Mask]] = {
    "causal, lengths": lambda q, local: masks.causal() & masks.padding(torch.tensor([0, 90, STEPS])),
    "local_m": lambda q, local: masks.local_m(9),
    "local_p": lambda q, local: local(q, torch.tensor([STEPS, 7, 100])) & masks.padding(torch.tensor([STEPS, 5, 99])),
    "packed": lambda q, local: packed(STEPS, STEPS),
}
TRIED = [
    *((kind, scope, "bfloat16") for kind in ("softmax", "sparsemax", "entmax15") for scope in SCOPES),
    *(("entmax15", scope, "float32") for scope in ("causal, lengths", "local_p")),
    ("sparsemax", "causal, lengths", "float16"),
]


def results(inputs: list[Tensor], parts: list[Any], scope: str, dtype: torch.dtype, **options: Any) -> list[Tensor]:
    score, local = (copy.deepcopy(part).to(CUDA, dtype) for part in parts)
    tensors = [x.detach().to(CUDA, dtype).requires_grad_() for x in inputs]
    with CUDA:
        mask = SCOPES[scope](tensors[0], local)
    if options.get("backend") != "reference":
        assert explain(*tensors, score=score, mask=mask, **options).backend != "reference"
    output = attend(*tensors, score=score, mask=mask, **options)
    leaves = [*tensors, *score.parameters(), *(local.parameters() if scope == "local_p" else ())]
    gradients = torch.autograd.grad(output.float().square().sum(), leaves)
    return [output.detach().double(), *(gradient.double() for gradient in gradients)]


@pytest.mark.parametrize("score_name", ["scaled_dot", "general", "reduced_rank", "cosine"])
@pytest.mark.parametrize(("kind", "scope", "dtype_name"), TRIED)
def test_as_exact_as_the_reference(score_name: str, kind: str, scope: str, dtype_name: str) -> None:
    dtype = DTYPES[dtype_name]
    inputs = [x.to(dtype) for x in random_inputs(BATCH, num_queries=STEPS, num_keys=STEPS, width=WIDTH, value_width=24)]
    parts = [build_score(score_name, WIDTH, dtype), LocalP(WIDTH, radius=5).to(dtype)]
    exact = results(inputs, parts, scope, torch.float64, normalizer=kind, backend="reference")
    plain = results(inputs, parts, scope, dtype, normalizer=kind, backend="reference")
    fused = results(inputs, parts, scope, dtype, normalizer=kind)
    rounding = torch.finfo(dtype).eps * max(float(true.abs().amax()) for true in exact)
    for true, ours, theirs in zip(exact, fused, plain, strict=True):
        assert ours.isfinite().all()
        assert (ours - true).abs().amax() <= 3 * (theirs - true).abs().amax() + 128 * rounding


@pytest.mark.parametrize(("num_queries", "num_keys"), [(1, 1), (1, 129), (70, 100), (65, 1)])
def test_any_size(num_queries: int, num_keys: int) -> None:
    inputs = [
        x.to(CUDA, torch.bfloat16)
        for x in random_inputs(2, 3, num_queries=num_queries, num_keys=num_keys, width=64, value_width=64)
    ]
    assert explain(*inputs, normalizer="entmax15").backend == "streamed"
    ours, plain = (attend(*inputs, normalizer="entmax15", backend=name) for name in ("streamed", "reference"))
    torch.testing.assert_close(ours, plain, atol=0.05, rtol=0.05)


def test_inside_a_graph_and_without_a_square_of_memory() -> None:
    inputs = [torch.randn(1, 8, 4096, 64, device=CUDA, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]

    def step() -> Tensor:
        gradients = torch.autograd.grad(attend(*inputs, normalizer="entmax15").float().square().sum(), inputs)
        return torch.stack([gradient.float().abs().sum() for gradient in gradients])

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        expected = step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    assert torch.cuda.max_memory_allocated() - before < 128 << 20  # one [8, T, S] in bfloat16 would be 256 MiB
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    graph.replay()
    torch.testing.assert_close(found, expected)


def test_dropout_keeps_its_share() -> None:
    x = torch.randn(2, 4, 300, 64, device=CUDA)
    ones = torch.ones(2, 4, 300, 1, device=CUDA)
    sums = attend(x * 0.01, x, ones, normalizer="entmax15", dropout=0.3)
    assert abs(float(sums.mean()) - 1) < 0.02
    assert float(sums.std()) > 0.01
