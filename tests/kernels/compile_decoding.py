"""Compile the kernels of decoding for an H200, without one; a line for each."""

from __future__ import annotations

import torch
from compile_here import compile_only  # type: ignore[import-not-found]

from saccade.data.tokenizer import END
from saccade.decoding import BeamOptions
from saccade.decoding.board import GreedyBoard, Likeliest, Size
from saccade.decoding.kernels.best import best
from saccade.decoding.kernels.greedy_take import take

if __name__ == "__main__":
    compile_only()
    for dtype in (torch.bfloat16, torch.float32):
        best(torch.randn(64, 37_000, dtype=dtype), 1, 0b11, END, None)
        best(torch.randn(64, 37_000, dtype=dtype), 8, 0b1011, END, torch.zeros(64, dtype=torch.bool))
    for rounds in (0, 8):
        board = GreedyBoard(BeamOptions(max_rounds=rounds), Size(64, 1, 64, 32), torch.device("cpu"))
        take(board, Likeliest(torch.zeros(64, 1), torch.zeros(64, 1, dtype=torch.long)))
