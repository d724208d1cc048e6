"""The contestants of `saccade bench additive`: our kernels, and the plain expression, eager and compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from saccade.attention import attend
from saccade.attention.kernels.additive import fused, tiles
from saccade.attention.kernels.additive import series as additive_series
from saccade.attention.scores import Additive

OURS = ("exact", "series", "attend")
Run = Callable[..., Tensor]


def plain(query_NTA: Tensor, key_NSA: Tensor, v_NA: Tensor, value_NSD: Tensor) -> Tensor:
    """Compute additive attention as the formula is written; a matrix product is fastest when eager."""
    hidden_NTSA = torch.tanh(query_NTA.unsqueeze(-2) + key_NSA.unsqueeze(-3))
    return (hidden_NTSA @ v_NA[:, None, :, None]).squeeze(-1).softmax(-1) @ value_NSD


def attend_by_sum(query_NTA: Tensor, key_NSA: Tensor, v_NA: Tensor, value_NSD: Tensor) -> Tensor:
    """Compute the same with a sum instead of a matrix product, because compilers fuse a sum with its terms."""
    hidden_NTSA = torch.tanh(query_NTA.unsqueeze(-2) + key_NSA.unsqueeze(-3))
    return (hidden_NTSA * v_NA[:, None, None]).sum(-1).softmax(-1) @ value_NSD


def exact(query_NTA: Tensor, key_NSA: Tensor, v_NA: Tensor, value_NSD: Tensor) -> Tensor:
    """Run the kernel of backend="additive" on projected queries and keys."""
    if query_NTA.device.type == "cpu":
        return tiles.additive_score(query_NTA, key_NSA, v_NA).softmax(-1) @ value_NSD
    inputs = (query_NTA, key_NSA, v_NA.float(), value_NSD)
    return fused.attention(*inputs, None, None, None, 1, 0.0, None)[0]


def series(query_NTA: Tensor, key_NSA: Tensor, v_NA: Tensor, value_NSD: Tensor) -> Tensor:
    """Run the kernel of backend="series" on projected queries and keys."""
    inputs = (query_NTA, key_NSA, v_NA.float(), value_NSD)
    return additive_series.additive_series(*inputs, None, None, None, 1, 0.0, None)[0]


@functools.cache
def _score(width: int, device: torch.device, dtype: torch.dtype) -> Additive:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return Additive(width, width).requires_grad_(False).to(device, dtype)


def step(query_N1A: Tensor, key_NSA: Tensor, v_NA: Tensor, value_NSD: Tensor, backend: str = "auto") -> Tensor:
    """Attend with one query for each sentence, as a decoder does; W and v belong to the score."""
    del v_NA
    score = _score(query_N1A.shape[-1], query_N1A.device, query_N1A.dtype)
    return attend(query_N1A, None, value_NSD, memory=key_NSA, score=score, backend=backend)


def compile_sum() -> Run:
    """Compile the expression with a sum again, for the shapes of one case."""
    torch.compiler.reset()
    return torch.compile(attend_by_sum, dynamic=False)


def contestant(name: str) -> Run:
    """Return the function of a contestant by its name."""
    found: dict[str, Callable[[], Run]] = {
        "exact": lambda: exact,
        "series": lambda: series,
        "eager": lambda: plain,
        "compile": compile_sum,
        "attend": lambda: step,
        "eager step": lambda: functools.partial(step, backend="reference"),
    }
    return found[name]()
