"""Residual connections: x + dropout(f(norm(x))), where the sum and its norm are one kernel on CUDA.

On a CUDA device with Triton each of these is one pass over memory (`ops/kernels/residual.py`), and rows keep the dtype
they come in: under autocast torch's norm would return float32. Elsewhere they are spelled out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast, final

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from saccade.ops.dropout import dropout
from saccade.ops.kernels.availability import is_fused
from saccade.ops.lazy_norm import LazyNorm, Rows, are_few
from saccade.ops.pass_context import draw_seed
from saccade.ops.residual import residual


class DroppedOutput(NamedTuple):
    """A layer's output, of which a share is dropped where it is added."""

    output: Tensor
    share: float = 0.0


@final
class LazyDropout(nn.Module):
    """Dropout that is drawn where its result is added."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, output: Tensor) -> DroppedOutput:
        return DroppedOutput(output, self.share if self.training else 0.0)


@final
@dataclass
class LazySum:
    """x + dropout(output), computed when it is first read: on CUDA by the kernel that also computes its norm."""

    x: Tensor
    dropped: DroppedOutput | None = None

    def __add__(self, dropped: DroppedOutput) -> LazySum:
        return LazySum(self.total(), dropped)

    def total(self) -> Tensor:
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
            return LazyNorm(x, output, self.x, norm.weight, norm.bias, norm.eps)
        if dropped is None or not is_fused(x):
            return norm.normalize(self.total())
        seed = draw_seed(x.device) if dropped.share else None
        y, _, self.x = residual(dropped.output, x, norm.weight, norm.bias, seed, dropped.share, norm.eps, True)
        self.dropped = None
        return y

    def end(self, norm: nn.Module) -> Tensor:
        """Compute the norm of a sum that is not read again."""
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
    return residual(output, x, weight, bias, draw_seed(x.device) if share else None, share, epsilon)[0]


def to_block_dtype(x: Tensor) -> Tensor:
    """Convert x to the dtype that a block's rows have: on CUDA under autocast, autocast's."""
    if x.device.type != "cuda" or not torch.is_autocast_enabled("cuda"):
        return x
    return x.to(torch.get_autocast_dtype("cuda"))
