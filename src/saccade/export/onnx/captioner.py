"""A captioner as two ONNX graphs: the encoder of pictures, clips or feature maps, and one step of the decoder."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import cast

import numpy as np
from torch import nn

from saccade.export.onnx import recurrent
from saccade.export.onnx.graph import Graph
from saccade.export.onnx.recurrent import StepOutput
from saccade.export.onnx.scores import weigh
from saccade.export.projections import read_affine
from saccade.layers.clip_encoder import ClipEncoder
from saccade.layers.image_encoder import FeatureEncoder, GridPositions, ImageEncoder
from saccade.models.captioner import Captioner


def make_encoder(network: Captioner) -> bytes:
    """Write the graph that reads bytes [B, C, Y, X] or [B, F, C, Y, X], or features [B, S, C].

    It returns places and the first state. Of clips it reads how many places each has, too.
    """
    graph, encoder = Graph(), network.encoder
    if isinstance(encoder, ClipEncoder):
        value, mean = _read_clip(graph, encoder)
    else:
        value = _read_picture(graph, encoder) if isinstance(encoder, ImageEncoder) else _read_features(graph, encoder)
        mean = graph("ReduceMean", value, axes=[1], keepdims=0)
    recurrent.put_memory(graph, network.decoder.gaze.aligner, value)
    cells = network.decoder.layers.cells
    recurrent.put_states(graph, "past", _start(graph, network, mean), cells)
    return graph.to_bytes()


def make_decoder(network: Captioner) -> bytes:
    """Write one step: `read` [B, 1]."""
    graph, decoder = Graph(), network.decoder
    read = graph.input("read", np.int64, ["batch", 1])
    x = graph("Mul", graph("Gather", graph.constant(network.target.weight), read), graph.constant(network.scale))
    states = recurrent.take_states(graph, decoder.layers.cells)
    source = recurrent.take_memory(graph, value_width=decoder.layers.cells.hidden_size)
    if isinstance(network.encoder, ClipEncoder):
        source["length"] = graph.input("source_length", np.int64, ["batch"])
    query = states[-1][0]
    context, weight = recurrent.attend(graph, decoder.gaze.aligner, query, source)
    if decoder.gaze.hard is not None:
        everywhere = graph("GreaterOrEqual", weight, graph.constant(0.0))  # places behind the end have no weight
        weight = weigh(graph, decoder.gaze.hard, weight, everywhere)
        context = graph("MatMul", weight, source["value"])
    context = graph("Mul", graph("Sigmoid", graph.affine(query, read_affine(decoder.gate))), context)
    output, states = recurrent.run_cells(graph, decoder.layers, graph("Concat", x, context, axis=-1), states)
    vector = graph.affine(graph("Concat", output, context, axis=-1), read_affine(decoder.readout))
    written = StepOutput(graph("Tanh", graph("Add", x, vector)), states, weight)
    recurrent.put_logits(graph, network.output, written, decoder.layers.cells)
    return graph.to_bytes()


def _read_picture(graph: Graph, encoder: ImageEncoder) -> str:
    """Return a vector for each cell, [B, S, D]."""
    picture = graph.input("source", np.uint8, ["batch", *encoder.size])
    return _read_cells(graph, encoder, graph("Cast", picture, to=graph.type_of(np.float32)))


def _read_clip(graph: Graph, encoder: ClipEncoder) -> tuple[str, str]:
    """Return a vector for each cell of each frame, [B, S, D], and their mean, [B, D]."""
    frames = graph.input("source", np.uint8, ["batch", "frames", *encoder.size])
    length = graph.input("source_length", np.int64, ["batch"])
    shape, before = graph("Shape", frames), encoder.NEIGHBOURS
    num_frames = graph("Slice", shape, graph.integers(1), graph.integers(2))
    beside = graph.integers(0, before, 0, 0, 0, 0, before, 0, 0, 0)
    padded = graph("Pad", graph("Cast", frames, to=graph.type_of(np.float32)), beside)
    parts = [
        graph("Slice", padded, graph.integers(at), graph("Add", num_frames, graph.integers(at)), graph.integers(1))
        for at in range(2 * before + 1)
    ]
    seen = graph("Reshape", graph("Concat", *parts, axis=2), graph.integers(-1, *encoder.cells.size))
    cell_NSD, width = _read_cells(graph, encoder.cells, seen), encoder.time_FD.shape[1]
    split = graph(
        "Concat", graph("Slice", shape, graph.integers(0), graph.integers(2)), graph.integers(-1, width), axis=0
    )
    time_FD = graph("Slice", graph.constant(encoder.time_FD), graph.integers(0), num_frames)
    moved = graph("Add", graph("Reshape", cell_NSD, split), graph("Unsqueeze", time_FD, graph.integers(1)))
    value = graph("Reshape", moved, graph.integers(0, -1, width))
    place_S = graph.steps(graph.number(0), graph.size(value, 1))
    real_BS = graph("Less", place_S, graph("Unsqueeze", length, graph.integers(1)))
    real_BS1 = graph("Unsqueeze", graph("Cast", real_BS, to=graph.type_of(np.float32)), graph.integers(2))
    total = graph("ReduceSum", graph("Mul", value, real_BS1), graph.integers(1), keepdims=0)
    count = graph("Cast", graph("Unsqueeze", length, graph.integers(1)), to=graph.type_of(np.float32))
    return value, graph("Div", total, count)


def _read_cells(graph: Graph, encoder: ImageEncoder, x: str) -> str:
    """Return a vector for each cell of pictures with values from 0 to 255, [B, S, D]."""
    x = graph("Div", x, graph.constant(127.5))
    for layer in cast(Iterable[nn.Module], encoder.convolutions):
        x = _convolve(graph, layer, x) if isinstance(layer, nn.Conv2d) else graph("Relu", x)
    flat_BDS = graph("Reshape", x, graph.integers(0, encoder.places.row_YD.shape[1], math.prod(encoder.shape)))
    return _add_places(graph, encoder.places, graph("Transpose", flat_BDS, perm=[0, 2, 1]))


def _convolve(graph: Graph, layer: nn.Conv2d, x: str) -> str:
    assert layer.bias is not None
    pads = [*cast(tuple[int, ...], layer.padding)] * 2
    parts = graph.constant(layer.weight), graph.constant(layer.bias)
    return str(graph("Conv", x, *parts, kernel_shape=layer.kernel_size, strides=layer.stride, pads=pads))


def _read_features(graph: Graph, encoder: FeatureEncoder) -> str:
    """Return a vector for each place, [B, S, D]."""
    x = graph.input("source", np.float32, ["batch", *encoder.size])
    scaled = graph("Div", graph("Sub", x, graph.constant(encoder.mean_C)), graph.constant(encoder.deviation_C))
    return _add_places(graph, encoder.places, graph.affine(scaled, read_affine(encoder.inner)))


def _add_places(graph: Graph, places: GridPositions, x_BSD: str) -> str:
    place_SD = (places.row_YD[:, None] + places.column_XD).flatten(0, 1)
    return str(graph("Add", x_BSD, graph.constant(place_SD)))


def _start(graph: Graph, network: Captioner, mean_BD: str) -> list[str]:
    """Return the first states of all layers, [B, L, D]: tanh(W mean_i v_i), or zeros."""
    if network.first is None:
        shape = graph(
            "Concat",
            graph("Slice", graph("Shape", mean_BD), graph.integers(0), graph.integers(1)),
            graph.integers(network.num_states * network.num_layers, network.width),
            axis=0,
        )
        states = graph("Expand", graph.constant([[[0.0]]]), shape)
    else:
        first = graph("Tanh", graph.affine(mean_BD, read_affine(network.first)))
        states = graph("Reshape", first, graph.integers(0, network.num_states * network.num_layers, -1))
    if network.num_states == 1:
        return [states]
    return [*graph("Split", states, count=network.num_states, axis=1)]
