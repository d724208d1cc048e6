"""Chooses the precision of matrix products from what a device can do and how wide a network is, never by a clock."""

from __future__ import annotations

import functools
import subprocess
import sys

import torch
from torch import nn

OUTPUT = "bfloat16_output"  # a precision: float32, but for the output layer
MANY = 4096  # outputs
WIDE = 256  # on a CPU narrower matrices lose more time by their casts than they win (docs/fast.md)
PROBE = """
import torch
for rows in (1, 37, 512):
    x, weight = torch.randn(rows, 512, requires_grad=True), torch.randn(512, 512, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ weight
    y.float().sum().backward()
    assert weight.grad.isfinite().all()
"""


def compute_dtype(wanted: str, device: torch.device, network: nn.Module | None = None) -> torch.dtype:
    """Return the dtype of matrix products; `auto` takes bfloat16 where it works and pays."""
    if wanted == "auto":
        pays = _pays_on_gpu() if device.type == "cuda" else _multiplies_natively() and _is_wide(network) and _survives()
        return torch.bfloat16 if pays else torch.float32
    if wanted in ("float32", OUTPUT):
        return torch.float32
    return torch.bfloat16  # with float8, all but the linear layers


def output_dtype(wanted: str, device: torch.device, network: nn.Module) -> torch.dtype:
    """Return the dtype of the output layer's products; `auto` takes bfloat16 on a CPU where the vocabulary is large.

    They are most of a narrow network's work, and their sums are long: what rounding does to one logit averages out.
    """
    if device.type != "cpu" or wanted not in ("auto", OUTPUT):
        return compute_dtype(wanted, device, network)
    pays = _has_many_outputs(network) and _multiplies_natively() and _survives()
    return torch.bfloat16 if wanted == OUTPUT or pays else compute_dtype(wanted, device, network)


def _has_many_outputs(network: nn.Module) -> bool:
    weights = dict(network.named_parameters(remove_duplicate=False))
    return len(weights["output.weight"]) >= MANY if "output.weight" in weights else False


def _pays_on_gpu() -> bool:
    return torch.cuda.is_bf16_supported(including_emulation=False)


def _multiplies_natively() -> bool:
    """Return whether this CPU has instructions for products of bfloat16; oneDNN emulates them elsewhere, slowly."""
    has_instructions = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.backends.mkldnn.is_available() and has_instructions


def _is_wide(network: nn.Module | None) -> bool:
    """Return whether most weights are in wide matrices."""
    weights = [] if network is None else network.parameters()
    sizes = [(weight.numel(), min(weight.shape)) for weight in weights if weight.dim() == 2]
    return 2 * sum(size for size, side in sizes if side >= WIDE) > sum(size for size, _ in sizes)


@functools.cache
def _survives() -> bool:
    """Return whether a child process gets through products of bfloat16: some CPUs advertise AMX and die of it."""
    return subprocess.run([sys.executable, "-c", PROBE], capture_output=True, check=False).returncode == 0
