"""Compile the kernels of `decoding.kernels.best` for an H200, without one; a line for each."""

from __future__ import annotations

import torch
from compile_here import compile_only

from saccade.data.tokenizer import END
from saccade.decoding.kernels.best import best

if __name__ == "__main__":
    compile_only()
    for dtype in (torch.bfloat16, torch.float32):
        best(torch.randn(64, 37_000, dtype=dtype), 1, 0b11, END, None)
        best(torch.randn(64, 37_000, dtype=dtype), 8, 0b1011, END, torch.zeros(64, dtype=torch.bool))
