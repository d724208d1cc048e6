"""Streamed attention in Triton's interpreter, against the equation in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from saccade import MultiHeadAttention, attend, explain, masks
from saccade.attention.kernels.sparse.op import KINDS, streamed_attention
from saccade.attention.masks import LocalP, Mask

NAMES = list(KINDS.values())
pytestmark = pytest.mark.usefixtures("widened_products", "small_tiles")


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few numbers, and still several tiles of them."""
    pytest.importorskip("triton")
    from saccade.attention.kernels.sparse import backward, forward
    from saccade.attention.kernels.sparse.tiles import Tiles

    tiles = Tiles(16, 16, warps=4)
    monkeypatch.setattr(forward, "tiles_for", lambda *sizes: tiles)
    monkeypatch.setattr(backward, "tiles_for", lambda *sizes: (tiles, tiles))


def ragged(num_queries: int, num_keys: int) -> Mask:
    """By pair, and query 3 sees nothing."""
    allowed = torch.rand(num_queries, num_keys) < 0.5
    allowed[3] = False
    return masks.dense(allowed)


def sentences() -> Mask:
    start = torch.tensor([0, 5, 5, 17, 17])
    return masks.packed(start, num_queries=19, longest=12) & masks.causal()


# leading axes of the query and of keys and values, queries, keys, and the mask, perhaps made of centres [B, T]
Case = tuple[tuple[int, ...], tuple[int, ...], int, int, Callable[[Tensor], Mask | None]]
CASES: dict[str, Case] = {
    "one tile": ((), (), 3, 13, lambda c: None),
    "several tiles, lengths": ((2,), (2,), 5, 35, lambda c: masks.padding(torch.tensor([0, 33]))),
    "causal, shared heads": ((1, 2), (1, 1), 18, 20, lambda c: masks.causal(1)),
    "by pair, a window": ((1,), (1,), 17, 23, lambda c: ragged(17, 23) & masks.window(5)),
    "local": ((2, 1), (2, 1), 5, 40, lambda c: masks.padding(torch.tensor([4, 40])) & masks.around(c, 6)),
    "packed": ((1,), (1,), 19, 19, lambda c: sentences()),
}
TRIED = [
    ("one tile", "sparsemax", torch.float32),
    ("one tile", "entmax15", torch.float32),
    ("several tiles, lengths", "entmax15", torch.float16),
    ("causal, shared heads", "entmax15", torch.float32),
    ("by pair, a window", "sparsemax", torch.float32),
    ("local", "softmax", torch.float32),
    ("local", "entmax15", torch.float32),
    ("local", "sparsemax", torch.bfloat16),
    ("packed", "sparsemax", torch.float32),
]


@pytest.mark.parametrize(("name", "kind", "dtype"), TRIED)
def test_the_kernel_is_as_exact_as_the_reference(name: str, kind: str, dtype: torch.dtype) -> None:
    leading, own, num_queries, num_keys, build = CASES[name]
    shapes = (*leading, num_queries, 7), (*own, num_keys, 7), (*own, num_keys, 5)
    query, key, value = (torch.randn(*shape).to(dtype) for shape in shapes)
    centre = torch.rand(*leading[:1], num_queries) * num_keys
    direction = torch.randn(*leading, num_queries, 5)
    draws = torch.get_rng_state()

    def results(dtype: torch.dtype, backend: str) -> list[Tensor]:
        torch.set_rng_state(draws)
        tensors = [x.detach().to(dtype).requires_grad_() for x in (query * 2, key, value)]
        c = centre.to(torch.promote_types(dtype, torch.float32)).requires_grad_()
        output = attend(*tensors, normalizer=kind, mask=build(c), backend=backend)
        leaves = [*tensors, c] if name == "local" else tensors
        return [output.detach(), *torch.autograd.grad(output, leaves, direction.to(dtype))]

    rounding = torch.finfo(dtype).eps * (8 if dtype != torch.bfloat16 else 16)  # the interpreter cuts bfloat16 off
    triple = results(dtype, "streamed"), results(torch.float64, "reference"), results(dtype, "reference")
    for ours, exact, plain in zip(*triple, strict=True):
        assert ours.dtype == plain.dtype
        bound = 3 * (plain.double() - exact).abs().max() + rounding * exact.abs().max()
        assert (ours.double() - exact).abs().max() <= bound
        assert (ours[exact == 0].abs() <= rounding).all()  # what nobody sees, and who sees nothing


ROWS: dict[str, list[float]] = {
    "equal": [0.0] * 37,
    "far": [1e4 + 0.25 * (i % 5) for i in range(37)],
    "geometric": [-(1.3**-i) for i in range(37)],
    "one": [0.0, 1.0, -1.0],
    "spread": [100.0 * i for i in range(19)],
    "without a bottom": [0.0, -math.inf, 0.5, -0.5],
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of what is not finite
@pytest.mark.parametrize("kind", ["sparsemax", "entmax15"])
@pytest.mark.parametrize("name", list(ROWS))
def test_thresholds_of_awkward_rows(name: str, kind: str) -> None:
    score = torch.tensor(ROWS[name])
    inputs = torch.ones(1, 1), score[:, None], torch.eye(len(score))
    ours, exact = (
        attend(*(x.to(dtype) for x in inputs), score="dot", normalizer=kind, backend=backend)
        for dtype, backend in ((torch.float32, "streamed"), (torch.float64, "reference"))
    )
    torch.testing.assert_close(ours.double(), exact, atol=2e-7, rtol=2e-6)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of what is meant here
@pytest.mark.parametrize(("kind", "bad"), [*((kind, math.nan) for kind in NAMES), ("entmax15", math.inf)])
def test_what_is_not_finite_breaks_its_own_rows_alone(kind: str, bad: float) -> None:
    query, key = torch.randn(2, 3, 4), torch.randn(2, 20, 4)
    key[0, 7] = bad
    key[0, 19] = bad
    query[1, 2] = bad
    query[0] = query[0].abs()
    mask = masks.padding(torch.tensor([19, 20]))
    found = []
    for backend in ("streamed", "reference"):
        tensors = tuple(x.clone().requires_grad_() for x in (query, key))
        output = attend(tensors[0], tensors[1], key.nan_to_num(0.0), normalizer=kind, mask=mask, backend=backend)
        found.append([output, *torch.autograd.grad(output.sum(), tensors)])
    (output, of_query, of_key), plain = found
    assert output.isnan().equal(plain[0].isnan())
    assert (of_query.isnan() | ~plain[1].isnan()).all()  # the sort forgets NaN in gradients
    assert (of_key.isnan() | ~plain[2].isnan()).all()
    assert of_query[1, :2].isfinite().all()
    assert (of_key[0, 19] == 0).all()  # it is padding


@pytest.mark.parametrize("kind", ["softmax", "entmax15"])
def test_dropout_is_drawn_again_backwards(kind: str) -> None:
    query, key, value = (torch.randn(1, 1, n, 32, requires_grad=True) for n in (16, 32, 32))
    seed, share = torch.tensor([1 << 40 | 12345]), 0.25

    def dropped(value: Tensor, seed: Tensor) -> Tensor:
        return streamed_attention(query, key, value, None, None, seed, kind, 0.02, None, None, 0, share)[0]

    _, weight = attend(query, key, value, score=lambda q, k: q @ k.mT * 0.02, normalizer=kind, return_weights=True)
    seen, another = (dropped(torch.eye(32)[None, None], s).detach() for s in (seed, seed + 1))
    kept, possible = seen > 0, weight > 0
    assert abs((~kept & possible).sum() / possible.sum() - share) < 0.05
    assert not kept.equal(another > 0)
    direction = torch.randn(1, 1, 16, 32)
    found = torch.autograd.grad(dropped(value, seed), (query, key, value), direction)
    expected = torch.autograd.grad((weight * (kept / (1 - share))) @ value, (query, key, value), direction)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_a_layer_trains_on_it() -> None:
    layer = MultiHeadAttention(16, 4, num_key_value_heads=2, normalizer="entmax15")
    local = LocalP(16, radius=3)
    x, length, gradients = torch.randn(2, 11, 16), torch.tensor([11, 6]), []
    for backend in ("streamed", "reference"):
        output = layer(x, mask=local(x, length) & masks.padding(length), backend=backend)
        parameters = [*layer.parameters(), *local.parameters()]
        gradients.append(torch.autograd.grad(output.square().sum(), parameters))
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-4, rtol=1e-4)


def test_autocast_computes_in_half_precision() -> None:
    x = torch.randn(2, 5, 8)
    with torch.autocast("cpu", torch.bfloat16):
        cast = attend(x, x, x, normalizer="entmax15", backend="streamed")
    assert cast.dtype == torch.bfloat16
    torch.testing.assert_close(cast.float(), attend(x, x, x, normalizer="entmax15"), atol=0.05, rtol=0.05)


def test_it_runs_where_it_is_asked_for_and_says_why_not() -> None:
    x, local = torch.randn(2, 8, 16), masks.around(torch.rand(8), 2)
    assert explain(x, x, x, normalizer="sparsemax", backend="streamed").backend == "streamed"
    assert explain(x, x, x, normalizer="sparsemax").backend == "reference"  # by itself on CUDA only
    refused: list[tuple[dict[str, Any], str]] = [
        ({"bias": torch.zeros(8, 8)}, "a bias was given"),
        ({"return_weights": True}, "the weights were asked for"),
        ({"normalizer": "hard"}, "not one of softmax, sparsemax, entmax15"),
        ({"score": lambda q, k: q @ k.mT}, "is not a dot product"),
        ({"mask": local & local}, "more than one local_p"),
    ]
    for options, message in refused:
        with pytest.raises(ValueError, match=message):
            explain(x, x, x, backend="streamed", **options)
    for y, message in ((x.double(), r"not in torch\.float64"), (torch.randn(2, 8, 257), "wider than 256")):
        with pytest.raises(ValueError, match=message):
            explain(y, y, y, backend="streamed")
