"""Compile the kernels of decoding for an H200, without one; a line for each."""

from __future__ import annotations

import torch
from compile_here import compile_only, step  # type: ignore[import-not-found]

from saccade.attention.kernels.decode import step_triton
from saccade.attention.kernels.decode.enter import enter
from saccade.data.text.tokenizer import END
from saccade.decoding import BeamOptions
from saccade.decoding.continuous.beam_state import BeamState
from saccade.decoding.continuous.greedy_state import GreedyState, StateSize, TopTokens
from saccade.decoding.continuous.kernels import beam_update, greedy_update
from saccade.decoding.continuous.kernels import top_tokens as best_module
from saccade.decoding.continuous.kernels.greedy_update import update
from saccade.decoding.continuous.kernels.top_tokens import best
from saccade.ops.kernels import few_rows
from saccade.ops.lazy_norm import LazyNorm


def few(dtype: torch.dtype, num_rows: int, width: int, num_outputs: int) -> None:
    """A linear layer of rows, and of the norm of a sum."""
    x, weight = torch.zeros(num_rows, width, dtype=dtype), torch.zeros(num_outputs, width, dtype=dtype)
    few_rows.product(x, weight, weight[:, 0].contiguous(), True)
    few_rows.product(x, weight, None, False)
    few_rows.product(LazyNorm(x, x, x, x[0], x[0], 1e-5), weight, weight[:, 0].contiguous(), False)
    few_rows.product(LazyNorm(x, None, x, x[0], x[0], 1e-5), weight, weight[:, 0].contiguous(), True)


if __name__ == "__main__":
    compile_only()
    for module in (few_rows, step_triton, best_module, beam_update, greedy_update):
        module.launch_options = lambda _: {"EARLY": True, "launch_pdl": True}  # type: ignore[attr-defined]
    place = torch.zeros(64, dtype=torch.long)
    for dtype in (torch.bfloat16, torch.float32):
        for num_rows, width, num_outputs in ((1, 512, 1536), (4, 512, 1536), (16, 2048, 512), (4, 4096, 1024)):
            few(dtype, num_rows, width, num_outputs)
        joint, kept = torch.zeros(4, 32, 2, 8, 64, dtype=dtype), torch.zeros(2, 4, 64, 8, 64, dtype=dtype)
        enter((kept[0], kept[1]), place[:4], (joint[:, :, 0], joint[:, :, 1]))
        step(dtype, 1, None, is_new=True)
        step(dtype, 4, torch.zeros(4, 32, dtype=torch.int32), is_new=True)
        step(dtype, 4, torch.zeros(4, dtype=torch.int32), is_new=False)
        best(torch.randn(64, 37_000, dtype=dtype), 1, 0b11, END, place, 0)
        best(torch.randn(64, 37_000, dtype=dtype), 8, 0b1011, END, place, 3)
    for rounds in (0, 8):
        state = GreedyState(BeamOptions(max_rounds=rounds), StateSize(64, 1, 64, 32), torch.device("cpu"))
        update(state, TopTokens(torch.zeros(64, 1), torch.zeros(64, 1, dtype=torch.long)))
    for rounds, width, num_best in ((0, 4, 1), (8, 5, 3), (8, 16, 16)):
        options = BeamOptions(width=width, num_best=num_best, max_rounds=rounds)
        beams = BeamState(options, StateSize(64, width, 64, 32), torch.device("cpu"))
        rows = (64 * width, 2 * width)
        beam_update.update(beams, TopTokens(torch.zeros(rows), torch.zeros(rows, dtype=torch.long)))
