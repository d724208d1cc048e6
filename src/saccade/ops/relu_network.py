"""Two linear layers with a relu between them: backwards, one kernel makes the gradient that reaches the relu.

With Triton on a CUDA device; elsewhere, and where nothing learns, it is one layer after the other.

R: rows. F: width of the inner layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from saccade.ops.half_weights import current_copies
from saccade.ops.kernels.availability import is_fused
from saccade.ops.known_gradients import take_sums
from saccade.ops.lazy_norm import LazyNorm, Rows
from saccade.ops.linear import Linear, fused_linear, linear_backward
from saccade.ops.operator import operator
from saccade.ops.precision import compute_dtype, product


def relu_network(x: Rows, inner: Linear, outer: Linear) -> Tensor:
    """Compute outer(relu(inner(x))) [..., D]; both layers have biases."""
    if isinstance(x, LazyNorm) or not (is_fused(x) and torch.is_grad_enabled()):
        y: Tensor = outer(inner(x, relu=True))
        return y
    dtype, layers = compute_dtype(x), [(layer.weight, layer.bias) for layer in (inner, outer)]
    return fused_network(x.to(dtype), *layers, *(current_copies([weight], [bias], dtype) for weight, bias in layers))[0]


def _forward(
    x: Tensor,
    inner: Sequence[Tensor],
    outer: Sequence[Tensor],
    narrow_inner: Sequence[Tensor],
    narrow_outer: Sequence[Tensor],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the network in x's dtype, the relu, and each W in x's dtype (empty if given). A layer is W and b."""
    hidden, inner_weight = fused_linear(x, inner[:1], inner[1:], True, narrow_inner)
    y, outer_weight = fused_linear(hidden, outer[:1], outer[1:], False, narrow_outer)
    return y, hidden, inner_weight, outer_weight


fused_network = torch.library.custom_op("saccade::relu_network", _forward, mutates_args=())
fused_network.register_fake(_forward)


class NetworkGradientInputs(NamedTuple):
    """The arguments of the network's gradient; `dtype` is the weights', `sums`: the outer bias's gradient is wanted."""

    grad: Tensor
    hidden: Tensor
    x: Tensor
    inner_weight: Tensor
    outer_weight: Tensor
    dtype: torch.dtype
    sums: bool


def _gradient_shapes(given: NetworkGradientInputs) -> tuple[Tensor, ...]:
    grad, hidden, x, inner_weight, outer_weight, dtype, sums = given
    grad_x, inner, inner_bias = linear_backward(hidden, None, x, inner_weight, dtype, True)
    _, outer, outer_bias = linear_backward(grad, None, hidden, outer_weight, dtype, sums)
    return grad_x, inner, inner_bias, outer, outer_bias


@operator("saccade::relu_network_backward", shapes=_gradient_shapes)
def network_backward(given: NetworkGradientInputs) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Compute the gradients for x, and for each layer's W in `dtype` and b in float32 (empty if it is not summed)."""
    from saccade.ops.kernels.columns import column_sums
    from saccade.ops.kernels.masked_product import masked_product

    grad, hidden, x, inner_weight, outer_weight, dtype, sums = given
    grad_RD, hidden_RF = grad.reshape(-1, len(outer_weight)).contiguous(), hidden.reshape(-1, len(inner_weight))
    outer, outer_bias = product(grad_RD.mT, hidden_RF, dtype), grad_RD.new_empty(0, dtype=torch.float32)
    if sums:
        outer_bias = column_sums(grad_RD)
    grad_RF, inner_bias = masked_product(grad_RD, outer_weight, hidden_RF)
    grad_x, inner, _ = linear_backward(grad_RF, None, x, inner_weight, dtype, False)
    return grad_x, inner, inner_bias, outer, outer_bias


Inputs = tuple[Tensor, Sequence[Tensor], Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]]


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: Inputs, output: tuple[Tensor, ...]) -> None:
    (x, inner, outer, *given), (_, hidden, *narrow) = inputs, output
    ctx.dtypes = [tensor.dtype for tensor in (*inner, *outer)]  # type: ignore[attr-defined]
    ctx.num_given = [len(tensors) for tensors in given]  # type: ignore[attr-defined]
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)  # of what has none
    weights = [
        made if made.numel() else (*known, layer[0])[0]
        for made, known, layer in zip(narrow, given, (inner, outer), strict=True)
    ]
    ctx.save_for_backward(hidden, x, *weights)


def _differentiate(
    ctx: torch.autograd.function.FunctionCtx, grad: Tensor, *unused: None
) -> tuple[Tensor, list[Tensor], list[Tensor], list[None], list[None]]:
    del unused
    known, dtypes = take_sums(grad), ctx.dtypes  # type: ignore[attr-defined]
    x, *found = network_backward(grad, *ctx.saved_tensors, dtypes[0], known is None)  # type: ignore[attr-defined]
    found[3] = found[3] if known is None else known
    inner, inner_bias, outer, outer_bias = (one.to(dtype) for one, dtype in zip(found, dtypes, strict=True))
    inner_given, outer_given = ([None] * count for count in ctx.num_given)  # type: ignore[attr-defined]
    return x, [inner, inner_bias], [outer, outer_bias], inner_given, outer_given


fused_network.register_autograd(_differentiate, setup_context=_save)
