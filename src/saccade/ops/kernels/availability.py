"""Checks whether Triton can run: on a CUDA device; on CPU tensors only in its interpreter, for tests of kernels.

Where the package `triton` is missing, torch's operators compute everything.
"""

from __future__ import annotations

import importlib.util

import torch
from torch import Tensor

HAS_TRITON = importlib.util.find_spec("triton") is not None
KERNEL_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
INTERPRETED = False  # tests of kernels say otherwise: interpreted, everything else would take hours


def runs_on(device: torch.device) -> bool:
    """Return True if Triton kernels can run on the device."""
    return HAS_TRITON and (device.type == "cuda" or INTERPRETED)


def is_fused(x: Tensor) -> bool:
    """Return True if x takes the fused Triton path (CUDA, Triton present, float32, bfloat16 or float16)."""
    return x.device.type == "cuda" and HAS_TRITON and x.dtype in KERNEL_DTYPES


def is_hopper(device: torch.device) -> bool:
    """Return True if the device is an NVIDIA Hopper or newer."""
    is_nvidia = device.type == "cuda" and torch.version.hip is None
    return is_nvidia and torch.cuda.get_device_capability(device) >= (9, 0)


def num_multiprocessors(device: torch.device) -> int:
    """Return how many multiprocessors a CUDA device has; a few in the interpreter."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 3
