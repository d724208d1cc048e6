"""A classifier as one ONNX graph: from the ids of texts, and of those before them, to labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn

from saccade.export.onnx.graph import FAR, Graph
from saccade.export.onnx.recurrent import read_steps
from saccade.export.onnx.scores import remember, score_keys, weigh
from saccade.export.onnx.text_encoder import EncodedText, encode_text, pick_last, put_encoder_weights
from saccade.export.projections import read_affine
from saccade.layers.dialogue import AttentionContext, Context
from saccade.layers.pooling import AttentionPooling, LastPooling, MaxPooling, MeanPooling, StructuredPooling
from saccade.models.classifier import DocumentReader, TextClassifier

Pool = tuple[str, str | None]  # a vector for each text [B, D], and weights [B, r, S]


def make_classifier(network: TextClassifier) -> bytes:
    """Write the graph: ids [U, S] of texts, and windows [B, W] of them if there is a context; of documents likewise."""
    graph = Graph()
    rows = "batch" if network.context is None and network.document is None else "texts"
    weight_rows = "batch" if network.document is None else rows
    ids = graph.input("ids", np.int64, [rows, "source"])
    length = graph.input("length", np.int64, [rows])
    x = graph("Gather", graph.constant(network.embedding.weight), ids)
    encoded = encode_text(graph, network.encoder, x, length)
    vector, weight = _POOLINGS[type(network.pooling)](graph, network.pooling, encoded, _mark_real(graph, ids, length))
    if network.context is not None:
        vector, own_B = _read_windows(graph, network, network.context, vector)
        weight = weight if weight is None else graph("Gather", weight, own_B)
    if network.document is not None:
        vector, sentence_weight = _read_documents(graph, network.document, vector)
        if sentence_weight is not None:
            graph.output("sentence_attention", sentence_weight, np.float32, ["batch", "sentence_hops", "window"])
    logits = graph.affine(vector, read_affine(network.output))
    graph.output("logits", logits, np.float32, ["batch", network.output.out_features])
    if weight is not None:
        graph.output("attention", weight, np.float32, [weight_rows, "hops", "source"])
    put_encoder_weights(graph, network.encoder, encoded.weights, rows)
    return graph.to_bytes()


def _mark_real(graph: Graph, ids: str, length: str) -> str:
    """Return which tokens are real, [B, 1, S]."""
    place_S = graph.steps(graph.number(0), graph.size(ids, 1))
    return str(graph("Less", place_S, graph("Unsqueeze", length, graph.integers(1, 2))))


def _sum(graph: Graph, weight: str, memory: str) -> Pool:
    """Return the sums of r attentions side by side."""
    summed = graph("MatMul", weight, memory)
    return graph("Flatten", summed, axis=1), weight


def _pool_mean(graph: Graph, pooling: MeanPooling, encoded: EncodedText, allowed: str) -> Pool:
    del pooling
    real = graph("Cast", allowed, to=graph.type_of(np.float32))
    return _sum(graph, graph("Div", real, graph("ReduceSum", real, graph.integers(-1))), encoded.memory)


def _pool_last(graph: Graph, pooling: LastPooling, encoded: EncodedText, allowed: str) -> Pool:
    del graph, pooling, allowed
    return encoded.last, None


def _pool_max(graph: Graph, pooling: MaxPooling, encoded: EncodedText, allowed: str) -> Pool:
    """Pool by maxima; a token's weight is its share of them."""
    del pooling
    allowed_BS1 = graph("Transpose", allowed, perm=[0, 2, 1])
    kept = graph("Where", allowed_BS1, encoded.memory, graph.constant(FAR))
    winner_BD1 = graph("Unsqueeze", graph("ArgMax", kept, axis=1, keepdims=0), graph.integers(2))
    place_S = graph.steps(graph.number(0), graph.size(kept, 1))
    wins = graph("Cast", graph("Equal", winner_BD1, place_S), to=graph.type_of(np.float32))
    return graph("ReduceMax", kept, axes=[1], keepdims=0), graph("ReduceMean", wins, axes=[1], keepdims=1)


def _pool_attention(graph: Graph, pooling: AttentionPooling, encoded: EncodedText, allowed: str) -> Pool:
    memory = remember(graph, pooling.score, encoded.memory)
    score = score_keys(graph, pooling.score, graph.constant(pooling.query_1D[None]), memory)
    return _sum(graph, weigh(graph, pooling.normalizer, score, allowed), encoded.memory)


def _pool_structured(graph: Graph, pooling: StructuredPooling, encoded: EncodedText, allowed: str) -> Pool:
    attention = pooling.attention
    key = graph("Tanh", graph("MatMul", encoded.memory, graph.constant(attention.W1.mT)))
    score = graph("MatMul", graph.constant(attention.W2[None]), graph("Transpose", key, perm=[0, 2, 1]))
    return _sum(graph, weigh(graph, attention.normalizer, score, allowed), encoded.memory)


_POOLINGS: dict[type[nn.Module], Callable[[Graph, Any, EncodedText, str], Pool]] = {
    MeanPooling: _pool_mean,
    LastPooling: _pool_last,
    MaxPooling: _pool_max,
    AttentionPooling: _pool_attention,
    StructuredPooling: _pool_structured,
}


def _read_windows(graph: Graph, network: TextClassifier, context: Context, vector_UD: str) -> tuple[str, str]:
    """Return the vectors of windows and of their own texts, and the rows of these."""
    window = graph.input("window", np.int64, ["batch", "window"])
    length = graph.input("window_length", np.int64, ["batch"])
    speaker = graph.input("speaker", np.int64, ["batch", "window"])
    own_B = pick_last(graph, window, length)
    assert network.speaker is not None
    spoken = graph("Gather", graph.constant(network.speaker.weight), speaker)
    window_BWD = graph("Add", graph("Gather", vector_UD, window), spoken)
    if isinstance(context, AttentionContext):
        seen = _attend_to_window(graph, context, window_BWD, length)
    else:
        _, hidden = read_steps(graph, context.layers, window_BWD, length)
        seen = graph("Gather", hidden[0], graph.number(-1), axis=1)
    return graph("Concat", seen, graph("Gather", vector_UD, own_B), axis=-1), own_B


def _read_documents(graph: Graph, reader: DocumentReader, vector_UD: str) -> Pool:
    """Return a vector for each document, and the weights of its sentences."""
    window = graph.input("window", np.int64, ["batch", "window"])
    length = graph.input("window_length", np.int64, ["batch"])
    encoded = encode_text(graph, reader.encoder, graph("Gather", vector_UD, window), length)
    return _POOLINGS[type(reader.pooling)](graph, reader.pooling, encoded, _mark_real(graph, window, length))


def _attend_to_window(graph: Graph, context: AttentionContext, window_BWD: str, length: str) -> str:
    """Attend from the last text of each window to all of them."""
    place_W = graph.steps(graph.number(0), graph.size(window_BWD, 1))
    last_B1 = graph("Sub", graph("Unsqueeze", length, graph.integers(1)), graph.number(1))
    distance_BW = graph("Max", graph("Sub", last_B1, place_W), graph.number(0))
    key = graph("Add", window_BWD, graph("Gather", graph.constant(context.distance_WD), distance_BW))
    query = graph("Unsqueeze", pick_last(graph, window_BWD, length), graph.integers(1))
    score = score_keys(graph, context.score, query, remember(graph, context.score, key))
    allowed = graph("Less", place_W, graph("Unsqueeze", length, graph.integers(1, 2)))
    weight = weigh(graph, context.normalizer, score, allowed)
    return str(graph("Squeeze", graph("MatMul", weight, window_BWD), graph.integers(1)))
