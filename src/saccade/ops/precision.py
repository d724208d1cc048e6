"""Half precision is for storing; sums and exponentials are taken in float32 at least."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

_OUTPUT: ContextVar[torch.dtype | None] = ContextVar("output", default=None)


def widen(tensor: Tensor) -> Tensor:
    """Convert a tensor to float32; float64 stays."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def compute_dtype(tensor: Tensor) -> torch.dtype:
    """Return the dtype of a product with the tensor: autocast's, or its own."""
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else tensor.dtype


@contextmanager
def outputs_in(dtype: torch.dtype) -> Iterator[None]:
    """Let products of an output layer on a CPU have a dtype inside the block; in float32, that of autocast."""
    token = _OUTPUT.set(None if dtype == torch.float32 else dtype)
    try:
        yield
    finally:
        _OUTPUT.reset(token)


def output_dtype(vectors: Tensor) -> torch.dtype:
    """Return the dtype of the products of these vectors with an output layer."""
    if vectors.device.type != "cpu" or vectors.dtype != torch.float32:
        return vectors.dtype
    return _OUTPUT.get() or compute_dtype(vectors)


def product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Multiply two matrices; return the product in `dtype`, rounded only once where the device can."""
    if dtype == torch.float32 != a.dtype and _writes_wide(a.device):
        return torch.mm(a, b, out_dtype=dtype)
    return (a @ b).to(dtype)


@functools.cache
def _writes_wide(device: torch.device) -> bool:
    """Return True if products of bfloat16 can be written in float32: on CUDA, in some versions of torch."""
    a = torch.zeros(8, 8, dtype=torch.bfloat16, device=device)
    try:
        torch.mm(a, a, out_dtype=torch.float32)
    except (RuntimeError, TypeError):
        return False
    return True
