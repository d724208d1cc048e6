"""Matrix products in float8: the linear layers of Transformer blocks, while they train.

y = x Wᵀ, both scaled so that their largest entry becomes the largest of e4m3, and rounded to it; gradients, which span
more powers of two, to e5m2 (Micikevicius 2022, section 3). Each tensor has one scale, found when it is used. Weights,
biases and sums stay wide. The layers' code is not touched: in a block that trains, `F.linear` means `linear` below.

R: rows. F: outputs of a linear layer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from saccade.ops.kernels.availability import is_fused
from saccade.ops.linear import fused_linear
from saccade.ops.pass_context import Override
from saccade.ops.precision import compute_dtype
from saccade.ops.relu_network import fused_network

VALUES, GRADIENTS = torch.float8_e4m3fn, torch.float8_e5m2
TILE = 16  # rows of a factor begin at so many bytes
SMALLEST = 1e-30  # a tensor of zeros has a scale too
METHODS = ("forward", "read")  # of a block, where it computes


class Narrow(NamedTuple):
    """A matrix x [R, D] in float8, as it is and turned [D, R'] (R' a multiple of 16), so that x is about x8 scale."""

    rows_RD: Tensor
    turned_DR: Tensor
    scale: Tensor


def refuses(device: torch.device) -> str | None:
    """Return why the device has no float8 products, or None."""
    if device.type != "cuda":
        return "it needs a CUDA device"
    if torch.cuda.get_device_capability(device) < (8, 9):
        return f"it needs compute capability 8.9 or more, and {torch.cuda.get_device_name(device)} has less"
    return None


def train_in_float8(blocks: Iterable[nn.Module]) -> None:
    """Let the linear layers of these blocks compute in float8 while they train; parameters and their names stay."""
    for block in blocks:
        for name in METHODS:
            if hasattr(block, name):
                setattr(block, name, functools.partial(_run_in_float8, getattr(block, name)))  # a copy's is the copy's


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute `F.linear` in float8; widths that don't fill tiles stay wide."""
    if any(width % TILE for width in weight.shape):
        return F.linear(x, weight, bias)
    return float8_linear(x, weight, bias, compute_dtype(x))[0]


def narrow(x_RD: Tensor, dtype: torch.dtype) -> Narrow:
    """Scale a matrix and round it to float8."""
    if is_fused(x_RD):
        from saccade.ops.kernels import float8 as kernel

        return Narrow(*kernel.narrow(x_RD, kernel.largest(x_RD), dtype, SMALLEST))
    largest = torch.finfo(dtype).max
    scale = (torch.linalg.vector_norm(x_RD, torch.inf, dtype=torch.float32) / largest).clamp_min(SMALLEST)
    rows_RD = (x_RD.float() * scale.reciprocal()).clamp(-largest, largest).to(dtype)
    turned_DR = F.pad(rows_RD.view(torch.uint8), (0, 0, 0, -len(x_RD) % TILE)).mT.contiguous().view(dtype)
    return Narrow(rows_RD, turned_DR, scale)


def product(
    first: tuple[Tensor, Tensor],
    second: tuple[Tensor, Tensor],
    dtype: torch.dtype,
    bias: Tensor | None = None,
    *,
    fast: bool = False,
) -> Tensor:
    """Compute A Bᵀ + b of two float8 matrices [R, D] and [F, D], each with its scale; `fast` sums in fewer bits.

    On a CPU it is emulated in float32, as few can multiply float8.
    """
    (a_RD, scale_a), (b_FD, scale_b) = first, second
    if not a_RD.is_cuda:
        wide_RF = (a_RD.float() * scale_a) @ (b_FD.float() * scale_b).mT
        return (wide_RF if bias is None else wide_RF + bias).to(dtype)
    inside = None if bias is None or dtype == torch.float32 else bias.to(dtype)  # cuBLAS adds no float32 bias
    y_RF = torch._scaled_mm(
        a_RD,
        b_FD.mT,
        scale_a=scale_a,
        scale_b=scale_b,
        bias=inside,
        out_dtype=dtype,
        use_fast_accum=fast,
    )
    return y_RF if bias is None or inside is not None else y_RF.add_(bias)


@torch.library.custom_op("saccade::float8_linear", mutates_args=())
def float8_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Compute x Wᵀ + b [..., F], and for the backward pass x and W in float8, transposed, with their scales."""
    x8, weight8 = (narrow(matrix, VALUES) for matrix in (x.reshape(-1, x.shape[-1]).contiguous(), weight.contiguous()))
    y = product((x8.rows_RD, x8.scale), (weight8.rows_RD, weight8.scale), dtype, bias, fast=True)
    return y.view(*x.shape[:-1], -1), x8.turned_DR, weight8.turned_DR, x8.scale, weight8.scale


@float8_linear.register_fake
def _(
    x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    del bias
    num_rows = x.numel() // x.shape[-1]
    turned_DR = x.new_empty(x.shape[-1], num_rows + -num_rows % TILE, dtype=VALUES)
    y = x.new_empty(*x.shape[:-1], len(weight), dtype=dtype)
    return y, turned_DR, weight.new_empty(weight.shape[::-1], dtype=VALUES), *_scales(x)


def _scales(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty((), dtype=torch.float32), x.new_empty((), dtype=torch.float32)


@torch.library.custom_op("saccade::float8_linear_backward", mutates_args=())
def float8_linear_backward(
    grad: Tensor, x8: Tensor, weight8: Tensor, x_scale: Tensor, weight_scale: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients for x (in `dtype`), and for W and b in float32."""
    grad_RF = grad.reshape(-1, grad.shape[-1]).contiguous()
    grad8 = narrow(grad_RF, GRADIENTS)
    x_RD = product((grad8.rows_RD, grad8.scale), (weight8, weight_scale), dtype)
    weight_FD = product((grad8.turned_DR, grad8.scale), (x8, x_scale), torch.float32)
    return x_RD.view(*grad.shape[:-1], -1), weight_FD, grad_RF.sum(0, dtype=torch.float32)


@float8_linear_backward.register_fake
def _(
    grad: Tensor, x8: Tensor, weight8: Tensor, x_scale: Tensor, weight_scale: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    del x_scale, weight_scale
    width, out_width = weight8.shape
    weight_FD = grad.new_empty(out_width, width, dtype=torch.float32)
    return grad.new_empty(*grad.shape[:-1], len(x8), dtype=dtype), weight_FD, weight_FD.new_empty(out_width)


def _save(
    ctx: torch.autograd.function.FunctionCtx,
    inputs: tuple[Tensor, Tensor, Tensor | None, torch.dtype],
    output: tuple[Tensor, ...],
) -> None:
    x, weight, bias, _ = inputs
    ctx.dtypes = x.dtype, weight.dtype, None if bias is None else bias.dtype  # type: ignore[attr-defined]
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(*output[1:])


def _differentiate(
    ctx: torch.autograd.function.FunctionCtx, grad: Tensor, *unused: Tensor
) -> tuple[Tensor, Tensor, Tensor | None, None]:
    del unused
    x_dtype, weight_dtype, bias_dtype = ctx.dtypes  # type: ignore[attr-defined]
    x, weight, bias = float8_linear_backward(grad, *ctx.saved_tensors, x_dtype)  # type: ignore[attr-defined]
    return x, weight.to(weight_dtype), None if bias_dtype is None else bias.to(bias_dtype), None


float8_linear.register_autograd(_differentiate, setup_context=_save)


def _fused_linear(
    x: Tensor, weights: list[Tensor], biases: list[Tensor], relu: bool, narrow: list[Tensor]
) -> tuple[Tensor, None]:
    del narrow
    y = linear(x, torch.cat(weights), torch.cat(biases) if biases else None)
    return F.relu(y) if relu else y, None


def _fused_network(x: Tensor, inner: list[Tensor], outer: list[Tensor], *narrow: list[Tensor]) -> tuple[Tensor, None]:
    del narrow
    return linear(F.relu(linear(x, *inner)), *outer), None


INSTEAD: dict[Any, Callable[..., Any]] = {
    F.linear: linear,
    fused_linear._opoverload: _fused_linear,
    fused_network._opoverload: _fused_network,
}


class _InFloat8(TorchFunctionMode):
    """Replaces linear layers by those in float8."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return INSTEAD.get(func, func)(*args, **(kwargs or {}))


def _run_in_float8(method: MethodType, *args: Any, **kwargs: Any) -> Any:
    """Call a block's own method, in float8 while the block trains."""
    if not method.__self__.training:  # type: ignore[attr-defined]
        return method(*args, **kwargs)
    with _InFloat8(), Override(half_weights=None):
        return method(*args, **kwargs)
