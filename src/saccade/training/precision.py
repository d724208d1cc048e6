"""Tests whether bfloat16 works here and is faster, in a child process: on some CPUs the attempt kills the process."""

from __future__ import annotations

import subprocess
import sys

import torch

PROBE = """
import time, torch
def seconds(x):
    x @ x
    start = time.perf_counter()
    for _ in range(5):
        x @ x
    return time.perf_counter() - start
x = torch.randn(512, 512)
assert seconds(x.bfloat16()) < 0.8 * seconds(x)
"""


def compute_dtype(wanted: str, device: torch.device) -> torch.dtype:
    """Return the dtype of matrix products; `auto` takes bfloat16 where it works and is faster than float32."""
    if wanted == "auto":
        return torch.bfloat16 if _is_faster(device) else torch.float32
    return (
        torch.float32 if wanted == "float32" else torch.bfloat16
    )  # with float8, all but the linear layers is bfloat16


def _is_faster(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if not torch.backends.mkldnn.is_available():
        return False
    return subprocess.run([sys.executable, "-c", PROBE], capture_output=True, check=False).returncode == 0
