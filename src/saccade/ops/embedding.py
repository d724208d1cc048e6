"""dropout(scale W[id] + P[place]) as one operator, for CUDA devices with Triton, and the gradient of the table W."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from saccade.ops.operator import operator


class EmbeddingInputs(NamedTuple):
    """The arguments of the operator: one or two tensors of ids; without places nothing is added.

    Places [T] or [..., T] say which rows of `position` [P, D] are added.
    """

    ids: Sequence[Tensor]
    table: Tensor
    places: Sequence[Tensor]
    position: Tensor | None
    seed: Tensor | None
    scale: float
    share: float
    dtype: torch.dtype


class EmbeddingGradientInputs(NamedTuple):
    """The arguments of its gradient: a gradient [..., D] for each tensor of ids."""

    grads: Sequence[Tensor]
    ids: Sequence[Tensor]
    seed: Tensor | None
    vocabulary: int
    scale: float
    share: float
    dtype: torch.dtype


def _output_shapes(given: EmbeddingInputs) -> list[Tensor]:
    width = given.table.shape[1]
    return [given.table.new_empty(*one.shape, width, dtype=given.dtype) for one in given.ids]


@operator("saccade::embedding", shapes=_output_shapes)
def embedding(given: EmbeddingInputs) -> list[Tensor]:
    """Compute dropout(scale W[id] + P[place]), [..., D] for each of the ids [...]."""
    from saccade.ops.kernels.embedding import forward

    return forward(given)


def _gradient_shape(given: EmbeddingGradientInputs) -> Tensor:
    return given.grads[0].new_empty(given.vocabulary, given.grads[0].shape[-1], dtype=given.dtype)


@operator("saccade::embedding_backward", shapes=_gradient_shape)
def embedding_backward(given: EmbeddingGradientInputs) -> Tensor:
    """Compute the gradient for W [V, D]."""
    from saccade.ops.kernels.embedding_gradient import backward

    return backward(given)


def _keep(ctx: FunctionCtx, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    del output
    given = EmbeddingInputs(*inputs)
    ctx.save_for_backward(given.seed, *given.ids)  # type: ignore[arg-type]
    ctx.num_places = len(given.places)  # type: ignore[attr-defined]
    ctx.sizes = len(given.table), given.scale, given.share, given.table.dtype  # type: ignore[attr-defined]


def _differentiate(ctx: FunctionCtx, grads: list[Tensor]) -> tuple[Any, ...]:
    seed, *ids = ctx.saved_tensors  # type: ignore[attr-defined]
    table = embedding_backward(grads, ids, seed, *ctx.sizes)  # type: ignore[attr-defined]
    return [None] * len(ids), table, [None] * ctx.num_places, None, None, None, None, None  # type: ignore[attr-defined]


embedding.register_autograd(_differentiate, setup_context=_keep)
