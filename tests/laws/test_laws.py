"""Laws that hold for every score x normaliser x mask x dtype. A new score is covered by its line in the table.

Where hypothesis draws the sizes, dtypes are a loop and not a parameter: it wraps a test's settings once per
parameter, and some thousand wraps end in a RecursionError.
"""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cases import DTYPES, MASK_NAMES, MASKS, NORMALIZER_NAMES, SCORE_NAMES, build_score, random_inputs
from saccade import attend, explain, masks
from saccade.attention import BACKENDS, Score
from saccade.attention.call import find_normalizer

every_score = pytest.mark.parametrize("score_name", SCORE_NAMES)
every_normalizer = pytest.mark.parametrize("normalizer_name", NORMALIZER_NAMES)
every_mask = pytest.mark.parametrize("mask_name", MASK_NAMES)
every_dtype = pytest.mark.parametrize("dtype_name", list(DTYPES))

sizes = st.fixed_dictionaries(
    {
        "batch": st.sampled_from([1, 2, 3]),
        "num_queries": st.sampled_from([1, 5, 7]),
        "num_keys": st.sampled_from([2, 7, 11]),
        "width": st.sampled_from([2, 13]),
        "value_width": st.sampled_from([3, 17]),
        "seed": st.integers(0, 1000),
    }
)


def tolerance(dtype: torch.dtype) -> float:
    return 32 * torch.finfo(dtype).eps


@every_score
@every_normalizer
@every_mask
@settings(max_examples=3)
@given(size=sizes)
def test_weights_lie_on_the_allowed_keys_and_sum_to_one(
    score_name: str, normalizer_name: str, mask_name: str, size: dict[str, int]
) -> None:
    for dtype in DTYPES.values():
        check_weights(score_name, normalizer_name, mask_name, dtype, size)


def check_weights(
    score_name: str, normalizer_name: str, mask_name: str, dtype: torch.dtype, size: dict[str, int]
) -> None:
    query, key, value = draw(size, dtype)
    score, mask = build_score(score_name, size["width"], dtype), MASKS[mask_name](*extents(size))
    output, weights = attend(query, key, value, score=score, normalizer=normalizer_name, mask=mask, return_weights=True)
    allowed = mask.dense(size["num_queries"], size["num_keys"]).expand(weights.shape)
    assert weights.shape == (size["batch"], size["num_queries"], size["num_keys"])
    assert output.dtype == dtype
    assert (weights[~allowed] == 0).all()
    assert (weights >= 0).all()
    sums = weights.double().sum(-1)
    assert torch.allclose(sums, allowed.any(-1).double(), atol=size["num_keys"] * torch.finfo(dtype).eps)
    assert (output[~allowed.any(-1)] == 0).all()


@every_score
@every_normalizer
@every_mask
@settings(max_examples=3)
@given(size=sizes)
def test_every_kernel_is_as_exact_as_the_reference(
    score_name: str, normalizer_name: str, mask_name: str, size: dict[str, int]
) -> None:
    for dtype in DTYPES.values():
        if (
            normalizer_name != "hard" or dtype == torch.float64
        ):  # below it there are ties: the best of equals is anyone's
            check_exactness(score_name, normalizer_name, mask_name, dtype, size)


def check_exactness(
    score_name: str, normalizer_name: str, mask_name: str, dtype: torch.dtype, size: dict[str, int]
) -> None:
    inputs = draw(size, dtype)
    score, mask = build_score(score_name, size["width"], dtype), MASKS[mask_name](*extents(size))
    plain = results(inputs, score, normalizer_name, mask, "reference", dtype)
    backends = kernels_for(inputs, score, normalizer_name, mask)
    if not backends:
        return
    exact = (
        plain if dtype == torch.float64 else results(inputs, score, normalizer_name, mask, "reference", torch.float64)
    )
    rounding = torch.finfo(dtype).eps * max(true.abs().amax() for true in exact)
    steps = normalizer_name != "softmax" and dtype.itemsize == 2  # a key at the edge of the support: its slope jumps
    for backend in backends:
        fused = results(inputs, score, normalizer_name, mask, backend, dtype)
        for index, (true, ours, theirs) in enumerate(zip(exact, fused, plain, strict=True)):
            # gradients pass more roundings, also where the true one is 0 and the reference happens to hit it
            bound = 2 * distance(theirs, true) + 8 * rounding
            if index > 0:
                bound = 3 * distance(theirs, true) + 64 * rounding
            assert (steps and index > 0) or distance(ours, true) <= bound


@every_score
@every_normalizer
@every_mask
def test_nan_is_never_hidden(score_name: str, normalizer_name: str, mask_name: str) -> None:
    """A row with NaN among the scores of its allowed keys is NaN on every kernel; one without a key is zeros."""
    score, mask = build_score(score_name, 13), MASKS[mask_name](3, 7, 7)
    allowed = mask.dense(7, 7).expand(3, 7, 7)
    for row, column in ((0, 7), (4, 7), (7, 5), (4, 5)):  # 7: no NaN on this side
        query, key, value = random_inputs(3, num_queries=7, num_keys=7, width=13, value_width=2)
        query[:, row : row + 1], key[:, column : column + 1] = torch.nan, torch.nan
        broken = (score(query, score.memory(key)).isnan() & allowed).any(-1, keepdim=True).expand(-1, -1, 2)
        for backend in ("reference", *kernels_for((query, key, value), score, normalizer_name, mask)):
            output = attend(query, key, value, score=score, normalizer=normalizer_name, mask=mask, backend=backend)
            assert output.isnan().equal(broken), backend
            assert (output[~allowed.any(-1)] == 0).all(), backend


@every_score
@every_normalizer
@every_mask
def test_permuting_the_keys_permutes_the_weights(score_name: str, normalizer_name: str, mask_name: str) -> None:
    query, key, value = random_inputs(3, num_queries=5, num_keys=11, width=13, value_width=2)
    score = build_score(score_name, 13)
    if score.reads_position:
        pytest.skip(f"{score_name} scores positions, not keys")
    allowed = MASKS[mask_name](3, 5, 11).dense(5, 11).expand(3, 5, 11)
    order = torch.randperm(11)
    output, weights = attend(
        query, key, value, score=score, normalizer=normalizer_name, mask=allowed, return_weights=True
    )
    moved_output, moved_weights = attend(
        query,
        key[:, order],
        value[:, order],
        score=score,
        normalizer=normalizer_name,
        mask=allowed[..., order],
        return_weights=True,
    )
    best_two = score(query, score.memory(key)).masked_fill(~allowed, -torch.inf).topk(2).values
    tied = (best_two[..., 0] == best_two[..., 1]).any()
    if not (normalizer_name == "hard" and tied):  # among equals the first key wins, whichever it is
        torch.testing.assert_close(moved_weights, weights[..., order])
        torch.testing.assert_close(moved_output, output)


@every_score
@every_normalizer
@every_dtype
@settings(max_examples=4)
@given(size=sizes, extra=st.integers(1, 9))
def test_padding_and_batch_mates_change_nothing(
    score_name: str, normalizer_name: str, dtype_name: str, size: dict[str, int], extra: int
) -> None:
    dtype, (query, key, value) = DTYPES[dtype_name], draw(size, DTYPES[dtype_name])
    score, normalizer = build_score(score_name, size["width"], dtype), find_normalizer(normalizer_name)
    batch, length = size["batch"], size["num_keys"]
    alone = attend(query[:1], key[:1], value[:1], score=score, normalizer=normalizer, backend="reference")
    keys, values = (torch.cat([x, 50 * torch.randn(batch, extra, x.shape[-1], dtype=dtype)], 1) for x in (key, value))
    padding = masks.padding(torch.full((batch,), length))
    for backend in ("reference", *kernels_for((query, keys, values), score, normalizer_name, padding)):
        together = attend(query, keys, values, score=score, normalizer=normalizer, mask=padding, backend=backend)
        if normalizer_name != "hard" or dtype == torch.float64:
            torch.testing.assert_close(together[:1], alone, atol=tolerance(dtype), rtol=tolerance(dtype))


@every_score
@every_normalizer
@every_mask
def test_gradients_are_those_of_the_equation(score_name: str, normalizer_name: str, mask_name: str) -> None:
    query, key, value = random_inputs(2, num_queries=3, num_keys=5, width=3, value_width=2)
    score = build_score(score_name, 3)
    names = [name for name, _ in score.named_parameters()]
    tensors = [x.requires_grad_() for x in (query, key, value, *(p.detach().clone() for p in score.parameters()))]

    class Attend(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.score = score

        def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            mask = MASKS[mask_name](2, 3, 5)
            return attend(query, key, value, score=self.score, normalizer=normalizer_name, mask=mask)

    def call(query: Tensor, key: Tensor, value: Tensor, *parameters: Tensor) -> Tensor:
        named = dict(zip((f"score.{name}" for name in names), parameters, strict=True))
        output: Tensor = torch.func.functional_call(Attend(), named, (query, key, value))
        return output

    assert torch.autograd.gradcheck(call, tensors, nondet_tol=1e-12, fast_mode=True)


@every_score
@every_normalizer
@every_dtype
def test_a_row_without_keys_gives_zeros_and_zero_gradients(
    score_name: str, normalizer_name: str, dtype_name: str
) -> None:
    dtype = DTYPES[dtype_name]
    inputs = random_inputs(2, num_queries=3, num_keys=5, width=7, value_width=7, dtype=dtype)
    for tensor in inputs:
        tensor.requires_grad_()
    score = build_score(score_name, 7, dtype)
    allowed = torch.ones(2, 3, 5, dtype=torch.bool)
    allowed[0, 1] = allowed[1] = False
    for backend in ("reference", *kernels_for(inputs, score, normalizer_name, masks.dense(allowed))):
        output = attend(*inputs, score=score, normalizer=normalizer_name, mask=allowed, backend=backend)
        assert (output[~allowed.any(-1)] == 0).all()
        gradients = torch.autograd.grad(output.sum(), [*inputs, *score.parameters()], allow_unused=True)
        assert all(gradient is None or gradient.isfinite().all() for gradient in gradients)
        for gradient in gradients[1:3]:  # the second sentence allows nothing, so its keys and values learn nothing
            assert gradient is None or (gradient[1] == 0).all()


def extents(size: dict[str, int]) -> tuple[int, int, int]:
    return size["batch"], size["num_queries"], size["num_keys"]


def draw(size: dict[str, int], dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    torch.default_generator.manual_seed(size["seed"])
    widths = {"width": size["width"], "value_width": size["value_width"]}
    batch, num_queries, num_keys = extents(size)
    return random_inputs(batch, num_queries=num_queries, num_keys=num_keys, **widths, dtype=dtype)


def results(
    inputs: tuple[Tensor, Tensor, Tensor],
    score: Score,
    normalizer: str,
    mask: masks.Mask,
    backend: str,
    dtype: torch.dtype,
) -> list[Tensor]:
    """The output and the gradients of a fixed projection of it, computed in a dtype and returned in float64."""
    score = copy.deepcopy(score).to(dtype)
    tensors = [x.detach().to(dtype).requires_grad_() for x in inputs]
    output = attend(*tensors, score=score, normalizer=normalizer, mask=mask, backend=backend)
    direction = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).view(output.shape).to(dtype)
    gradients = torch.autograd.grad(output, [*tensors, *score.parameters()], direction, allow_unused=True)
    zeros = [torch.zeros_like(x) for x in [*tensors, *score.parameters()]]
    return [output.double(), *((z if g is None else g).double() for g, z in zip(gradients, zeros, strict=True))]


def kernels_for(inputs: tuple[Tensor, Tensor, Tensor], score: Score, normalizer: str, mask: masks.Mask) -> list[str]:
    """Every backend that doesn't refuse this call."""
    accepted = []
    for backend in set(BACKENDS) - {"auto", "reference"}:
        with contextlib.suppress(ValueError):
            accepted.append(explain(*inputs, score=score, normalizer=normalizer, mask=mask, backend=backend).backend)
    return accepted


def distance(a: Tensor, b: Tensor) -> Tensor:
    return (a - b).abs().amax()
