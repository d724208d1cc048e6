"""Scores and normalisers of one head, as ONNX operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn

from saccade.attention.normalizers import Hard
from saccade.attention.scores import (
    Additive,
    Concat,
    Cosine,
    Dot,
    General,
    Location,
    Mean,
    ReducedRank,
    ScaledDot,
    Score,
)
from saccade.export.onnx.graph import FAR, Graph

MEMORIES: dict[type[Score], Callable[[Graph, Any, str], str]] = {  # what a score computes of the keys alone
    General: lambda graph, score, key: graph("MatMul", key, graph.constant(score.W.mT)),
    ReducedRank: lambda graph, score, key: graph("MatMul", key, graph.constant(score.V.mT)),
    Additive: lambda graph, score, key: graph(
        "Add", graph("MatMul", key, graph.constant(score.U.mT)), graph.constant(score.b)
    ),
    Concat: lambda graph, score, key: graph("MatMul", key, graph.constant(score.w[score.query_width :, None])),
    Cosine: lambda graph, score, key: graph.unit(key),
}


def remember(graph: Graph, score: Score, key_BSD: str) -> str:
    """Return what a score computes of the keys alone, [B, S, A]."""
    compute = MEMORIES.get(type(score))
    return key_BSD if compute is None else compute(graph, score, key_BSD)


def score_keys(graph: Graph, score: Score, query_BTD: str, memory_BSA: str) -> str:
    """Return how well each key answers each query, [B, T, S]."""
    return SCORINGS[type(score)](graph, score, query_BTD, memory_BSA)


def weigh(graph: Graph, normalizer: nn.Module, score_BTS: str, allowed: str) -> str:
    """Normalise scores by softmax, or take the first of the largest; forbidden keys weigh 0."""
    score_BTS = graph("Where", allowed, score_BTS, graph.constant(FAR))
    real = graph("Cast", allowed, to=graph.type_of(np.float32))
    if not isinstance(normalizer, Hard):
        return str(graph("Mul", graph("Softmax", score_BTS, axis=-1), real))
    best = graph("ArgMax", score_BTS, axis=-1, keepdims=1)
    place_S = graph.steps(graph.number(0), graph.size(score_BTS, 2))
    chosen = graph("Cast", graph("Equal", place_S, best), to=graph.type_of(np.float32))
    return str(graph("Mul", chosen, real))


def _multiply(graph: Graph, query: str, memory: str) -> str:
    return str(graph("MatMul", query, graph("Transpose", memory, perm=[0, 2, 1])))


def _scale(graph: Graph, score: ScaledDot, query: str, memory: str) -> str:
    assert score.query_width is not None
    return _multiply(graph, graph("Mul", query, graph.constant(score.query_width**-0.5)), memory)


def _ignore(graph: Graph, score: Mean, query: str, memory: str) -> str:
    """Give every key 0."""
    del score
    return _multiply(graph, graph("Mul", query, graph.constant(0.0)), memory)


def _add(graph: Graph, score: Additive, query: str, memory: str) -> str:
    asked = graph("Unsqueeze", graph("MatMul", query, graph.constant(score.W.mT)), graph.integers(2))
    hidden = graph("Tanh", graph("Add", asked, graph("Unsqueeze", memory, graph.integers(1))))
    return str(graph("Squeeze", graph("MatMul", hidden, graph.constant(score.v[:, None])), graph.integers(-1)))


def _lower(graph: Graph, score: ReducedRank, query: str, memory: str) -> str:
    return _multiply(graph, graph("MatMul", query, graph.constant(score.U.mT)), memory)


def _join(graph: Graph, score: Concat, query: str, memory: str) -> str:
    asked = graph("MatMul", query, graph.constant(score.w[: score.query_width, None]))
    return str(graph("Add", asked, graph("Transpose", memory, perm=[0, 2, 1])))


def _turn(graph: Graph, score: Cosine, query: str, memory: str) -> str:
    return _multiply(graph, graph("Mul", graph.unit(query), graph.constant(score.beta)), memory)


def _locate(graph: Graph, score: Location, query: str, memory: str) -> str:
    """Score the places that are there; they are at most `max_length`."""
    every = graph("MatMul", query, graph.constant(score.W.mT))
    count = graph("Unsqueeze", graph.size(memory, 1), graph.integers(0))
    return str(graph("Slice", every, graph.integers(0), count, graph.integers(2)))


SCORINGS: dict[type[Score], Callable[[Graph, Any, str, str], str]] = {
    Dot: lambda graph, _, query, memory: _multiply(graph, query, memory),
    General: lambda graph, _, query, memory: _multiply(graph, query, memory),
    ScaledDot: _scale,
    Mean: _ignore,
    Additive: _add,
    ReducedRank: _lower,
    Concat: _join,
    Cosine: _turn,
    Location: _locate,
}
