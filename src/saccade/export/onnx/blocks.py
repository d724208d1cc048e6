"""The blocks of Transformers as ONNX operators: self-attention, attention to a source, feed-forward networks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import numpy as np
from torch import nn

from saccade.attention import MultiHeadAttention, Score
from saccade.attention.positions import Learned, Relative, Sinusoidal
from saccade.export.onnx import scores
from saccade.export.onnx.graph import Graph, list_biases
from saccade.export.projections import read_affine
from saccade.layers.feed_forward import FeedForward
from saccade.models.transformer import BlockSizes, EncoderBlock, Residual

Parts = list[str]


class KeyScope(NamedTuple):
    """Places of queries and keys, the allowed keys [B or 1, 1, T or 1, S], and a bias [H, T, S]."""

    query_T: str
    key_T: str
    allowed: str
    bias: str | None = None


class BlockOutput(NamedTuple):
    """The answer of an attention [B, T, D], its weights [B, H, T, S], and the keys and values, past ones included."""

    answer: str
    weight: str
    memory: Parts


def see_all(graph: Graph, x_BSD: str, length_B: str, sizes: BlockSizes, bias: Relative | None) -> KeyScope:
    """Return where an encoder looks: at all steps, or at those within its window."""
    place = graph.steps(graph.number(0), graph.size(x_BSD, 1))
    allowed = mark_within(graph, place, length_B)
    if sizes.window is not None:
        allowed = graph("And", allowed, mark_near(graph, place, place, sizes.window))
    return KeyScope(place, place, allowed, read_bias(graph, bias, place, place))


def add_positions(graph: Graph, positions: nn.Module | None, x_BTD: str, place_T: str) -> str:
    """Add the vectors of positions that have some."""
    if isinstance(positions, Sinusoidal):
        both = graph.circle(place_T, positions.get_buffer("exact_half"))
        return str(graph("Add", x_BTD, graph("Concat", *both, axis=-1) if positions.halves else graph.pair_up(*both)))
    if isinstance(positions, Learned):
        return str(graph("Add", x_BTD, graph("Gather", graph.constant(positions.table), place_T)))
    return x_BTD


def encode(graph: Graph, blocks: Iterable[nn.Module], x: str, keys: KeyScope, sizes: BlockSizes) -> tuple[str, Parts]:
    """Run an encoder's blocks; return the vectors, and the weights of every block."""
    weights = Parts()
    for block in cast(Iterable[EncoderBlock], blocks):
        attending, feeding = cast(list[Residual], list(block.residuals))
        found = attend_itself(graph, block.attention, norm_input(graph, x, attending), keys, None)
        x = add_residual(graph, x, found.answer, attending)
        x = add_residual(graph, x, feed(graph, block.feed_forward, norm_input(graph, x, feeding), sizes), feeding)
        weights.append(found.weight)
    return x, weights


def put_weights(
    graph: Graph, name: str, weights: Parts, sizes: BlockSizes, axes: tuple[str, str], rows: str = "batch"
) -> None:
    """Make an output of the weights of all layers, [B, L, H, T, S]."""
    stacked = graph("Concat", *(graph("Unsqueeze", weight, graph.integers(1)) for weight in weights), axis=1)
    graph.output(name, stacked, np.float32, [rows, len(weights), sizes.num_heads, *axes])


def norm_input(graph: Graph, x: str, residual: Residual) -> str:
    """Return what the layer of a residual connection reads."""
    return graph.norm(x, residual.norm) if residual.is_pre else x


def add_residual(graph: Graph, x: str, answer: str, residual: Residual) -> str:
    """Return the sum, which a post-norm normalises."""
    total: str = graph("Add", x, answer)
    return total if residual.is_pre else graph.norm(total, residual.norm)


def feed(graph: Graph, network: FeedForward, x: str, sizes: BlockSizes) -> str:
    """Run a feed-forward network."""
    hidden = graph.activate(graph.affine(x, read_affine(network.inner)), sizes.activation)
    if network.gate is not None:
        hidden = graph("Mul", hidden, graph.affine(x, read_affine(network.gate)))
    return graph.affine(hidden, read_affine(network.outer))


def attend_itself(
    graph: Graph, attention: MultiHeadAttention, x: str, keys: KeyScope, past: Parts | None
) -> BlockOutput:
    """Attend to the steps of x, and to those before them that are remembered."""
    memory = remember(graph, attention, x, keys.query_T)
    if past is not None:
        memory = [graph("Concat", old, new, axis=2) for old, new in zip(past, memory, strict=True)]
    return ask(graph, attention, x, memory, keys, keys.query_T)


def remember(graph: Graph, attention: MultiHeadAttention, x: str, place: str | None) -> Parts:
    """Return keys, as the score reads them, and values."""
    key, value = (_project(graph, attention, part, x) for part in (attention.key, attention.value))
    score = cast(Score, attention.score)
    return [scores.remember(graph, score, _turn(graph, attention, key, place)), value]


def ask(
    graph: Graph, attention: MultiHeadAttention, x: str, memory: Parts, keys: KeyScope, place: str | None
) -> BlockOutput:
    """Score the keys, normalise the scores, sum the values."""
    query = _turn(graph, attention, _project(graph, attention, attention.query, x), place)
    score = scores.score_keys(graph, cast(Score, attention.score), query, memory[0])
    if keys.bias is not None:
        score = graph("Add", score, keys.bias)
    weight = scores.weigh(graph, cast(nn.Module, attention.normalizer), score, keys.allowed)
    joined = graph.join(graph("MatMul", weight, memory[1]))
    return BlockOutput(graph.affine(joined, read_affine(attention.output)), weight, memory)


def _project(graph: Graph, attention: MultiHeadAttention, linear: nn.Linear, x: str) -> str:
    return graph.heads(graph.affine(x, read_affine(linear)), attention.num_heads)


def _turn(graph: Graph, attention: MultiHeadAttention, x: str, place: str | None) -> str:
    if attention.rotate is None:
        return x
    return graph.rotate(x, cast(str, place), cast(Any, attention.rotate).angles.rate_half)


def mark_within(graph: Graph, place_S: str, length_B: str) -> str:
    """Return which keys are within their lengths, [B, 1, 1, S]."""
    return str(graph("Less", place_S, graph("Unsqueeze", length_B, graph.integers(1, 2, 3))))


def distance(graph: Graph, query_T: str, key_S: str) -> str:
    """Add nodes for s - t, [T, S]."""
    return str(graph("Sub", key_S, graph("Unsqueeze", query_T, graph.integers(1))))


def mark_near(graph: Graph, query_T: str, key_S: str, window: int) -> str:
    """Return which keys are within a window around their query, [T, S]."""
    return str(graph("LessOrEqual", graph("Abs", distance(graph, query_T, key_S)), graph.number(window)))


def read_bias(graph: Graph, bias: Relative | None, query_T: str, key_S: str) -> str | None:
    """Return a relative bias, [H, T, S]; distances beyond the largest have its bias."""
    if bias is None:
        return None
    most = bias.max_distance
    clipped = graph("Max", graph("Min", distance(graph, query_T, key_S), graph.number(most)), graph.number(-most))
    return str(
        graph("Gather", graph.constant(list_biases(bias, most)), graph("Add", clipped, graph.number(most)), axis=1)
    )
