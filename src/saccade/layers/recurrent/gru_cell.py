"""A GRU step in half precision with a float32 state: one kernel each way, on a CUDA device with Triton."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.library.custom_op("saccade::gru_cell", mutates_args=())
def gru_cell(known_BG: Tensor | None, given_BG: Tensor, hidden_BG: Tensor, h_BD: Tensor) -> tuple[Tensor, Tensor]:
    """Compute, with g = known (if given) + given: r, z = sigmoid(g + u); h' = (1 - z) tanh(g_n + r u_n) + z h.

    Return the state in float32, and in the gates' dtype.
    """
    from saccade.ops.kernels import gru

    return gru.forward(known_BG, given_BG, hidden_BG, h_BD)


@gru_cell.register_fake
def _(known: Tensor | None, given: Tensor, hidden: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    del known, hidden
    return torch.empty_like(h), torch.empty_like(h, dtype=given.dtype)


@torch.library.custom_op("saccade::gru_cell_backward", mutates_args=())
def gru_cell_backward(
    grad_wide: Tensor | None,
    grad_narrow: Tensor | None,
    known_BG: Tensor | None,
    given_BG: Tensor,
    hidden_BG: Tensor,
    h_BD: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients for g, u and h, from those of the state in one or both dtypes."""
    from saccade.ops.kernels import gru

    return gru.backward((grad_wide, grad_narrow), known_BG, given_BG, hidden_BG, h_BD)


@gru_cell_backward.register_fake
def _(
    grad_wide: Tensor | None, grad_narrow: Tensor | None, known: Tensor | None, given: Tensor, hidden: Tensor, h: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    del grad_wide, grad_narrow, known
    return torch.empty_like(given), torch.empty_like(hidden), torch.empty_like(h)


def _save(
    ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor | None, ...], output: tuple[Tensor, Tensor]
) -> None:
    del output
    ctx.save_for_backward(*inputs)  # type: ignore[arg-type]
    ctx.set_materialize_grads(False)


def _differentiate(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    if grads[0] is None and grads[1] is None:
        return None, None, None, None
    grad_BG, grad_hidden_BG, grad_BD = gru_cell_backward(*grads, *ctx.saved_tensors)  # type: ignore[attr-defined]
    return grad_BG if ctx.needs_input_grad[0] else None, grad_BG, grad_hidden_BG, grad_BD  # type: ignore[attr-defined]


gru_cell.register_autograd(_differentiate, setup_context=_save)
