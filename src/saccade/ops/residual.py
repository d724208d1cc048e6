"""norm(x + dropout(branch)) as one operator, for CUDA devices with Triton: each part where its arguments are given."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from saccade.ops.known_gradients import note_sums
from saccade.ops.operator import operator, restore, save


class ResidualInputs(NamedTuple):
    """The arguments of the operator.

    Without x nothing is added, without a seed nothing is dropped, and without a weight nothing is normalised.
    """

    branch: Tensor
    x: Tensor | None
    weight: Tensor | None
    bias: Tensor | None
    seed: Tensor | None
    share: float
    epsilon: float
    keeps: bool = False  # the sum is returned, too


class NormInputs(NamedTuple):
    """Inputs of the gradient of a norm. A sum that was kept stands for the branch, without x and y."""

    y: Tensor | None
    moments: Tensor
    branch: Tensor
    x: Tensor | None
    weight: Tensor
    bias: Tensor
    seed: Tensor | None
    share: float


def _output_shapes(given: ResidualInputs) -> tuple[Tensor, Tensor, Tensor]:
    y = torch.empty_like(given.branch if given.x is None else given.x, memory_format=torch.contiguous_format)
    num_rows = 0 if given.weight is None else given.branch.numel() // given.branch.shape[-1]
    moments = given.branch.new_empty(2, num_rows, dtype=torch.float32)
    return y, moments, y.new_empty(y.shape if given.keeps else 0)


@operator("saccade::residual", shapes=_output_shapes)
def residual(given: ResidualInputs) -> tuple[Tensor, Tensor, Tensor]:
    """Compute norm(x + dropout(branch)), mean and 1 / deviation of the rows, and the sum (empty unless it is kept)."""
    from saccade.ops.kernels import residual as kernel

    return kernel.forward(given)


def _gradient_shapes(
    grad: Tensor, grad_total: Tensor | None, given: NormInputs, sums: bool
) -> tuple[Tensor, Tensor, Tensor]:
    del grad_total
    grad_branch = given.branch.new_empty(0 if given.seed is None else given.branch.shape)
    sums_of = given.weight.new_empty(2 + sums, len(given.weight), dtype=torch.float32)
    return torch.empty_like(grad), grad_branch, sums_of


@operator("saccade::residual_backward", shapes=_gradient_shapes)
def residual_backward(
    grad: Tensor, grad_total: Tensor | None, given: NormInputs, sums: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients of the sum, of the branch (empty if nothing was dropped), and of weight and bias [2, D].

    If it `sums`, the branch's gradient summed over rows is third of the last, [3, D]. `grad_total` is added to the
    gradient of a sum that was kept.
    """
    from saccade.ops.kernels import residual as kernel

    return kernel.backward(grad, grad_total, given, sums)


def _keep(ctx: FunctionCtx, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    given, (y, moments, total) = ResidualInputs(*inputs), output
    ctx.mark_non_differentiable(moments, *(() if given.keeps else (total,)))
    ctx.set_materialize_grads(False)  # the moments' would be zeros
    summands = (None, moments, total, None) if given.keeps else (y, moments, given.branch, given.x)
    kept = (None,) * 6 if given.weight is None else (*summands, given.weight, given.bias)
    save(ctx, given.keeps, given.x is not None, given.branch.dtype, *kept, given.seed, given.share)


def _differentiate(ctx: FunctionCtx, *grads: Any) -> tuple[Tensor | None, ...]:
    grad, _, grad_total = grads
    keeps, adds, dtype, *kept = restore(ctx)
    given = NormInputs(*kept)
    if given.weight is None:
        branch = grad if given.seed is None else residual(grad, None, None, None, given.seed, given.share, 0.0)[0]
        return branch.to(dtype), grad if adds else None, None, None, None, None, None, None
    if keeps:
        grad, grad_total = (torch.zeros_like(given.branch) if one is None else one for one in (grad, grad_total))
    total, branch, summed = residual_backward(grad, grad_total, *given, adds)
    of_weight, of_bias = summed[:2].to(given.weight.dtype)
    of_branch = (total if given.seed is None else branch).to(dtype)
    if adds:  # the branch is a linear layer's output
        note_sums(of_branch, summed[2])
    return of_branch, total if adds else None, of_weight, of_bias, None, None, None, None


residual.register_autograd(_differentiate, setup_context=_keep)
