"""A tagger as one ONNX graph: from words, spellings and shapes to the best tags, and their probability."""

from __future__ import annotations

from functools import partial

import numpy as np
from torch import nn

from saccade.export.onnx import blocks
from saccade.export.onnx.blocks import KeyScope
from saccade.export.onnx.graph import FAR, Graph
from saccade.export.onnx.recurrent import read_steps
from saccade.export.onnx.text_encoder import encode_text, put_encoder_weights
from saccade.export.projections import read_affine
from saccade.layers.characters import Characters
from saccade.layers.crf import LinearChain
from saccade.layers.recurrent.layers import RecurrentEncoder
from saccade.models.tagger import OtherPlaces, TagNetwork, WordFeatures

SUM = "ReduceLogSumExp"


def make_tagger(network: TagNetwork) -> bytes:
    """Write the graph: T words of B sentences, N spellings of C characters."""
    graph = Graph()
    length = graph.input("length", np.int64, ["batch"])
    x = _read_features(graph, network.features)
    encoded = encode_text(graph, network.encoder, x, length)
    memory = encoded.memory
    if network.places is not None and network.second is not None:
        other = _see_places(graph, network.places, memory)
        memory = encode_text(graph, network.second, graph("Concat", memory, other, axis=-1), length).memory
    emission = graph.affine(memory, read_affine(network.output))
    shape: list[str | int] = ["batch", "words", network.chain.num_tags]
    graph.output("emission", emission, np.float32, shape)
    _put_best(graph, network.chain, emission, length)
    put_encoder_weights(graph, network.encoder, encoded.weights, "batch")
    return graph.to_bytes()


def _read_features(graph: Graph, features: WordFeatures) -> str:
    """Return a vector for each word, [B, T, D]."""
    word = graph.input("word", np.int64, ["batch", "words"])
    parts = [graph("Gather", graph.constant(features.word.weight), word)]
    if features.characters is not None or features.shape is not None:
        spelling = graph.input("spelling", np.int64, ["batch", "words"])
    if features.characters is not None:
        parts.append(graph("Gather", _spell(graph, features.characters), spelling))
    if features.shape is not None:
        drawn = graph("Gather", graph.input("shape", np.int64, ["spellings"]), spelling)
        parts.append(graph("Gather", graph.constant(features.shape.weight), drawn))
    if len(features.features):
        feature = graph.input("feature", np.int64, ["batch", "words", len(features.features)])
    for column, table in enumerate(features.features):
        assert isinstance(table, nn.Embedding)
        chosen = graph("Gather", feature, graph.number(column), axis=2)
        parts.append(graph("Gather", graph.constant(table.weight), chosen))
    return str(graph("Concat", *parts, axis=-1))


def _spell(graph: Graph, characters: Characters) -> str:
    """Return a vector for each spelling, [N, D]."""
    character = graph.input("character", np.int64, ["spellings", "characters"])
    length = graph.input("character_length", np.int64, ["spellings"])
    x = graph("Gather", graph.constant(characters.embedding.weight), character)
    if isinstance(characters.reader, RecurrentEncoder):
        _, hidden = read_steps(graph, characters.reader, x, length)
        return str(graph("Gather", hidden[0], graph.number(-1), axis=1))
    place_C = graph.steps(graph.number(0), graph.size(character, 1))
    within = graph("Less", place_C, _column(graph, length))
    real = graph("Cast", graph("Unsqueeze", within, graph.integers(2)), to=graph.type_of(np.float32))
    x_NDC = graph("Transpose", graph("Mul", x, real), perm=[0, 2, 1])
    assert characters.reader.bias is not None
    parts = graph.constant(characters.reader.weight), graph.constant(characters.reader.bias)
    found = graph("Relu", graph("Conv", x_NDC, *parts, kernel_shape=[3], pads=[1, 1]))
    kept = graph("Mul", found, graph("Transpose", real, perm=[0, 2, 1]))
    return str(graph("ReduceMax", kept, axes=[2], keepdims=0))


def _see_places(graph: Graph, places: OtherPlaces, x_BTD: str) -> str:
    """Return what each word finds at its other places, [B, T, D]; zeros where there is none."""
    one = graph.integers(0, 0, 1, 1)  # a row without places, so that there is one where no word comes again
    place = graph("Pad", graph.input("place", np.int64, ["repeated", "places"]), one)
    length = graph("Pad", graph.input("place_length", np.int64, ["repeated"]), graph.integers(0, 1))
    flat_ND = graph("Reshape", x_BTD, graph.integers(-1, places.attention.query.in_features))
    x_NSD = graph("Gather", flat_ND, place)
    step_S = graph.steps(graph.number(0), graph.size(place, 1))
    other = graph("Not", graph("Equal", blocks.distance(graph, step_S, step_S), graph.number(0)))
    keys = KeyScope(step_S, step_S, graph("And", blocks.mark_within(graph, step_S, length), other))
    found = blocks.attend_itself(graph, places.attention, x_NSD, keys, None).answer
    real = graph("Reshape", graph("Less", step_S, _column(graph, length)), graph.integers(-1))
    index_M = graph("Compress", graph("Reshape", place, graph.integers(-1)), real)
    rows_ND = graph("Reshape", found, graph.integers(-1, places.attention.query.in_features))
    zeros = graph("Mul", flat_ND, graph.constant(0.0))
    index_M1 = graph("Unsqueeze", index_M, graph.integers(1))
    put = graph("ScatterND", zeros, index_M1, graph("Compress", rows_ND, real, axis=0))
    return str(graph("Reshape", put, graph("Shape", x_BTD)))


def _put_best(graph: Graph, chain: LinearChain, emission: str, length: str) -> None:
    """Make outputs of the best tags [B, T], 0 behind the length (Viterbi 1967), and of log p of all of them [B].

    A sentence's start is one more tag, which only the first word follows.
    """
    pair_WW, edge = (chain.transition + chain.get_buffer("penalty")).detach(), chain.num_tags
    real_BT = graph("Less", graph.steps(graph.number(0), graph.size(emission, 1)), _column(graph, length))
    real_TB1 = graph("Unsqueeze", graph("Transpose", real_BT, perm=[1, 0]), graph.integers(2))
    emission_TBV = graph("Transpose", emission, perm=[1, 0, 2])
    start = graph("Expand", graph.constant([[*[FAR] * edge, 0.0]]), graph("Shape", _column(graph, length)))
    step = partial(_extend, pair=graph.constant(pair_WW[None, :, :edge]), stay=graph.constant(range(edge), np.int64))
    read = [(emission_TBV, np.float32), (real_TB1, bool)]
    best, total, came_from = graph.scan(step, [(start, np.float32)] * 2, read, written=np.int64)
    last = graph.constant([*pair_WW[:edge, edge].tolist(), FAR])
    best, total = (graph("Add", one, last) for one in (best, total))
    most, whole = (graph(name, one, axes=[1], keepdims=0) for name, one in (("ReduceMax", best), (SUM, total)))
    graph.output("log_probability", graph("Sub", most, whole), np.float32, ["batch"])
    tag = (graph("ArgMax", best, axis=1, keepdims=1), np.int64)
    _, tag_TB1 = graph.scan(_go_back, [tag], [(came_from, np.int64)], written=np.int64, backwards=True)
    tag_BT = graph("Transpose", graph("Squeeze", tag_TB1, graph.integers(2)), perm=[1, 0])
    kept = graph("Mul", tag_BT, graph("Cast", real_BT, to=graph.type_of(np.int64)))
    graph.output("tags", kept, np.int64, ["batch", "words"])


def _extend(
    body: Graph, best: str, total: str, emission: str, real: str, *, pair: str, stay: str
) -> tuple[str, str, str]:
    """Extend the best way to each tag, and the sum over all ways, by a word; tell from which tag each best one came."""
    ways, all_ways = (body("Add", body("Unsqueeze", one, body.integers(2)), pair) for one in (best, total))
    found = (body(name, one, axes=[1], keepdims=0) for name, one in (("ReduceMax", ways), (SUM, all_ways)))
    later = (body("Pad", body("Add", one, emission), body.integers(0, 0, 0, 1), body.constant(FAR)) for one in found)
    came_from = body("Where", real, body("ArgMax", ways, axis=1, keepdims=0), stay)
    first, second = (body("Where", real, new, old) for new, old in zip(later, (best, total), strict=True))
    return first, second, came_from


def _go_back(body: Graph, tag: str, came_from: str) -> tuple[str, str]:
    """Write a word's tag, and go to that of the word before."""
    return body("GatherElements", came_from, tag, axis=1), body("Identity", tag)


def _column(graph: Graph, length_B: str) -> str:
    return str(graph("Unsqueeze", length_B, graph.integers(1)))
