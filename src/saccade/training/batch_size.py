"""Finds the batch size: the largest power of two of tokens whose step fits well into the free memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import psutil
import torch

from saccade.data.batches import PairBatch, collate_pairs
from saccade.training.memory import peak_memory

LARGEST = 1 << 14
SHARE_OF_FREE = 0.6


def find_batch_size(step: Callable[[PairBatch], object], *, longest: int, device: torch.device) -> int:
    """Try larger and larger batches of the longest sentences; `step` is a forward and a backward pass."""
    free = _free_memory(device)
    size = 1 << max(0, longest - 1).bit_length()  # at least one sentence
    while 2 * size <= LARGEST:
        batch = _worst_batch(size, longest)
        try:
            peak = peak_memory(lambda batch=batch: step(batch), device)  # type: ignore[misc]
        except torch.OutOfMemoryError:
            return max(longest, size // 2)
        if 2 * (peak or 0) > SHARE_OF_FREE * free:
            return size
        size *= 2
    return size


def _worst_batch(tokens: int, longest: int) -> PairBatch:
    row = np.full(longest - 1, 4, np.int32)  # and </s>
    rows = [row] * max(1, tokens // longest)
    return collate_pairs(rows, rows)


def _free_memory(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
