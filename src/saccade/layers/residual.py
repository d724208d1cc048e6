"""Residual connections: x + dropout(f(norm(x))), where the sum and its norm are one kernel on CUDA.

On a CUDA device with Triton each of these is one pass over memory (`ops/kernels/residual.py`), and rows keep the dtype
they come in: under autocast torch's norm would return float32. Elsewhere they are spelled out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast, final

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from saccade.ops.bias_sums import remember
from saccade.ops.dropout import drawn_seed, dropout
from saccade.ops.kernels.availability import is_fused
from saccade.ops.lazy_norm import Normed, Rows, are_few


class Dropped(NamedTuple):
    """A layer's output, of which a share is dropped where it is added."""

    output: Tensor
    share: float = 0.0


@final
class LazyDropout(nn.Module):
    """Dropout that is drawn where its result is added."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, output: Tensor) -> Dropped:
        return Dropped(output, self.share if self.training else 0.0)


@final
@dataclass
class LazySum:
    """x + dropout(output), computed when it is first read: on CUDA by the kernel that also computes its norm."""

    x: Tensor
    dropped: Dropped | None = None

    def __add__(self, dropped: Dropped) -> LazySum:
        return LazySum(self.total(), dropped)

    def total(self) -> Tensor:
        """Compute the sum."""
        if self.dropped is not None:
            self.x, self.dropped = add(self.x, *self.dropped), None
        return self.x

    def normalize(self, norm: Norm) -> Rows:
        """Compute the norm and keep the sum, which a residual connection reads next.

        A few rows are normalised by the linear layer that reads them, which also writes the sum.
        """
        x, dropped = self.x, self.dropped
        if are_few(x) and not (dropped is not None and dropped.share):
            output = None if dropped is None else dropped.output
            self.x = x if output is None else torch.empty_like(x, memory_format=torch.contiguous_format)
            self.dropped = None
            return Normed(x, output, self.x, norm.weight, norm.bias, norm.eps)
        if dropped is None or not is_fused(x):
            return norm.normalize(self.total())
        seed = drawn_seed(x.device) if dropped.share else None
        y, _, self.x = residual(dropped.output, x, norm.weight, norm.bias, seed, dropped.share, norm.eps, True)
        self.dropped = None
        return y

    def end(self, norm: nn.Module) -> Tensor:
        """Compute the norm of a sum that nobody reads again."""
        if self.dropped is None or not isinstance(norm, Norm):
            return cast(Tensor, norm(self.total()))
        return add(self.x, *self.dropped, norm)


# Sharded training (FSDP2) hooks itself to the tensors that go into a block and come out of it. It looks for them in
# dataclasses, or in older versions of torch in what is registered here.
pytree.register_pytree_node(LazySum, lambda lazy: ([lazy.x, lazy.dropped], None), lambda parts, _: LazySum(*parts))


@final
class Norm(nn.LayerNorm):
    """LayerNorm (Ba 2016) in the dtype of its rows."""

    def forward(self, x: Tensor | LazySum) -> Rows:  # type: ignore[override]
        return x.normalize(self) if isinstance(x, LazySum) else self.normalize(x)

    def normalize(self, x: Tensor) -> Tensor:
        """Normalise rows, [..., D] to [..., D]."""
        if not is_fused(x):
            return super().forward(x)
        return residual(x, None, self.weight, self.bias, None, 0.0, self.eps)[0]


def add(x: Tensor, output: Tensor, share: float, norm: Norm | None = None) -> Tensor:
    """Return x + dropout(output), normalised if there is a norm; `share` is dropped now."""
    if not is_fused(x) or (norm is None and not share):
        total = x + dropout(output, share)
        return total if norm is None else norm.normalize(total)
    weight, bias, epsilon = (None, None, 0.0) if norm is None else (norm.weight, norm.bias, norm.eps)
    return residual(output, x, weight, bias, drawn_seed(x.device) if share else None, share, epsilon)[0]


def to_block_dtype(x: Tensor) -> Tensor:
    """Convert x to the dtype that a block's rows have: on CUDA under autocast, autocast's."""
    if x.device.type != "cuda" or not torch.is_autocast_enabled("cuda"):
        return x
    return x.to(torch.get_autocast_dtype("cuda"))


@torch.library.custom_op(
    "saccade::residual",
    mutates_args=(),
    schema="(Tensor answer, Tensor? x, Tensor? weight, Tensor? bias, Tensor? seed, float share, float epsilon,"
    " bool keeps=False) -> (Tensor, Tensor, Tensor)",
)
def residual(
    answer: Tensor,
    x: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    seed: Tensor | None,
    share: float,
    epsilon: float,
    keeps: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """norm(x + dropout(answer)), each part where its arguments are given; mean and 1 / deviation of the rows; the sum.

    The sum is empty unless it is to be kept beside its norm.
    """
    from saccade.ops.kernels import residual as kernel

    return kernel.forward(answer, x, weight, bias, seed, share, epsilon, keeps)


@residual.register_fake
def _(
    answer: Tensor,
    x: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    seed: Tensor | None,
    share: float,
    epsilon: float,
    keeps: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    del bias, seed, share, epsilon
    y = torch.empty_like(answer if x is None else x, memory_format=torch.contiguous_format)
    num_rows = 0 if weight is None else answer.numel() // answer.shape[-1]
    return y, answer.new_empty(2, num_rows, dtype=torch.float32), y.new_empty(y.shape if keeps else 0)


@torch.library.custom_op(
    "saccade::residual_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor? grad_total, Tensor? y, Tensor moments, Tensor answer, Tensor? x, Tensor weight,"
    " Tensor bias, Tensor? seed, float share, bool sums) -> (Tensor, Tensor, Tensor)",
)
def residual_backward(
    grad: Tensor,
    grad_total: Tensor | None,
    y: Tensor | None,
    moments: Tensor,
    answer: Tensor,
    x: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    seed: Tensor | None,
    share: float,
    sums: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of a norm for the sum, the answer (empty if nothing was dropped), and weight and bias [2, D].

    If it `sums`, the answer's summed over rows is third of the last [3, D]. If the sum was kept, it stands for the
    answer, and what flowed into it is added.
    """
    from saccade.ops.kernels import residual as kernel

    return kernel.backward(grad, grad_total, y, moments, answer, x, weight, bias, seed, share, sums)


@residual_backward.register_fake
def _(
    grad: Tensor,
    grad_total: Tensor | None,
    y: Tensor | None,
    moments: Tensor,
    answer: Tensor,
    x: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    seed: Tensor | None,
    share: float,
    sums: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    del grad_total, y, moments, x, bias, share
    grad_answer = answer.new_empty(0 if seed is None else answer.shape)
    return torch.empty_like(grad), grad_answer, weight.new_empty(2 + sums, len(weight), dtype=torch.float32)


Inputs = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None, float, float, bool]
Gradients = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, None, None, None, None]


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: Inputs, output: tuple[Tensor, Tensor, Tensor]) -> None:
    answer, x, weight, bias, seed, ctx.share, _, ctx.keeps = inputs  # type: ignore[attr-defined]
    y, moments, total = output
    ctx.adds, ctx.dtype = x is not None, answer.dtype  # type: ignore[attr-defined]
    ctx.mark_non_differentiable(moments, *(() if ctx.keeps else (total,)))  # type: ignore[attr-defined]
    ctx.set_materialize_grads(False)  # the moments' would be zeros
    if weight is None:
        kept: tuple[Tensor | None, ...] = (None,) * 6
    else:
        kept = (*((None, moments, total, None) if ctx.keeps else (y, moments, answer, x)), weight, bias)  # type: ignore[attr-defined]
    ctx.save_for_backward(seed, *kept)  # type: ignore[arg-type]


def _differentiate(ctx: torch.autograd.function.FunctionCtx, *grads: Any) -> Gradients:
    grad, _, grad_total = grads
    seed, *kept = ctx.saved_tensors  # type: ignore[attr-defined]
    share, adds, dtype = ctx.share, ctx.adds, ctx.dtype  # type: ignore[attr-defined]
    weight = kept[-1]
    if weight is None:
        answer = grad if seed is None else residual(grad, None, None, None, seed, share, 0.0)[0]
        return answer.to(dtype), grad if adds else None, None, None, None, None, None, None
    if ctx.keeps:  # type: ignore[attr-defined]
        grad, grad_total = (torch.zeros_like(kept[2]) if one is None else one for one in (grad, grad_total))
    total, answer, summed = residual_backward(grad, grad_total, *kept, seed, share, adds)
    of_weight, of_bias = summed[:2].to(weight.dtype)
    of_answer = (total if seed is None else answer).to(dtype)
    if adds:  # the answer is a linear layer's
        remember(of_answer, summed[2])
    return of_answer, total if adds else None, of_weight, of_bias, None, None, None, None


residual.register_autograd(_differentiate, setup_context=_save)
