"""Vectors set to a length, in one pass over memory each way: c v / |v| and its gradient, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from saccade.ops.precision import widen

CHUNK_ELEMENTS = 1 << 17


def unit(vector: Tensor, length: Tensor | None = None) -> Tensor:
    """Compute c v / |v| over the last axis, c = 1 or `length` [..., 1]; a zero vector stays zero and learns nothing."""
    rows = (*vector.shape[:-1], 1)
    length = vector.new_ones(()) if length is None else length
    scaled, _ = set_length(vector, length.expand(rows))
    return scaled


@torch.library.custom_op("saccade::set_length", mutates_args=())
def set_length(vector: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """Compute c v / |v| [..., D] and 1 / |v| [..., 1]."""
    rows, lengths = vector.reshape(-1, vector.shape[-1]), widen(length.reshape(-1, 1))
    scaled, inverse = rows.new_empty(rows.shape), lengths.new_empty(lengths.shape)
    for part in _chunks(rows):
        wide = widen(rows[part])
        norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        inverse[part] = norm.reciprocal().masked_fill_(norm == 0, 0)
        torch.mul(wide, inverse[part] * lengths[part], out=scaled[part])
    return scaled.view(vector.shape), inverse.view(*vector.shape[:-1], 1)


@set_length.register_fake
def _(vector: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    inverse_type = torch.promote_types(length.dtype, torch.float32)
    return vector.new_empty(vector.shape), length.new_empty(length.shape, dtype=inverse_type)


@torch.library.custom_op("saccade::set_length_backward", mutates_args=())
def set_length_backward(grad: Tensor, vector: Tensor, length: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
    """Compute, with u = v / |v|, (g - u (u·g)) c / |v| for the vector and u·g for the length."""
    width = vector.shape[-1]
    grads, rows = grad.reshape(-1, width), vector.reshape(-1, width)
    lengths, inverses = widen(length.reshape(-1, 1)), inverse.reshape(-1, 1)
    result, along = rows.new_empty(rows.shape), lengths.new_empty(lengths.shape)
    for part in _chunks(rows):
        g, v = widen(grads[part]), widen(rows[part])
        along[part] = torch.linalg.vecdot(g, v).unsqueeze(-1) * inverses[part]
        across = torch.addcmul(g, v, along[part] * inverses[part], value=-1)
        torch.mul(across, inverses[part] * lengths[part], out=result[part])
    return result.view(vector.shape), along.view(length.shape).to(length.dtype)


@set_length_backward.register_fake
def _(grad: Tensor, vector: Tensor, length: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
    del grad, inverse
    return vector.new_empty(vector.shape), length.new_empty(length.shape)


def _save(
    ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]
) -> None:
    ctx.save_for_backward(*inputs, output[1])
    ctx.mark_non_differentiable(output[1])


def _differentiate(ctx: torch.autograd.function.FunctionCtx, grad: Tensor, unused: Tensor) -> tuple[Tensor, Tensor]:
    del unused
    vector, length, inverse = ctx.saved_tensors  # type: ignore[attr-defined]
    gradients: tuple[Tensor, Tensor] = set_length_backward(grad, vector, length, inverse)
    return gradients


set_length.register_autograd(_differentiate, setup_context=_save)


def _chunks(rows: Tensor) -> Iterator[slice]:
    size = max(1, CHUNK_ELEMENTS // max(1, rows.shape[-1])) if rows.device.type == "cpu" else max(1, rows.shape[0])
    return (slice(start, start + size) for start in range(0, rows.shape[0], size))
