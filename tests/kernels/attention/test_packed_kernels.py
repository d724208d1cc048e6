"""Packed attention in Triton's interpreter, against the equation in float64."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from saccade import MultiHeadAttention, attend, explain, masks
from saccade.attention.kernels.packed.op import packed_attention
from saccade.attention.masks import Mask
from saccade.ops.known_gradients import take_sums
from saccade.ops.linear import split

HERE = Path(__file__).parents[1]


pytestmark = pytest.mark.usefixtures("widened_products")

# lengths of queries, of keys (None: the same), heads, heads that share a key's, widths of keys and values, band
CASES: dict[str, tuple[list[int], list[int] | None, int, int, int, int, Mask]] = {
    "one tile each": ([5, 0, 17, 1], None, 2, 1, 24, 24, masks.full()),
    "causal, several tiles": ([3, 70, 33, 0, 0], None, 1, 1, 16, 16, masks.causal()),
    "window, cross, shared heads": ([5, 40, 1, 3], [7, 3, 0, 37], 1, 2, 8, 20, masks.window(4)),
    "cross": ([2, 33], [41, 9], 1, 1, 16, 16, masks.full()),
    "whole in a larger tile": ([64, 1, 33, 20, 47], None, 1, 1, 16, 16, masks.causal()),
    "short": ([16, 7, 2], None, 1, 1, 16, 16, masks.causal()),
}


@pytest.mark.parametrize("name", list(CASES))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_kernel_is_as_exact_as_the_reference(name: str, dtype: torch.dtype) -> None:
    query_lengths, key_lengths, *sizes, band = CASES[name]
    check_against_the_reference(dtype, packed(query_lengths, key_lengths) & band, *sizes)


def check_against_the_reference(
    dtype: torch.dtype, mask: Mask, heads: int, repeats: int, width: int, value_width: int, padding: int = 3
) -> None:
    torch.manual_seed(0)
    assert mask.num_queries is not None
    assert mask.num_keys is not None
    query = torch.randn(1, mask.num_queries, heads * repeats * width).to(dtype)
    key, value = (torch.randn(1, mask.num_keys, heads * w).to(dtype) for w in (width, value_width))
    direction = torch.randn(1, mask.num_queries, heads * repeats * value_width).to(dtype)

    def results(dtype: torch.dtype, backend: str) -> Iterator[Tensor]:
        tensors = [x.detach().to(dtype).requires_grad_() for x in (query, key, value)]
        q_1GRTK = tensors[0].unflatten(-1, (heads, repeats, -1)).permute(0, 2, 3, 1, 4)
        k_1G1SK, v_1G1SK = (x.unflatten(-1, (heads, 1, -1)).permute(0, 2, 3, 1, 4) for x in tensors[1:])
        output = attend(q_1GRTK, k_1G1SK, v_1G1SK, mask=mask, backend=backend).permute(0, 3, 1, 2, 4).flatten(2)
        assert backend != "packed" or output.is_contiguous()
        return iter((output, *torch.autograd.grad(output, tensors, direction.to(dtype))))

    rounding = torch.finfo(dtype).eps * (8 if dtype != torch.bfloat16 else 16)  # the interpreter cuts bfloat16 off
    triple = zip(
        results(dtype, "packed"), results(torch.float64, "reference"), results(dtype, "reference"), strict=True
    )
    for ours, exact, plain in triple:
        bound = 3 * (plain.double() - exact).abs().max() + rounding * exact.abs().max()
        assert (ours.double() - exact).abs().max() <= bound
        assert (ours[:, ours.shape[1] - padding :] == 0).all()


@pytest.mark.parametrize(("padding", "longest"), [(0, 32), (33, 32), (0, 110), (1, 110), (150, 40)])
def test_every_step_is_some_programs(padding: int, longest: int) -> None:
    generator = torch.Generator().manual_seed(padding)
    lengths_2N = torch.randint(1, longest + 1, (2, 6), generator=generator)
    lengths_2N[torch.rand(2, 6, generator=generator) < 0.2] = 0
    for key_lengths in (None, lengths_2N[1].tolist()):
        mask = packed(lengths_2N[0].tolist(), key_lengths, padding)
        for dtype in (torch.float32, torch.float16):  # whose tiles differ
            check_against_the_reference(dtype, mask, 1, 1, 8, 8, padding)


def test_dropout_is_drawn_again_backwards() -> None:
    torch.manual_seed(0)
    mask = packed([40, 9, 33], None)
    assert mask.packing is not None
    start, length, share = mask.packing.query_start, mask.num_queries, 0.25
    assert length is not None
    query, key, value = (torch.randn(1, length, 16, requires_grad=True) for _ in range(3))
    seed = torch.tensor([1 << 40 | 12345])

    def dropped(seed: Tensor, value: Tensor) -> Tensor:
        output, _ = packed_attention(query, key, value, start, None, seed, 0.25, None, None, share, 40)
        return output.transpose(0, 1)

    # each sentence's keys as unit vectors: what comes out is the weights
    units = torch.cat([torch.eye(n, 64) for n in (40, 9, 33, 3)])[None]
    seen = dropped(seed, units).detach()
    allowed = torch.cat([torch.arange(64).expand(n, 64) < (n if n != 3 else 0) for n in (40, 9, 33, 3)])[None]
    kept = seen > 0
    assert abs((~kept & allowed).sum() / allowed.sum() - share) < 0.02
    assert kept.equal(dropped(seed, units) > 0)
    assert not kept.equal(dropped(seed + 1, units) > 0)
    for axis in (-2, -1):  # neighbours are drawn apart
        both = (kept.roll(1, axis) & kept)[allowed & allowed.roll(1, axis)].double().mean()
        assert abs(both - (1 - share) ** 2) < 0.03

    direction = torch.randn(1, length, 16)
    found = torch.autograd.grad(dropped(seed, value), (query, key, value), direction)
    factor_TS = torch.zeros(length, length)
    for first, end in ((0, 40), (40, 49), (49, 82)):
        factor_TS[first:end, first:end] = kept[0, first:end, : end - first] / (1 - share)
    _, weight = attend(query, key, value, mask=mask, return_weights=True)
    expected = torch.autograd.grad((weight * factor_TS) @ value, (query, key, value), direction)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_it_runs_where_it_is_asked_for_and_says_why_not() -> None:
    x, mask = torch.randn(1, 2, 8, 16), packed([2, 3], None)
    assert explain(x, x, x, mask=mask, backend="packed").backend == "packed"
    assert explain(x, x, x, mask=mask).backend != "packed"  # by itself on CUDA only
    for refused, message in (
        ({"mask": mask & masks.where(lambda t, s: s >= 0)}, "more or less than packed sentences and a band"),
        ({"bias": torch.zeros(8, 8)}, "a bias was given"),
        ({"return_weights": True}, "the weights were asked for"),
        ({"normalizer": "sparsemax"}, "not softmax"),
        ({"score": lambda q, k: q @ k.mT}, "is not a dot product"),
    ):
        options: dict[str, Any] = {"mask": mask, **refused}
        with pytest.raises(ValueError, match=message):
            explain(x, x, x, backend="packed", **options)
    with pytest.raises(ValueError, match=r"not in torch\.float64"):
        explain(x.double(), x.double(), x.double(), mask=mask, backend="packed")


@pytest.mark.parametrize("crosses", [False, True])
def test_gradients_of_one_projection_lie_in_one_buffer(crosses: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    mask, parts = packed([5, 9], [9, 5] if crosses else None), 2 if crosses else 3
    joint, own_query = torch.randn(1, 17, parts * 32, requires_grad=True), torch.randn(1, 17, 32, requires_grad=True)
    found = []
    for backend in ("packed", "reference"):
        projected = (*([own_query] if crosses else []), *split(joint, (32,) * parts))
        query, key, value = (x.unflatten(-1, (2, 16)).transpose(1, 2) for x in projected)
        loss = attend(query, key, value, mask=mask, backend=backend).square().sum()
        with monkeypatch.context() as patched:
            if backend == "packed":
                patched.delattr(torch, "cat")
            found.append(torch.autograd.grad(loss, joint)[0])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("crosses", [False, True])
def test_what_arrives_at_projections_remembers_its_sum(crosses: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    lengths = [5, 40, 0, 33]
    mask, parts = packed(lengths, [39, 6, 2, 1] if crosses else None), 2 if crosses else 3
    num_keys, num_queries = (mask.num_keys, mask.num_queries)
    assert num_keys is not None
    assert num_queries is not None
    joint = torch.randn(1, num_keys, parts * 48).to(dtype).requires_grad_()
    own_query = torch.randn(1, num_queries, 48).to(dtype).requires_grad_()
    made = [joint * 1, own_query * 1]  # as a projection would be: no leaf
    projected = (*(made[1:] if crosses else []), *split(made[0], (48,) * parts))
    arrived = []
    for x in made:
        x.register_hook(lambda grad: arrived.append((grad, take_sums(grad))))
    query, key, value = (x.unflatten(-1, (2, 24)).transpose(1, 2) for x in projected)
    output = attend(query, key, value, mask=mask, backend="packed", dropout=0.2)
    output.backward(torch.randn_like(output))
    assert len(arrived) == (2 if crosses else 1)
    for grad, known in arrived:
        assert known is not None
        expected = grad.double().sum((0, 1))
        torch.testing.assert_close(known.double(), expected, atol=200 * torch.finfo(dtype).eps, rtol=1e-6)
        if len(known) > 48:
            assert (known.unflatten(0, (-1, 48))[-2] == 0).all()  # the keys'


def test_a_model_layer_trains_on_it() -> None:
    torch.manual_seed(0)
    layer, mask = MultiHeadAttention(32, 2, num_key_value_heads=1), packed([6, 20], None)
    x = torch.randn(1, 29, 32)
    gradients = []
    for backend in ("packed", "reference"):
        loss = layer(x, mask=mask & masks.causal(), backend=backend).square().sum()
        gradients.append(torch.autograd.grad(loss, list(layer.parameters())))
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-4, rtol=1e-4)


@pytest.mark.usefixtures("quick_start")
def test_kernels_compile_for_the_device() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    command = [sys.executable, str(HERE / "compile_here.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert {line.split()[0] for line in done.stdout.splitlines()} == {
        "forward_kernel",
        "backward_kernel",
        "sums_kernel",
        "step_kernel",
        "query_kernel",
        "key_kernel",
    }


def packed(query_lengths: list[int], key_lengths: list[int] | None, padding: int = 3) -> Mask:
    """Sentences of these lengths, and tokens of padding."""
    starts = [
        torch.tensor([0, *np.cumsum(n)], dtype=torch.int32) for n in (query_lengths, key_lengths) if n is not None
    ]
    sizes = [int(start[-1]) + padding for start in starts]
    longest = max([*query_lengths, *(key_lengths or [])])
    return masks.packed(*starts, num_queries=sizes[0], num_keys=sizes[-1], longest=longest)
