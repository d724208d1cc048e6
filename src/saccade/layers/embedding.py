"""Embeds ids for a block's first rows in one pass on a CUDA device, instead of seven."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from saccade.attention.positions import Positions
from saccade.layers.residual import to_block_dtype
from saccade.ops.dropout import drawn_seed


def embed(
    ids: Sequence[Tensor], table_VD: Tensor, places: Sequence[Positions], position_PD: Tensor | None, share: float
) -> list[Tensor]:
    """Return dropout(√D W[id] + P[place]) [..., D] for one or two tensors of ids, in the dtype of a block's rows.

    The table gets one gradient, of all ids; `position_PD` gets none.
    """
    at = [] if position_PD is None else [place.at for place in places]
    seed, dtype = drawn_seed(table_VD.device) if share else None, to_block_dtype(table_VD.new_empty(0)).dtype
    return embedding([*ids], table_VD, at, position_PD, seed, table_VD.shape[1] ** 0.5, share, dtype)


@torch.library.custom_op(
    "saccade::embedding",
    mutates_args=(),
    schema="(Tensor[] ids, Tensor table, Tensor[] places, Tensor? position, Tensor? seed, float scale, float share,"
    " ScalarType dtype) -> Tensor[]",
)
def embedding(
    ids: Sequence[Tensor],
    table: Tensor,
    places: Sequence[Tensor],
    position: Tensor | None,
    seed: Tensor | None,
    scale: float,
    share: float,
    dtype: torch.dtype,
) -> list[Tensor]:
    """Compute dropout(scale W[id] + P[place]); without places nothing is added."""
    from saccade.ops.kernels.embedding import forward

    return forward(ids, table, places, position, seed, scale, share, dtype)


@embedding.register_fake
def _(
    ids: Sequence[Tensor],
    table: Tensor,
    places: Sequence[Tensor],
    position: Tensor | None,
    seed: Tensor | None,
    scale: float,
    share: float,
    dtype: torch.dtype,
) -> list[Tensor]:
    del places, position, seed, scale, share
    return [table.new_empty(*one.shape, table.shape[1], dtype=dtype) for one in ids]


@torch.library.custom_op(
    "saccade::embedding_backward",
    mutates_args=(),
    schema="(Tensor[] grads, Tensor[] ids, Tensor? seed, int vocabulary, float scale, float share, ScalarType dtype)"
    " -> Tensor",
)
def embedding_backward(
    grads: Sequence[Tensor],
    ids: Sequence[Tensor],
    seed: Tensor | None,
    vocabulary: int,
    scale: float,
    share: float,
    dtype: torch.dtype,
) -> Tensor:
    """Return the gradient for W [V, D]."""
    from saccade.ops.kernels.embedding_gradient import backward

    return backward(grads, ids, seed, vocabulary, scale, share, dtype)


@embedding_backward.register_fake
def _(
    grads: Sequence[Tensor],
    ids: Sequence[Tensor],
    seed: Tensor | None,
    vocabulary: int,
    scale: float,
    share: float,
    dtype: torch.dtype,
) -> Tensor:
    del ids, seed, scale, share
    return grads[0].new_empty(vocabulary, grads[0].shape[-1], dtype=dtype)


Inputs = tuple[list[Tensor], Tensor, list[Tensor], Tensor | None, Tensor | None, float, float, torch.dtype]
Gradients = tuple[list[None], Tensor, list[None], None, None, None, None, None]


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: Inputs, output: list[Tensor]) -> None:
    del output
    ids, table, places, _, seed, scale, share, _ = inputs
    ctx.save_for_backward(seed, *ids)  # type: ignore[arg-type]
    ctx.num_places = len(places)  # type: ignore[attr-defined]
    ctx.sizes = len(table), scale, share, table.dtype  # type: ignore[attr-defined]


def _differentiate(ctx: torch.autograd.function.FunctionCtx, grads: list[Tensor]) -> Gradients:
    seed, *ids = ctx.saved_tensors  # type: ignore[attr-defined]
    table = embedding_backward(grads, ids, seed, *ctx.sizes)  # type: ignore[attr-defined]
    return [None] * len(ids), table, [None] * ctx.num_places, None, None, None, None, None  # type: ignore[attr-defined]


embedding.register_autograd(_differentiate, setup_context=_save)
