"""Whether Triton can run here: on a CUDA device; on CPU tensors only in its interpreter, for tests of kernels.

`SACCADE_TRITON=0` does without it: everything is then computed as it is spelled out.
"""

from __future__ import annotations

import importlib.util
import os

import torch

HAS_TRITON = importlib.util.find_spec("triton") is not None and os.environ.get("SACCADE_TRITON") != "0"
INTERPRETED = False  # tests of kernels say otherwise: interpreted, everything else would take hours


def runs_on(device: torch.device) -> bool:
    """Whether a Triton kernel may be launched on tensors there."""
    return HAS_TRITON and (device.type == "cuda" or INTERPRETED)
