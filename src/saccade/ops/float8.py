"""Matrix products in float8: the linear layers of Transformer blocks, while they train.

y = x Wᵀ, both scaled so that their largest entry becomes the largest of e4m3, and rounded to it; gradients, which span
more powers of two, to e5m2 (Micikevicius 2022, section 3). Each tensor has one scale, found when it is used. Weights,
biases and sums stay wide. The layers' code is not touched: in a block that trains, `F.linear` means `linear` below.
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
from saccade.ops.precision import computed_in
from saccade.ops.relu_network import fused_network

VALUES, GRADIENTS = torch.float8_e4m3fn, torch.float8_e5m2
TILE = 16  # rows of a factor begin at so many bytes
SMALLEST = 1e-30  # a tensor of zeros has a scale too
METHODS = ("forward", "read")  # of a block, where it computes


class Narrow(NamedTuple):
    """A matrix x [N, K] in float8, as it is and turned [K, N'] (N' a multiple of 16), so that x is about x8 scale."""

    rows_NK: Tensor
    turned_KN: Tensor
    scale: Tensor


def refusal(device: torch.device) -> str | None:
    """Why there are no such products there."""
    if device.type != "cuda":
        return "it needs a CUDA device"
    if torch.cuda.get_device_capability(device) < (8, 9):
        return f"it needs compute capability 8.9 or more, and {torch.cuda.get_device_name(device)} has less"
    return None


def train_in_float8(blocks: Iterable[nn.Module]) -> None:
    """From now on their linear layers compute in float8 while they train; parameters and their names stay."""
    for block in blocks:
        for name in METHODS:
            if hasattr(block, name):
                setattr(block, name, functools.partial(_narrowed, getattr(block, name)))  # a copy's is the copy's


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.linear` in float8; widths that don't fill tiles stay wide."""
    if any(width % TILE for width in weight.shape):
        return F.linear(x, weight, bias)
    return float8_linear(x, weight, bias, computed_in(x))[0]


def narrow(x_NK: Tensor, dtype: torch.dtype) -> Narrow:
    """A matrix in float8."""
    if is_fused(x_NK):
        from saccade.ops.kernels import float8 as kernel

        return Narrow(*kernel.narrow(x_NK, kernel.largest(x_NK), dtype, SMALLEST))
    largest = torch.finfo(dtype).max
    scale = (torch.linalg.vector_norm(x_NK, torch.inf, dtype=torch.float32) / largest).clamp_min(SMALLEST)
    rows_NK = (x_NK.float() * scale.reciprocal()).clamp(-largest, largest).to(dtype)
    turned_KN = F.pad(rows_NK.view(torch.uint8), (0, 0, 0, -len(x_NK) % TILE)).mT.contiguous().view(dtype)
    return Narrow(rows_NK, turned_KN, scale)


def product(
    first: tuple[Tensor, Tensor],
    second: tuple[Tensor, Tensor],
    dtype: torch.dtype,
    bias: Tensor | None = None,
    *,
    fast: bool = False,
) -> Tensor:
    """A Bᵀ + b of two float8 matrices [N, K] and [M, K], each with its scale; `fast` sums in fewer bits.

    On a CPU it is emulated in float32, as few can multiply float8.
    """
    (a_NK, scale_a), (b_MK, scale_b) = first, second
    if not a_NK.is_cuda:
        wide_NM = (a_NK.float() * scale_a) @ (b_MK.float() * scale_b).mT
        return (wide_NM if bias is None else wide_NM + bias).to(dtype)
    inside = None if bias is None or dtype == torch.float32 else bias.to(dtype)  # cuBLAS adds no float32 bias
    y_NM = torch._scaled_mm(
        a_NK,
        b_MK.mT,
        scale_a=scale_a,
        scale_b=scale_b,
        bias=inside,
        out_dtype=dtype,
        use_fast_accum=fast,
    )
    return y_NM if bias is None or inside is not None else y_NM.add_(bias)


@torch.library.custom_op("saccade::float8_linear", mutates_args=())
def float8_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """x Wᵀ + b [..., F], and for the backward pass x and W in float8, turned, with their scales."""
    x8, weight8 = (narrow(matrix, VALUES) for matrix in (x.reshape(-1, x.shape[-1]).contiguous(), weight.contiguous()))
    y = product((x8.rows_NK, x8.scale), (weight8.rows_NK, weight8.scale), dtype, bias, fast=True)
    return y.view(*x.shape[:-1], -1), x8.turned_KN, weight8.turned_KN, x8.scale, weight8.scale


@float8_linear.register_fake
def _(
    x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    del bias
    num_rows = x.numel() // x.shape[-1]
    turned_KN = x.new_empty(x.shape[-1], num_rows + -num_rows % TILE, dtype=VALUES)
    y = x.new_empty(*x.shape[:-1], len(weight), dtype=dtype)
    return y, turned_KN, weight.new_empty(weight.shape[::-1], dtype=VALUES), *_scales(x)


def _scales(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty((), dtype=torch.float32), x.new_empty((), dtype=torch.float32)


@torch.library.custom_op("saccade::float8_linear_backward", mutates_args=())
def float8_linear_backward(
    grad: Tensor, x8: Tensor, weight8: Tensor, x_scale: Tensor, weight_scale: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients for x (in `dtype`), and for W and b in float32."""
    grad_NF = grad.reshape(-1, grad.shape[-1]).contiguous()
    grad8 = narrow(grad_NF, GRADIENTS)
    x_NK = product((grad8.rows_NK, grad8.scale), (weight8, weight_scale), dtype)
    weight_FK = product((grad8.turned_KN, grad8.scale), (x8, x_scale), torch.float32)
    return x_NK.view(*grad.shape[:-1], -1), weight_FK, grad_NF.sum(0, dtype=torch.float32)


@float8_linear_backward.register_fake
def _(
    grad: Tensor, x8: Tensor, weight8: Tensor, x_scale: Tensor, weight_scale: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    del x_scale, weight_scale
    width, out_width = weight8.shape
    weight_FK = grad.new_empty(out_width, width, dtype=torch.float32)
    return grad.new_empty(*grad.shape[:-1], len(x8), dtype=dtype), weight_FK, weight_FK.new_empty(out_width)


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
    """Linear layers as they are computed here."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return INSTEAD.get(func, func)(*args, **(kwargs or {}))


def _narrowed(method: MethodType, *args: Any, **kwargs: Any) -> Any:
    """What a block's own method returns."""
    if not method.__self__.training:  # type: ignore[attr-defined]
        return method(*args, **kwargs)
    with _InFloat8(), Override(half_weights=None):
        return method(*args, **kwargs)
