"""One projection for several: its parts are views, and gradients that come back side by side are taken as they lie."""

from __future__ import annotations

import torch
from torch import Tensor


class _Split(torch.autograd.Function):
    """`Tensor.split`, whose own backward pass copies all parts into a new tensor."""

    @staticmethod
    def forward(joint: Tensor, widths: tuple[int, ...]) -> tuple[Tensor, ...]:
        return joint.split(widths, -1)

    @staticmethod
    def setup_context(
        ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, tuple[int, ...]], output: tuple[Tensor, ...]
    ) -> None:
        del output
        ctx.widths = inputs[1]  # type: ignore[attr-defined]

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> tuple[Tensor, None]:
        whole = _whole(grads)
        return torch.cat(grads, -1) if whole is None else whole, None


def split(joint: Tensor, widths: tuple[int, ...]) -> tuple[Tensor, ...]:
    """The parts of a joint projection [..., sum of widths], each [..., width]."""
    if not joint.requires_grad or torch.compiler.is_compiling():
        return joint.split(widths, -1)
    parts: tuple[Tensor, ...] = _Split.apply(joint, widths)
    return parts


def _whole(parts: tuple[Tensor, ...]) -> Tensor | None:
    """The tensor these are the columns of, if there is one whose rows hold them and nothing else."""
    first, width = parts[0], sum(part.shape[-1] for part in parts)
    at = first.storage_offset()
    for part in parts:
        same_rows = (
            part.shape[:-1] == first.shape[:-1] and part.stride() == first.stride() and part.dtype == first.dtype
        )
        same_buffer = part.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        if not same_rows or not same_buffer or part.storage_offset() != at or part.stride(-1) != 1:
            return None
        at += part.shape[-1]
    if first.stride(-2) != width:
        return None
    return first.as_strided((*first.shape[:-1], width), first.stride(), first.storage_offset())
