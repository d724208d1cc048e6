"""Who is measured by `saccade bench additive`: our kernels, and the plain expression, eager and compiled."""

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
    """The expression as it is written; eager it is quickest with a matrix product."""
    hidden_NTSA = torch.tanh(query_NTA.unsqueeze(-2) + key_NSA.unsqueeze(-3))
    return (hidden_NTSA @ v_NA[:, None, :, None]).squeeze(-1).softmax(-1) @ value_NSD


def summed(query_NTA: Tensor, key_NSA: Tensor, v_NA: Tensor, value_NSD: Tensor) -> Tensor:
    """The same with a sum, which compilers fuse with what is summed."""
    hidden_NTSA = torch.tanh(query_NTA.unsqueeze(-2) + key_NSA.unsqueeze(-3))
    return (hidden_NTSA * v_NA[:, None, None]).sum(-1).softmax(-1) @ value_NSD


def exact(query_NTA: Tensor, key_NSA: Tensor, v_NA: Tensor, value_NSD: Tensor) -> Tensor:
    """What backend="additive" runs once queries and keys are projected."""
    if query_NTA.device.type == "cpu":
        return tiles.additive_score(query_NTA, key_NSA, v_NA).softmax(-1) @ value_NSD
    inputs = (query_NTA, key_NSA, v_NA.float(), value_NSD)
    return fused.attention(*inputs, None, None, None, 1, 0.0, None)[0]


def series(query_NTA: Tensor, key_NSA: Tensor, v_NA: Tensor, value_NSD: Tensor) -> Tensor:
    """What backend="series" runs."""
    inputs = (query_NTA, key_NSA, v_NA.float(), value_NSD)
    return additive_series.additive_series(*inputs, None, None, None, 1, 0.0, None)[0]


@functools.cache
def _score(width: int, device: torch.device, dtype: torch.dtype) -> Additive:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return Additive(width, width).requires_grad_(False).to(device, dtype)


def step(query_N1A: Tensor, key_NSA: Tensor, v_NA: Tensor, value_NSD: Tensor, backend: str = "auto") -> Tensor:
    """A decoder's step; W and v are its score's own."""
    del v_NA
    score = _score(query_N1A.shape[-1], query_N1A.device, query_N1A.dtype)
    return attend(query_N1A, None, value_NSD, memory=key_NSA, score=score, backend=backend)


def compiled() -> Run:
    """The sum, compiled afresh for the shapes of one case."""
    torch.compiler.reset()
    return torch.compile(summed, dynamic=False)


def contestant(name: str) -> Run:
    """By its name, as it is now."""
    found: dict[str, Callable[[], Run]] = {
        "exact": lambda: exact,
        "series": lambda: series,
        "eager": lambda: plain,
        "compile": compiled,
        "attend": lambda: step,
        "eager step": lambda: functools.partial(step, backend="reference"),
    }
    return found[name]()
