"""What surrounds a layer of a block: its answer dropped out, added to its question, and normalised.

On a CUDA device with Triton each of these is one pass over memory (`kernels/residual.py`), and rows keep the dtype they
come in: under autocast torch would answer a norm in float32. Elsewhere they are spelled out.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from saccade.attention.dropout import drawn_seed, dropout
from saccade.attention.kernels.triton_here import HAS_TRITON

KERNEL_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@final
class Norm(nn.LayerNorm):
    """LayerNorm (Ba 2016) in the dtype of its rows."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] to [..., D]."""
        if not is_fused(x):
            return super().forward(x)
        y, _ = residual(x, None, self.weight, self.bias, None, 0.0, self.eps)
        return y


def added(x: Tensor, answer: Tensor, share: float, norm: Norm | None = None) -> Tensor:
    """x + dropout(answer), normalised if there is a norm; `share` is what is dropped now, 0 outside of training."""
    if not is_fused(x) or (norm is None and not share):
        total = x + dropout(answer, share)
        return total if norm is None else norm(total)
    weight, bias, epsilon = (None, None, 0.0) if norm is None else (norm.weight, norm.bias, norm.eps)
    y, _ = residual(answer, x, weight, bias, drawn_seed(x.device) if share else None, share, epsilon)
    return y


def streamed(x: Tensor) -> Tensor:
    """x in the dtype that a block's rows have: on a CUDA device under autocast, autocast's."""
    if x.device.type != "cuda" or not torch.is_autocast_enabled("cuda"):
        return x
    return x.to(torch.get_autocast_dtype("cuda"))


def is_fused(x: Tensor) -> bool:
    """Whether the kernels are for such rows."""
    return x.device.type == "cuda" and HAS_TRITON and x.dtype in KERNEL_DTYPES


@torch.library.custom_op(
    "saccade::residual",
    mutates_args=(),
    schema="(Tensor answer, Tensor? x, Tensor? weight, Tensor? bias, Tensor? seed, float share, float epsilon)"
    " -> (Tensor, Tensor)",
)
def residual(
    answer: Tensor,
    x: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    seed: Tensor | None,
    share: float,
    epsilon: float,
) -> tuple[Tensor, Tensor]:
    """norm(x + dropout(answer)), each part where its arguments are given; and mean and 1 / deviation of the rows."""
    from saccade.layers.kernels import residual as kernel

    return kernel.forward(answer, x, weight, bias, seed, share, epsilon)


@residual.register_fake
def _(
    answer: Tensor,
    x: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    seed: Tensor | None,
    share: float,
    epsilon: float,
) -> tuple[Tensor, Tensor]:
    del bias, seed, share, epsilon
    y = torch.empty_like(answer if x is None else x, memory_format=torch.contiguous_format)
    num_rows = 0 if weight is None else answer.numel() // answer.shape[-1]
    return y, answer.new_empty(2, num_rows, dtype=torch.float32)


@torch.library.custom_op(
    "saccade::residual_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor y, Tensor moments, Tensor answer, Tensor? x, Tensor weight, Tensor bias, Tensor? seed,"
    " float share) -> (Tensor, Tensor, Tensor)",
)
def residual_backward(
    grad: Tensor,
    y: Tensor,
    moments: Tensor,
    answer: Tensor,
    x: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    seed: Tensor | None,
    share: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of a norm for the sum, the answer (empty if nothing was dropped), and weight and bias [2, D]."""
    from saccade.layers.kernels import residual as kernel

    return kernel.backward(grad, y, moments, answer, x, weight, bias, seed, share)


@residual_backward.register_fake
def _(
    grad: Tensor,
    y: Tensor,
    moments: Tensor,
    answer: Tensor,
    x: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    seed: Tensor | None,
    share: float,
) -> tuple[Tensor, Tensor, Tensor]:
    del grad, moments, x, bias, share
    grad_answer = answer.new_empty(0 if seed is None else answer.shape)
    return torch.empty_like(y), grad_answer, weight.new_empty(2, len(weight), dtype=torch.float32)


Inputs = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None, float, float]
Gradients = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, None, None, None]


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: Inputs, output: tuple[Tensor, Tensor]) -> None:
    answer, x, weight, bias, seed, ctx.share, _ = inputs  # type: ignore[attr-defined]
    ctx.adds, ctx.dtype = x is not None, answer.dtype  # type: ignore[attr-defined]
    ctx.mark_non_differentiable(output[1])
    kept = (None,) * 6 if weight is None else (*output, answer, x, weight, bias)
    ctx.save_for_backward(seed, *kept)  # type: ignore[arg-type]


def _differentiate(ctx: torch.autograd.function.FunctionCtx, grad: Tensor, *unused: Tensor) -> Gradients:
    del unused
    seed, y, *kept = ctx.saved_tensors  # type: ignore[attr-defined]
    share, adds, dtype = ctx.share, ctx.adds, ctx.dtype  # type: ignore[attr-defined]
    if y is None:
        answer = grad if seed is None else residual(grad, None, None, None, seed, share, 0.0)[0]
        return answer.to(dtype), grad if adds else None, None, None, None, None, None
    total, answer, parameters = residual_backward(grad, y, *kept, seed, share)
    weight, bias = parameters.to(kept[-1].dtype)
    return (total if seed is None else answer).to(dtype), total if adds else None, weight, bias, None, None, None


residual.register_autograd(_differentiate, setup_context=_save)
