"""Unit vectors in one pass over memory each way: v / |v| and its gradient, in chunks that fit the cache."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from saccade.attention.precision import widened

CHUNK_ELEMENTS = 1 << 17


def unit(vector: Tensor) -> Tensor:
    """v / |v| over the last axis, computed in float32 at least; a zero vector stays zero and learns nothing."""
    direction, _ = unit_and_inverse_norm(vector)
    return direction


@torch.library.custom_op("saccade::unit_and_inverse_norm", mutates_args=())
def unit_and_inverse_norm(vector: Tensor) -> tuple[Tensor, Tensor]:
    """v / |v| [..., D] and 1 / |v| [..., 1]."""
    rows = vector.reshape(-1, vector.shape[-1])
    direction = torch.empty_like(rows)
    inverse = rows.new_empty(rows.shape[0], 1, dtype=widened(rows).dtype)
    for part in _chunks(rows):
        wide = widened(rows[part])
        norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        inverse[part] = norm.reciprocal().masked_fill_(norm == 0, 0)
        direction[part] = wide * inverse[part]
    return direction.view(vector.shape), inverse.view(*vector.shape[:-1], 1)


@unit_and_inverse_norm.register_fake
def _(vector: Tensor) -> tuple[Tensor, Tensor]:
    inverse_type = torch.promote_types(vector.dtype, torch.float32)
    return (
        vector.new_empty(vector.shape),
        vector.new_empty(*vector.shape[:-1], 1, dtype=inverse_type),
    )


@torch.library.custom_op("saccade::unit_backward", mutates_args=())
def unit_backward(grad: Tensor, direction: Tensor, inverse: Tensor) -> Tensor:
    """(g - u (u·g)) / |v|: what of the gradient is not along the vector."""
    width = direction.shape[-1]
    grads, units, inverses = grad.reshape(-1, width), direction.reshape(-1, width), inverse.reshape(-1, 1)
    result = torch.empty_like(units)
    for part in _chunks(units):
        g, u = widened(grads[part]), widened(units[part])
        along = torch.linalg.vecdot(g, u).unsqueeze(-1)
        result[part] = torch.addcmul(g, u, along, value=-1).mul_(inverses[part])
    return result.view(direction.shape)


@unit_backward.register_fake
def _(grad: Tensor, direction: Tensor, inverse: Tensor) -> Tensor:
    del grad, inverse
    return direction.new_empty(direction.shape)


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
    del inputs
    ctx.save_for_backward(*output)
    ctx.mark_non_differentiable(output[1])


def _differentiate(ctx: torch.autograd.function.FunctionCtx, grad: Tensor, unused: Tensor) -> Tensor:
    del unused
    direction, inverse = ctx.saved_tensors  # type: ignore[attr-defined]
    return unit_backward(grad, direction, inverse)


unit_and_inverse_norm.register_autograd(_differentiate, setup_context=_save)


def _chunks(rows: Tensor) -> Iterator[slice]:
    size = max(1, CHUNK_ELEMENTS // max(1, rows.shape[-1])) if rows.device.type == "cpu" else max(1, rows.shape[0])
    return (slice(start, start + size) for start in range(0, rows.shape[0], size))
