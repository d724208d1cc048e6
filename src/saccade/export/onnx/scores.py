"""Scores and normalisers as ONNX operators: of one head [B, T, S], or of several [B, H, T, S]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor, nn

from saccade.attention.normalizers import Entmax15, Hard, Softmax, Sparsemax
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

LEAST = -2.0  # of what a sparse normaliser shifts so that the best score is 0: outside of any support


def _matrix(graph: Graph, score: Score, part: Tensor) -> str:
    """Store a parameter [..., A, K] so that rows are multiplied by it; that of several heads is [H, 1, A, K]."""
    return graph.constant((part.squeeze(1) if score.heads else part).mT)


def _vector(graph: Graph, score: Score, part: Tensor) -> str:
    """Store a parameter [..., A] as a column."""
    return graph.constant((part.squeeze(1) if score.heads else part)[..., None])


def _remember_additive(graph: Graph, score: Additive, key: str) -> str:
    shift = (score.b.squeeze(1) if score.heads else score.b)[..., None, :]
    return str(graph("Add", graph("MatMul", key, _matrix(graph, score, score.U)), graph.constant(shift)))


MEMORIES: dict[type[Score], Callable[[Graph, Any, str], str]] = {  # what a score computes of the keys alone
    General: lambda graph, score, key: graph("MatMul", key, _matrix(graph, score, score.W)),
    ReducedRank: lambda graph, score, key: graph("MatMul", key, _matrix(graph, score, score.V)),
    Additive: _remember_additive,
    Concat: lambda graph, score, key: graph("MatMul", key, _vector(graph, score, score.w[..., score.query_width :])),
    Cosine: lambda graph, score, key: graph.unit(key),
}


def remember(graph: Graph, score: Score, key: str) -> str:
    """Return what a score computes of the keys alone, [..., S, A]."""
    compute = MEMORIES.get(type(score))
    return key if compute is None else compute(graph, score, key)


def score_keys(graph: Graph, score: Score, query: str, memory: str) -> str:
    """Return how well each key answers each query, [..., T, S]."""
    return SCORINGS[type(score)](graph, score, query, memory)


def weigh(graph: Graph, normalizer: nn.Module, score: str, allowed: str) -> str:
    """Normalise scores; forbidden keys weigh 0."""
    weight = NORMALIZINGS[type(normalizer)](graph, graph("Where", allowed, score, graph.constant(FAR)))
    return str(graph("Mul", weight, graph("Cast", allowed, to=graph.type_of(np.float32))))


def _multiply(graph: Graph, score: Score, query: str, memory: str) -> str:
    turned = graph("Transpose", memory, perm=[0, 1, 3, 2] if score.heads else [0, 2, 1])
    return str(graph("MatMul", query, turned))


def _scale(graph: Graph, score: ScaledDot, query: str, memory: str) -> str:
    assert score.query_width is not None
    return _multiply(graph, score, graph("Mul", query, graph.constant(score.query_width**-0.5)), memory)


def _ignore(graph: Graph, score: Mean, query: str, memory: str) -> str:
    return _multiply(graph, score, graph("Mul", query, graph.constant(0.0)), memory)


def _add(graph: Graph, score: Additive, query: str, memory: str) -> str:
    asked = graph("Unsqueeze", graph("MatMul", query, _matrix(graph, score, score.W)), graph.integers(-2))
    hidden = graph("Tanh", graph("Add", asked, graph("Unsqueeze", memory, graph.integers(-3))))
    v = (score.v.squeeze(1)[:, None] if score.heads else score.v)[..., None]
    return str(graph("Squeeze", graph("MatMul", hidden, graph.constant(v)), graph.integers(-1)))


def _lower(graph: Graph, score: ReducedRank, query: str, memory: str) -> str:
    return _multiply(graph, score, graph("MatMul", query, _matrix(graph, score, score.U)), memory)


def _join(graph: Graph, score: Concat, query: str, memory: str) -> str:
    asked = graph("MatMul", query, _vector(graph, score, score.w[..., : score.query_width]))
    return str(graph("Add", asked, graph("Transpose", memory, perm=[0, 1, 3, 2] if score.heads else [0, 2, 1])))


def _turn(graph: Graph, score: Cosine, query: str, memory: str) -> str:
    beta = (score.beta.squeeze(1) if score.heads else score.beta)[..., None, None]
    return _multiply(graph, score, graph("Mul", graph.unit(query), graph.constant(beta)), memory)


def _locate(graph: Graph, score: Location, query: str, memory: str) -> str:
    """Score the places that are there; they are at most `max_length`."""
    every = graph("MatMul", query, _matrix(graph, score, score.W))
    count = graph("Unsqueeze", graph.size(memory, -2), graph.integers(0))
    return str(graph("Slice", every, graph.integers(0), count, graph.integers(-1)))


SCORINGS: dict[type[Score], Callable[[Graph, Any, str, str], str]] = {
    Dot: _multiply,
    General: _multiply,
    ScaledDot: _scale,
    Mean: _ignore,
    Additive: _add,
    ReducedRank: _lower,
    Concat: _join,
    Cosine: _turn,
    Location: _locate,
}


def _pick(graph: Graph, score: str) -> str:
    """Give the first of the largest 1."""
    best, place_S = graph("ArgMax", score, axis=-1, keepdims=1), graph.steps(graph.number(0), graph.size(score, -1))
    return str(graph("Cast", graph("Equal", place_S, best), to=graph.type_of(np.float32)))


def _sparsemax(graph: Graph, score: str) -> str:
    """[e - tau]_+ (Martins & Astudillo 2016, algorithm 1)."""
    shifted, ordered, rank_S, sum_S = _order(graph, score)
    tau = graph("Div", graph("Sub", sum_S, graph.constant(1.0)), rank_S)
    support, size = _support(graph, shifted, ordered, tau)
    total = graph("ReduceSum", graph("Mul", shifted, support), graph.integers(-1))
    threshold = graph("Div", graph("Sub", total, graph.constant(1.0)), size)
    return str(graph("Mul", graph("Sub", shifted, threshold), support))


def _entmax15(graph: Graph, score: str) -> str:
    """[e / 2 - tau]_+² (Peters, Niculae & Martins 2019, section 3.2)."""
    shifted, ordered, rank_S, sum_S = _order(graph, graph("Mul", score, graph.constant(0.5)))
    mean, one = graph("Div", sum_S, rank_S), graph.constant(1.0)
    squares = graph("CumSum", graph("Mul", ordered, ordered), graph.number(-1))
    spread = graph("Sub", squares, graph("Mul", sum_S, mean))
    root = graph("Sqrt", graph("Relu", graph("Div", graph("Sub", one, spread), rank_S)))
    support, size = _support(graph, shifted, ordered, graph("Sub", mean, root))
    mean = graph("Div", graph("ReduceSum", graph("Mul", shifted, support), graph.integers(-1)), size)
    apart = graph("Mul", graph("Sub", shifted, mean), support)
    spread = graph("ReduceSum", graph("Mul", apart, apart), graph.integers(-1))
    threshold = graph("Sub", mean, graph("Sqrt", graph("Relu", graph("Div", graph("Sub", one, spread), size))))
    above = graph("Mul", graph("Sub", shifted, threshold), support)
    return str(graph("Mul", above, above))


def _order(graph: Graph, score: str) -> tuple[str, str, str, str]:
    """Shift the best score to 0; return the scores, then those from the largest on, their ranks and sums so far."""
    best = graph("ReduceMax", score, axes=[-1], keepdims=1)
    shifted = graph("Max", graph("Sub", score, best), graph.constant(LEAST))
    count = graph.size(shifted, -1)
    ordered, _ = graph("TopK", shifted, graph("Unsqueeze", count, graph.integers(0)), count=2, axis=-1)
    rank_S = graph("Cast", graph.steps(graph.number(1), count), to=graph.type_of(np.float32))
    return shifted, ordered, rank_S, graph("CumSum", ordered, graph.number(-1))


def _support(graph: Graph, shifted: str, ordered: str, threshold: str) -> tuple[str, str]:
    """Return which keys weigh more than 0 and how many; `threshold` has tau as if the first 1, 2, ... keys did."""
    below = graph("Cast", graph("Less", threshold, ordered), to=graph.type_of(np.int64))
    last = graph("Sub", graph("ReduceSum", below, graph.integers(-1)), graph.number(1))
    support = graph("GreaterOrEqual", shifted, graph("GatherElements", ordered, last, axis=-1))
    real = graph("Cast", support, to=graph.type_of(np.float32))
    return real, graph("ReduceSum", real, graph.integers(-1))


NORMALIZINGS: dict[type[nn.Module], Callable[[Graph, str], str]] = {
    Softmax: lambda graph, score: graph("Softmax", score, axis=-1),
    Sparsemax: _sparsemax,
    Entmax15: _entmax15,
    Hard: _pick,
}
