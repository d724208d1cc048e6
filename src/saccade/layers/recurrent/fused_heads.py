"""A reading and a writing head of a memory, fused: one kernel each way, on a CUDA device with Triton."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from saccade.attention.normalizers import Softmax
from saccade.attention.scores import Cosine
from saccade.ops.kernels.availability import is_fused

MOST = 8192  # numbers of a row's memory that a program can hold


def can_fuse(cell_BSK: Tensor, num_heads: tuple[int, int], score: object, normalizer: object) -> bool:
    """Return True for a head of each kind with Graves' own score, on a device that runs the kernel."""
    is_plain = isinstance(score, Cosine) and isinstance(normalizer, Softmax) and num_heads == (1, 1)
    is_small = cell_BSK[0].numel() <= MOST if len(cell_BSK) else False
    return is_plain and is_small and cell_BSK.dtype == torch.float32 and is_fused(cell_BSK)


@torch.library.custom_op("saccade::memory_step", mutates_args=())
def memory_step(
    where_BHW: Tensor, what_BV: Tensor, cell_BSK: Tensor, weight_BHS: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what is read, the memory afterwards, and the heads' weights; see `MemoryHeads`.

    A head's W numbers are key, sharpness, gate, three shifts and focus, and V those to erase and to add, all raw.
    """
    from saccade.layers.recurrent.kernels import heads

    return heads.forward(*(x.contiguous() for x in (where_BHW, what_BV, cell_BSK, weight_BHS, beta)))


@memory_step.register_fake
def _(where: Tensor, what: Tensor, cell: Tensor, weight: Tensor, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    del where, what, beta
    return cell.new_empty(len(cell), cell.shape[2]), torch.empty_like(cell), torch.empty_like(weight)


@torch.library.custom_op("saccade::memory_step_backward", mutates_args=())
def memory_step_backward(
    grad_read: Tensor,
    grad_cell: Tensor,
    grad_weight: Tensor,
    where_BHW: Tensor,
    what_BV: Tensor,
    cell_BSK: Tensor,
    weight_BHS: Tensor,
    beta: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of the five inputs; that of β for each row."""
    from saccade.layers.recurrent.kernels import heads

    given = (x.contiguous() for x in (where_BHW, what_BV, cell_BSK, weight_BHS, beta))
    flowed = (grad_read.contiguous(), grad_cell.contiguous(), grad_weight.contiguous())
    return heads.backward(flowed, *given)


@memory_step_backward.register_fake
def _(*given: Tensor) -> tuple[Tensor, ...]:
    return (*(torch.empty_like(x) for x in given[3:7]), given[5].new_empty(len(given[5])))


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    del output
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
    *found, beta_B = memory_step_backward(*grads, *ctx.saved_tensors)
    return (*found, beta_B.sum())


memory_step.register_autograd(_differentiate, setup_context=_save)
