"""Packed attention and a decoder's step on an accelerator; skipped where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch import Tensor

from saccade import attend, explain, masks
from saccade.attention.kernels.decode.step import attend_step
from saccade.attention.masks import Mask
from saccade.ops.cuda_graphs import record, warm_up
from saccade.ops.kernels.launch import fork_stream
from saccade.ops.linear import split

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
LENGTHS = [28, 1, 0, 100, 33, 32, 64, 65, 7, 16, 17, 90, 0, 0]
SHORT = [28, 1, 0, 32, 31, 16, 17, 5, 0]
BANDS = {"full": masks.full(), "causal": masks.causal(), "window": masks.window(9)}
WIDE, SHARED, NARROW = (4, 1, 64, 64), (2, 2, 40, 128), (1, 1, 16, 16)  # heads, theirs that share keys, widths

# every case compiles kernels of its own, a second each
CASES = [
    (torch.float32, LENGTHS, "causal", False, WIDE),
    (torch.float32, SHORT, "window", True, SHARED),
    (torch.bfloat16, LENGTHS, "full", False, WIDE),
    (torch.bfloat16, LENGTHS, "causal", True, NARROW),
    (torch.bfloat16, LENGTHS, "window", False, SHARED),
    (torch.float16, LENGTHS, "full", True, SHARED),
    (torch.float16, SHORT, "causal", False, NARROW),
]


def starts(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *lengths], device="cuda").cumsum(0).to(torch.int32)


def mask_of(lengths: list[int], band: str, crosses: bool) -> Mask:
    query_start, key_start = starts(lengths), starts(lengths[::-1] if crosses else lengths)
    num_queries, num_keys = sum(lengths) + 19, sum(lengths) + (95 if crosses else 19)
    keys = key_start if crosses else None
    packed = masks.packed(query_start, keys, num_queries=num_queries, num_keys=num_keys, longest=max(lengths))
    return packed & BANDS[band]


@pytest.mark.parametrize(("dtype", "lengths", "band", "crosses", "sizes"), CASES)
def test_packed_attention_is_as_exact_as_the_reference(
    dtype: torch.dtype, lengths: list[int], band: str, crosses: bool, sizes: tuple[int, int, int, int]
) -> None:
    torch.manual_seed(0)
    mask, (heads, repeats, width, value_width) = mask_of(lengths, band, crosses), sizes
    assert mask.num_queries is not None
    assert mask.num_keys is not None
    shapes = ((mask.num_queries, repeats, width), (mask.num_keys, 1, width), (mask.num_keys, 1, value_width))
    inputs = [torch.randn(1, steps, heads, n, w, device="cuda").to(dtype) for steps, n, w in shapes]
    direction = torch.randn(1, heads, repeats, mask.num_queries, value_width, device="cuda").to(dtype)

    def results(dtype: torch.dtype, backend: str) -> Iterator[Tensor]:
        tensors = [x.detach().to(dtype).requires_grad_() for x in inputs]
        parts = [x.permute(0, 2, 3, 1, 4) for x in tensors]
        assert backend != "auto" or explain(parts[0], parts[1], parts[2], mask=mask).backend == "packed"
        output = attend(parts[0], parts[1], parts[2], mask=mask, backend=backend)
        return iter((output, *torch.autograd.grad(output, tensors, direction.to(dtype))))

    triple = zip(results(dtype, "auto"), results(torch.float64, "reference"), results(dtype, "reference"), strict=True)
    for ours, exact, plain in triple:
        bound = 3 * (plain.double() - exact).abs().max() + 16 * torch.finfo(dtype).eps * exact.abs().max()
        assert ours.isfinite().all()
        assert (ours.double() - exact).abs().max() <= bound


def test_a_captured_step_replays_with_other_lengths_and_draws_again() -> None:
    torch.manual_seed(0)
    heads, width, num_tokens = 4, 64, 160
    start = starts([28, 0, 50, 60])
    mask = masks.packed(start, num_queries=num_tokens, longest=100) & masks.causal()
    rows = torch.randn(1, num_tokens, 3 * heads * width, device="cuda").bfloat16()
    direction = torch.randn(1, heads, num_tokens, width, device="cuda").bfloat16()

    def attended(dropout: float, backend: str = "auto") -> tuple[Tensor, Tensor]:
        joint = rows.detach().requires_grad_()  # a leaf belongs to the stream it is first used on
        parts = [x.unflatten(-1, (heads, width)).transpose(1, 2) for x in split(joint, (heads * width,) * 3)]
        output = attend(parts[0], parts[1], parts[2], mask=mask, dropout=dropout, backend=backend)
        return output.detach(), torch.autograd.grad(output, joint, direction)[0]

    for dropout in (0.0, 0.3):
        warm_up(partial(attended, dropout), rows.device)
        graph, captured = record(partial(attended, dropout))
        for lengths in ([28, 0, 50, 60], [100, 3, 1, 0], [5, 5, 5, 5]):
            start.copy_(starts(lengths))
            graph.replay()
            first = [x.clone() for x in captured]
            graph.replay()
            if dropout:
                assert not first[0].equal(captured[0])
                assert all(x.isfinite().all() for x in captured)
            else:
                assert first[0].equal(captured[0])  # deterministic, backward too
                assert first[1].equal(captured[1])
                for ours, plain in zip(captured, attended(0.0, "reference"), strict=True):
                    torch.testing.assert_close(ours, plain, atol=0.06, rtol=0.06)


def test_what_runs_aside_has_what_came_before_and_is_waited_for() -> None:
    x, y = torch.zeros(2, 1000, device="cuda")
    torch.cuda._sleep(20_000_000)  # clocks: what didn't wait would be seen
    x.fill_(1)
    with fork_stream(x.device) as aside:
        with aside:
            current = torch.cuda.current_stream()
            torch.cuda._sleep(20_000_000)
            y.copy_(x)
        assert torch.cuda.current_stream() != current
    assert (y + 0).sum() == 1000


def test_dropout_keeps_the_mean() -> None:
    torch.manual_seed(0)
    start = starts([32] * 64)
    mask = masks.packed(start, num_queries=2048, longest=32)
    query, ones = torch.randn(1, 8, 2048, 64, device="cuda"), torch.ones(1, 8, 2048, 64, device="cuda")
    output = attend(query, query, ones, mask=mask, dropout=0.25, score="mean")
    assert abs(output.mean() - 1) < 0.005
    assert abs(output[..., 0].var() - 0.25 / 0.75 / 32) < 0.001  # each weight is 1 / 32, kept on its own


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["beam", "source", "own"])
def test_a_step_equals_its_plain_spelling(dtype: torch.dtype, kind: str) -> None:
    torch.manual_seed(0)
    rows, capacity, groups, heads, width = 700, 70, 4, 8, 64
    joint = torch.randn(rows, heads + 2 * groups, width, device="cuda").to(dtype)
    query, *new = joint.split((heads, groups, groups), 1)
    caches = [torch.randn(rows, capacity, groups, width, device="cuda").to(dtype) for _ in range(2)]
    length = (torch.arange(rows, device="cuda", dtype=torch.int32) // 5 * 7) % capacity  # beams of five
    beam = torch.arange(rows, device="cuda", dtype=torch.int32) // 5 * 5
    ancestors = {
        "beam": beam[:, None] + torch.randint(5, (rows, capacity), device="cuda", dtype=torch.int32),
        "source": beam,
        "own": None,
    }
    found = []
    for backend in ("plain", "auto"):
        own = [cache.clone() for cache in caches]
        output = attend_step(
            query,
            own[0],
            own[1],
            length,
            scale=0.125,
            ancestor=ancestors[kind],
            new=None if kind == "source" else (new[0], new[1]),
            backend=backend,
        )
        found.append((output, *own))
    torch.testing.assert_close(
        found[1][0], found[0][0], atol=4 * torch.finfo(dtype).eps, rtol=4 * torch.finfo(dtype).eps
    )
    assert found[1][1].equal(found[0][1])
    assert found[1][2].equal(found[0][2])
