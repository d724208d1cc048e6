"""Ids to the first rows of a block, as training on a CUDA device reads them: one pass instead of seven."""

from __future__ import annotations

import torch
from torch import Tensor

from saccade.attention.dropout import drawn_seed
from saccade.attention.places import Places
from saccade.layers.residual import streamed


def embedded(ids: Tensor, table_VD: Tensor, place: Places | None, position_PD: Tensor | None, share: float) -> Tensor:
    """dropout(√D W[id] + P[place]) [..., D] in the dtype of a block's rows. `position_PD` gets no gradient."""
    at = None if place is None or position_PD is None else place.at
    seed, dtype = drawn_seed(ids.device) if share else None, streamed(table_VD.new_empty(0)).dtype
    return embedding(ids, table_VD, at, position_PD, seed, table_VD.shape[1] ** 0.5, share, dtype)


@torch.library.custom_op(
    "saccade::embedding",
    mutates_args=(),
    schema="(Tensor ids, Tensor table, Tensor? place, Tensor? position, Tensor? seed, float scale, float share,"
    " ScalarType dtype) -> Tensor",
)
def embedding(
    ids: Tensor,
    table: Tensor,
    place: Tensor | None,
    position: Tensor | None,
    seed: Tensor | None,
    scale: float,
    share: float,
    dtype: torch.dtype,
) -> Tensor:
    """dropout(scale W[id] + P[place])."""
    from saccade.layers.kernels.embedding import forward

    return forward(ids, table, place, position, seed, scale, share, dtype)


@embedding.register_fake
def _(
    ids: Tensor,
    table: Tensor,
    place: Tensor | None,
    position: Tensor | None,
    seed: Tensor | None,
    scale: float,
    share: float,
    dtype: torch.dtype,
) -> Tensor:
    del place, position, seed, scale, share
    return table.new_empty(*ids.shape, table.shape[1], dtype=dtype)


@torch.library.custom_op(
    "saccade::embedding_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor ids, Tensor? seed, int vocabulary, float scale, float share, ScalarType dtype)"
    " -> Tensor",
)
def embedding_backward(
    grad: Tensor, ids: Tensor, seed: Tensor | None, vocabulary: int, scale: float, share: float, dtype: torch.dtype
) -> Tensor:
    """The gradient for W [V, D]."""
    from saccade.layers.kernels.embedding_gradient import backward

    return backward(grad, ids, seed, vocabulary, scale, share, dtype)


@embedding_backward.register_fake
def _(
    grad: Tensor, ids: Tensor, seed: Tensor | None, vocabulary: int, scale: float, share: float, dtype: torch.dtype
) -> Tensor:
    del ids, seed, scale, share
    return grad.new_empty(vocabulary, grad.shape[-1], dtype=dtype)


Inputs = tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None, float, float, torch.dtype]


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: Inputs, output: Tensor) -> None:
    del output
    ids, table, _, _, seed, scale, share, _ = inputs
    ctx.save_for_backward(ids, seed)  # type: ignore[arg-type]
    ctx.sizes = len(table), table.dtype, scale, share  # type: ignore[attr-defined]


def _differentiate(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
    ids, seed = ctx.saved_tensors  # type: ignore[attr-defined]
    vocabulary, dtype, scale, share = ctx.sizes  # type: ignore[attr-defined]
    table = embedding_backward(grad, ids, seed, vocabulary, scale, share, dtype)
    return None, table, None, None, None, None, None, None


embedding.register_autograd(_differentiate, setup_context=_save)
