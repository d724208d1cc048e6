"""A Transformer as two ONNX graphs: the encoder, and a step of the decoder with its cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import numpy as np
from torch import nn

from saccade.attention import MultiHeadAttention
from saccade.attention.positions import Learned, Relative, Sinusoidal
from saccade.attention.scores import Additive, Cosine
from saccade.export.onnx.graph import FAR, Graph, list_biases
from saccade.export.projections import Projections, read_additive, read_affine, read_projections, refuse_sizes
from saccade.layers.feed_forward import FeedForward
from saccade.layers.residual import Norm
from saccade.models.transformer import BlockSizes, DecoderBlock, EncoderBlock, Residual, Transformer

NAMES = ("key", "value")
Parts = list[str]


def refuse(sizes: BlockSizes) -> str | None:
    """Say what of these blocks the graphs can't say."""
    if sizes.score == "cosine" or (sizes.score == "additive" and sizes.positions != "rotary"):
        sizes = sizes._replace(score="scaled_dot")
    return refuse_sizes(sizes._replace(window=None))


class Keys(NamedTuple):
    """Where queries and keys stand, which keys are allowed [B or 1, 1, T or 1, S], and a bias [H, T, S]."""

    query_T: str
    key_T: str
    allowed: str
    bias: str | None = None


def make_encoder(network: Transformer) -> bytes:
    """Write the graph that reads a source, and returns the keys and values of every decoder layer."""
    graph, sizes = Graph(), network.sizes
    source = graph.input("source", np.int64, ["batch", "source"])
    length = graph.input("source_length", np.int64, ["batch"])
    place = graph.steps(graph.number(0), graph.size(source, 1))
    x = _embed(graph, network, cast(nn.Embedding, network.source), source, place)
    allowed = _padding(graph, place, length)
    if sizes.window is not None:
        allowed = graph("And", allowed, _near(graph, place, place, sizes.window))
    keys = Keys(place, place, allowed, _bias(graph, network.encoder_bias, place, place))
    for encoding in cast(Iterator[EncoderBlock], network.encoder):
        attending, feeding = cast(list[Residual], list(encoding.residuals))
        answer, _ = _attend_itself(graph, encoding.attention, _before(graph, x, attending), keys, None)
        x = _after(graph, x, answer, attending)
        x = _after(graph, x, _feed(graph, encoding.feed_forward, _before(graph, x, feeding), sizes), feeding)
    if isinstance(network.encoder_norm, Norm):
        x = graph.norm(x, network.encoder_norm)
    for number, block in enumerate(cast(Iterator[DecoderBlock], network.decoder)):
        for name, value in zip(NAMES, _remember(graph, block.cross, x, None), strict=True):
            graph.output(f"memory.{number}.{name}", value, np.float32, ["batch", sizes.num_heads, "source", "width"])
    return graph.to_bytes()


def make_decoder(network: Transformer) -> bytes:
    """Write one step, or several at once: `read` [B, T] after a past of P steps."""
    graph, sizes = Graph(), network.sizes
    read = graph.input("read", np.int64, ["batch", "steps"])
    length = graph.input("source_length", np.int64, ["batch"])
    layers = range(len(network.decoder))
    past = [_take_caches(graph, f"past.{number}", sizes, "past") for number in layers]
    memory = [_take_caches(graph, f"memory.{number}", sizes, "source") for number in layers]
    own, across = _make_scopes(graph, network, read, length, past[0][0], memory[0][0])
    x, weights = _embed(graph, network, network.target, read, own.query_T), Parts()
    for number, block in enumerate(cast(Iterator[DecoderBlock], network.decoder)):
        attending, crossing, feeding = cast(list[Residual], list(block.residuals))
        answer, present = _attend_itself(graph, block.own, _before(graph, x, attending), own, past[number])
        x = _after(graph, x, answer, attending)
        answer, weight = _ask(graph, block.cross, _before(graph, x, crossing), memory[number], across, None)
        x = _after(graph, x, answer, crossing)
        x = _after(graph, x, _feed(graph, block.feed_forward, _before(graph, x, feeding), sizes), feeding)
        weights.append(graph("Unsqueeze", weight, graph.integers(1)))
        for name, value in zip(NAMES, present, strict=True):
            graph.output(f"present.{number}.{name}", value, np.float32, ["batch", sizes.num_heads, "all", "width"])
    if isinstance(network.decoder_norm, Norm):
        x = graph.norm(x, network.decoder_norm)
    logits = graph("MatMul", x, graph.constant(network.output.weight.mT))
    graph.output("logits", logits, np.float32, ["batch", "steps", len(network.output.weight)])
    stacked = graph("Concat", *weights, axis=1)
    graph.output("attention", stacked, np.float32, ["batch", len(weights), sizes.num_heads, "steps", "source"])
    return graph.to_bytes()


def _take_caches(graph: Graph, name: str, sizes: BlockSizes, axis: str) -> Parts:
    return [graph.input(f"{name}.{one}", np.float32, ["batch", sizes.num_heads, axis, "width"]) for one in NAMES]


def _make_scopes(
    graph: Graph, network: Transformer, read: str, length: str, past: str, memory: str
) -> tuple[Keys, Keys]:
    """Return where the decoder looks: to the steps so far, and to the source."""
    num_past, num_read = graph.size(past, 2), graph.size(read, 1)
    place, everywhere = graph.steps(num_past, num_read), graph.steps(graph.number(0), graph("Add", num_past, num_read))
    allowed = graph("LessOrEqual", _distance(graph, place, everywhere), graph.number(0))
    if network.sizes.window is not None:
        allowed = graph("And", allowed, _near(graph, place, everywhere, network.sizes.window))
    own = Keys(place, everywhere, allowed, _bias(graph, network.decoder_bias, place, everywhere))
    source_place = graph.steps(graph.number(0), graph.size(memory, 2))
    return own, Keys(place, source_place, _padding(graph, source_place, length))


def _embed(graph: Graph, network: Transformer, table: nn.Embedding, ids: str, place: str) -> str:
    width = network.sizes.width
    x = graph("Mul", graph("Gather", graph.constant(table.weight), ids), graph.constant(width**0.5))
    if isinstance(network.positions, Sinusoidal):
        return graph("Add", x, graph.pair_up(*graph.circle(place, network.positions.get_buffer("rate_half"))))
    if isinstance(network.positions, Learned):
        return graph("Add", x, graph("Gather", graph.constant(network.positions.table), place))
    return x


def _before(graph: Graph, x: str, residual: Residual) -> str:
    """Return what the layer of a residual connection reads."""
    return graph.norm(x, residual.norm) if residual.is_pre else x


def _after(graph: Graph, x: str, answer: str, residual: Residual) -> str:
    """Return the sum, which a post-norm normalises."""
    total: str = graph("Add", x, answer)
    return total if residual.is_pre else graph.norm(total, residual.norm)


def _feed(graph: Graph, network: FeedForward, x: str, sizes: BlockSizes) -> str:
    hidden = graph.activate(graph.affine(x, read_affine(network.inner)), sizes.activation)
    if network.gate is not None:
        hidden = graph("Mul", hidden, graph.affine(x, read_affine(network.gate)))
    return graph.affine(hidden, read_affine(network.outer))


def _attend_itself(
    graph: Graph, attention: MultiHeadAttention, x: str, keys: Keys, past: Parts | None
) -> tuple[str, Parts]:
    """Return the answer, and the keys and values, past ones included."""
    memory = _remember(graph, attention, x, keys.query_T)
    if past is not None:
        memory = [graph("Concat", old, new, axis=2) for old, new in zip(past, memory, strict=True)]
    return _ask(graph, attention, x, memory, keys, keys.query_T)[0], memory


def _remember(graph: Graph, attention: MultiHeadAttention, x: str, place: str | None) -> Parts:
    """Return keys and values, as the score reads them."""
    read = _read(attention)
    key = _turn(graph, attention, graph.heads(graph.affine(x, read.key), read.num_heads), place)
    if isinstance(attention.score, Cosine):
        key = graph.unit(key)
    return [key, graph.heads(graph.affine(x, read.value), read.num_heads)]


def _ask(
    graph: Graph, attention: MultiHeadAttention, x: str, memory: Parts, keys: Keys, place: str | None
) -> tuple[str, str]:
    """Score the keys, normalise the scores, sum the values; return also the weights."""
    read = _read(attention)
    query = _turn(graph, attention, graph.heads(graph.affine(x, read.query), read.num_heads), place)
    score = _score(graph, attention, query, memory[0])
    if keys.bias is not None:
        score = graph("Add", score, keys.bias)
    weight = graph("Softmax", graph("Where", keys.allowed, score, graph.constant(FAR)), axis=-1)
    return graph.affine(graph.join(graph("MatMul", weight, memory[1])), read.output), weight


def _read(attention: MultiHeadAttention) -> Projections:
    if isinstance(attention.score, Additive):
        return read_additive(attention)
    return read_projections(attention, folds=not isinstance(attention.score, Cosine))


def _turn(graph: Graph, attention: MultiHeadAttention, x: str, place: str | None) -> str:
    if attention.rotate is None:
        return x
    return graph.rotate(x, cast(str, place), cast(Any, attention.rotate).angles.rate_half)


def _score(graph: Graph, attention: MultiHeadAttention, query: str, key: str) -> str:
    if isinstance(attention.score, Additive):
        v_HA1 = attention.score.v.squeeze(1)[:, None, :, None]  # [H, 1, A, 1]
        both = graph("Add", graph("Unsqueeze", query, graph.integers(3)), graph("Unsqueeze", key, graph.integers(2)))
        return graph("Squeeze", graph("MatMul", graph("Tanh", both), graph.constant(v_HA1)), graph.integers(-1))
    if isinstance(attention.score, Cosine):
        query = graph("Mul", graph.unit(query), graph.constant(attention.score.beta.view(-1, 1, 1)))
        return graph("MatMul", query, graph("Transpose", key, perm=[0, 1, 3, 2]))
    scale = (attention.query.out_features // attention.num_heads) ** -0.5
    return graph("MatMul", graph("Mul", query, graph.constant(scale)), graph("Transpose", key, perm=[0, 1, 3, 2]))


def _padding(graph: Graph, place_S: str, length_B: str) -> str:
    """Return which keys are within their lengths, [B, 1, 1, S]."""
    return graph("Less", place_S, graph("Unsqueeze", length_B, graph.integers(1, 2, 3)))


def _distance(graph: Graph, query_T: str, key_S: str) -> str:
    """Return s - t, [T, S]."""
    return graph("Sub", key_S, graph("Unsqueeze", query_T, graph.integers(1)))


def _near(graph: Graph, query_T: str, key_S: str, window: int) -> str:
    return graph("LessOrEqual", graph("Abs", _distance(graph, query_T, key_S)), graph.number(window))


def _bias(graph: Graph, bias: Relative | None, query_T: str, key_S: str) -> str | None:
    """Return a relative bias, [H, T, S]; distances beyond the largest have its bias."""
    if bias is None:
        return None
    most = bias.max_distance
    clipped = graph("Max", graph("Min", _distance(graph, query_T, key_S), graph.number(most)), graph.number(-most))
    return str(
        graph("Gather", graph.constant(list_biases(bias, most)), graph("Add", clipped, graph.number(most)), axis=1)
    )
