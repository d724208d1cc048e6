"""RNNs as two ONNX graphs: the encoder with the first state, and one step of the decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from saccade.export.onnx.graph import Graph
from saccade.export.onnx.scores import remember, score_keys, weigh
from saccade.export.projections import Affine, read_affine
from saccade.layers.recurrent.layers import Recurrent, RecurrentEncoder
from saccade.models.seq2seq import BahdanauDecoder, LuongDecoder, PlainDecoder, Seq2Seq
from saccade.models.seq2seq_attention import SourceAttention

CELLS = {"RNN_TANH": ("RNN", (0,)), "GRU": ("GRU", (1, 0, 2)), "LSTM": ("LSTM", (0, 3, 1, 2))}  # gates in ONNX's order
STATES = ("hidden", "cell")
Hidden = list[str]  # h, and c of an LSTM; each [B, L, D]


class Step(NamedTuple):
    """Inputs of a step: its word [B, 1, E], the states [B, 1, D] of every layer, and the inputs of the graph."""

    x: str
    states: list[list[str]]
    source: dict[str, str]


class StepOutput(NamedTuple):
    """Outputs of a step: a vector [B, 1, D], the states, weights [B, 1, S], and what the next step is fed."""

    vector: str
    states: list[list[str]]
    weight: str | None = None
    fed: str | None = None


def make_encoder(network: Seq2Seq) -> bytes:
    """Write the graph that reads a source, and returns what is attended to and the first state."""
    graph = Graph()
    source = graph.input("source", np.int64, ["batch", "source"])
    length = graph.input("source_length", np.int64, ["batch"])
    assert isinstance(network.source, nn.Embedding)
    x = graph("Mul", graph("Gather", graph.constant(network.source.weight), source), graph.constant(network.scale))
    value, hidden = read_steps(graph, network.encoder, x, length)
    decoder = network.decoder
    if isinstance(decoder, BahdanauDecoder):
        hidden = [graph("Tanh", graph.affine(hidden[0], read_affine(decoder.bridge))), *hidden[1:]]
    if not isinstance(decoder, PlainDecoder):
        put_memory(graph, decoder.aligner, value)
    put_states(graph, "past", hidden, network.encoder.layers.cells)
    if isinstance(decoder, LuongDecoder) and decoder.fed_width:
        fed = graph("Expand", graph.constant(torch.zeros(1, 1, decoder.fed_width)), _times(graph, source, (1, 1)))
        graph.output("past.fed", fed, np.float32, ["batch", 1, decoder.fed_width])
    if _counts(network):
        zero = graph("Expand", graph.constant([0], np.int64), graph("Shape", length))
        graph.output("past.step", zero, np.int64, ["batch"])
    return graph.to_bytes()


def make_decoder(network: Seq2Seq) -> bytes:
    """Write one step: `read` [B, 1]."""
    graph, decoder = Graph(), network.decoder
    read = graph.input("read", np.int64, ["batch", 1])
    x = graph("Mul", graph("Gather", graph.constant(network.target.weight), read), graph.constant(network.scale))
    step = Step(x, take_states(graph, decoder.layers.cells), {})
    if not isinstance(decoder, PlainDecoder):
        step.source.update(take_memory(graph, value_width=decoder.layers.cells.hidden_size))
        step.source["length"] = graph.input("source_length", np.int64, ["batch"])
    if _counts(network):
        step.source["step"] = graph.input("past.step", np.int64, ["batch"])
        graph.output("present.step", graph("Add", step.source["step"], graph.number(1)), np.int64, ["batch"])
    written = _WRITERS[type(decoder)](graph, decoder, step)
    put_logits(graph, network.output, written, decoder.layers.cells)
    return graph.to_bytes()


def put_logits(graph: Graph, output: nn.Module, written: StepOutput, cells: nn.RNNBase) -> None:
    """Make the outputs of a step."""
    assert isinstance(output, nn.Embedding)
    logits = graph("MatMul", written.vector, graph.constant(output.weight.mT))
    graph.output("logits", logits, np.float32, ["batch", 1, len(output.weight)])
    layers = [graph("Concat", *parts, axis=1) for parts in zip(*written.states, strict=True)]
    put_states(graph, "present", layers, cells)
    if written.fed is not None:
        graph.output("present.fed", written.fed, np.float32, ["batch", 1, "width"])
    if written.weight is not None:
        weight = graph("Unsqueeze", written.weight, graph.integers(1, 2))
        graph.output("attention", weight, np.float32, ["batch", 1, 1, 1, "source"])


def put_states(graph: Graph, when: str, hidden: Hidden, cells: nn.RNNBase) -> None:
    """Make outputs of the states of all layers."""
    for name, state in zip(STATES, hidden, strict=False):
        graph.output(f"{when}.{name}", state, np.float32, ["batch", cells.num_layers, "width"])


def take_states(graph: Graph, cells: nn.RNNBase) -> list[list[str]]:
    """Make inputs of the states, and return those of each layer, [B, 1, D]."""
    count = 2 if cells.mode == "LSTM" else 1
    whole = [
        graph.input(f"past.{name}", np.float32, ["batch", cells.num_layers, cells.hidden_size])
        for name in STATES[:count]
    ]
    return [[_slice(graph, state, 1, layer, layer + 1) for state in whole] for layer in range(cells.num_layers)]


def put_memory(graph: Graph, aligner: SourceAttention, value: str) -> None:
    """Make outputs of what is attended to."""
    for name, part in (("key", remember(graph, aligner.score, value)), ("value", value)):
        graph.output(f"memory.{name}", part, np.float32, ["batch", "source", f"{name}_width"])


def take_memory(graph: Graph, *, value_width: int) -> dict[str, str]:
    """Make inputs of what is attended to."""
    widths: dict[str, int | str] = {"key": "key_width", "value": value_width}
    return {
        name: graph.input(f"memory.{name}", np.float32, ["batch", "source", width]) for name, width in widths.items()
    }


def read_steps(graph: Graph, encoder: RecurrentEncoder, x_BSD: str, length_B: str) -> tuple[str, Hidden]:
    """Return a vector for every step [B, S, D], and the last states [B, L, D], as torch's cells compute them."""
    cells, x_SBD = encoder.layers.cells, graph("Transpose", x_BSD, perm=[1, 0, 2])
    length, num_directions = graph("Cast", length_B, to=graph.type_of(np.int32)), 2 if cells.bidirectional else 1
    direction = "reverse" if encoder.from_the_end else "forward"
    last: list[Hidden] = []
    for layer in range(cells.num_layers):
        weights = cells.all_weights[layer * num_directions : (layer + 1) * num_directions]
        output, *states = _run_layer(
            graph, cells, weights, (x_SBD, length), "bidirectional" if cells.bidirectional else direction
        )
        joined = graph("Reshape", graph("Transpose", output, perm=[0, 2, 1, 3]), graph.integers(0, 0, -1))
        x_SBD, joined_states = joined, [graph("Transpose", state, perm=[1, 0, 2]) for state in states]
        last.append([graph("Reshape", state, graph.integers(0, 1, -1)) for state in joined_states])
    hidden = [graph("Concat", *parts, axis=1) for parts in zip(*last, strict=True)]
    return graph("Transpose", x_SBD, perm=[1, 0, 2]), hidden


def _run_layer(
    graph: Graph, cells: nn.RNNBase, weights: Sequence[Sequence[Tensor]], given: tuple[str, str], direction: str
) -> list[str]:
    """Return the outputs [S, R, B, D] of a layer with R directions, and its last states [R, B, D]."""
    name, order = CELLS[cells.mode]
    turned = [[_turn_gates(part, cells.hidden_size, order) for part in one] for one in weights]
    w, u, b, c = (torch.stack(parts) for parts in zip(*turned, strict=True))
    more: dict[str, Any] = {"linear_before_reset": 1} if name == "GRU" else {}
    parts = [graph.constant(part) for part in (w, u, torch.cat([b, c], -1))]
    found: list[str] = graph(
        name,
        given[0],
        *parts,
        given[1],
        count=3 if name == "LSTM" else 2,
        hidden_size=cells.hidden_size,
        direction=direction,
        **more,
    )
    return found


def _turn_gates(weight: Tensor, width: int, order: Sequence[int]) -> Tensor:
    gates = weight.detach().split(width)
    return torch.cat([gates[gate] for gate in order])


def run_cells(graph: Graph, layers: Recurrent, x: str, states: list[list[str]]) -> tuple[str, list[list[str]]]:
    """Run every layer for one step; return the top layer's output, and the states."""
    later = []
    for weights, state in zip(layers.cells.all_weights, states, strict=True):
        w, u, b, c = (part.detach().float() for part in weights)
        given, hidden = graph.affine(x, Affine(w, b)), graph.affine(state[0], Affine(u, c))
        later.append(_STEPS[layers.cells.mode](graph, given, hidden, state))
        x = later[-1][0]
    return x, later


def _rnn(graph: Graph, given: str, hidden: str, state: list[str]) -> list[str]:
    del state
    return [graph("Tanh", graph("Add", given, hidden))]


def _gru(graph: Graph, given: str, hidden: str, state: list[str]) -> list[str]:
    """r, z = sigmoid(g + u); h' = (1 - z) tanh(g_n + r u_n) + z h."""
    (g_r, g_z, g_n), (u_r, u_z, u_n) = (graph("Split", part, count=3, axis=-1) for part in (given, hidden))
    r, z = (graph("Sigmoid", graph("Add", g, u)) for g, u in ((g_r, u_r), (g_z, u_z)))
    new = graph("Tanh", graph("Add", g_n, graph("Mul", r, u_n)))
    return [graph("Add", new, graph("Mul", z, graph("Sub", state[0], new)))]


def _lstm(graph: Graph, given: str, hidden: str, state: list[str]) -> list[str]:
    """i, f, o = sigmoid(g + u); c' = f c + i tanh(g_c + u_c); h' = o tanh(c')."""
    i, f, new, o = graph("Split", graph("Add", given, hidden), count=4, axis=-1)
    kept = graph("Mul", graph("Sigmoid", f), state[1])
    c = graph("Add", kept, graph("Mul", graph("Sigmoid", i), graph("Tanh", new)))
    return [graph("Mul", graph("Sigmoid", o), graph("Tanh", c)), c]


_STEPS = {"RNN_TANH": _rnn, "GRU": _gru, "LSTM": _lstm}


def attend(graph: Graph, aligner: SourceAttention, query: str, source: dict[str, str]) -> tuple[str, str]:
    """Score the source, normalise the scores, sum the values; return the context and the weights.

    Without a `length` every place is real.
    """
    num_places = graph.size(source["value"], 1)
    place_S = graph.steps(graph.number(0), num_places)
    length_B11 = graph("Unsqueeze", source["length"], graph.integers(1, 2)) if "length" in source else num_places
    allowed = graph("Less", place_S, length_B11)
    factor = None
    if aligner.radius is not None:
        step_B11 = graph("Unsqueeze", source["step"], graph.integers(1, 2))
        distance = graph("Abs", graph("Sub", place_S, step_B11))
        allowed = graph("And", allowed, graph("LessOrEqual", distance, graph.number(aligner.radius)))
    if aligner.local is not None:
        radius = float(aligner.local.radius)
        hidden = graph("Tanh", graph("MatMul", query, graph.constant(aligner.local.W.mT)))
        share = graph("Sigmoid", graph("MatMul", hidden, graph.constant(aligner.local.v[:, None])))
        centre = graph("Mul", graph("Cast", length_B11, to=graph.type_of(np.float32)), share)
        distance = graph("Sub", graph("Cast", place_S, to=graph.type_of(np.float32)), centre)
        near = graph("LessOrEqual", graph("Abs", distance), graph.constant(radius))
        allowed, scaled = graph("And", allowed, near), graph("Div", distance, graph.constant(radius))
        factor = graph("Exp", graph("Mul", graph("Mul", scaled, scaled), graph.constant(-2.0)))
    weight = weigh(graph, aligner.normalizer, score_keys(graph, aligner.score, query, source["key"]), allowed)
    if factor is not None:
        weight = graph("Mul", weight, factor)
    return graph("MatMul", weight, source["value"]), weight


def _write_plain(graph: Graph, decoder: PlainDecoder, step: Step) -> StepOutput:
    output, states = run_cells(graph, decoder.layers, step.x, step.states)
    return StepOutput(graph.affine(output, read_affine(decoder.readout)), states)


def _write_bahdanau(graph: Graph, decoder: BahdanauDecoder, step: Step) -> StepOutput:
    context, weight = attend(graph, decoder.aligner, step.states[-1][0], step.source)
    output, states = run_cells(graph, decoder.layers, graph("Concat", step.x, context, axis=-1), step.states)
    wide = graph.affine(graph("Concat", output, step.x, context, axis=-1), read_affine(decoder.readout))
    pairs = graph("Reshape", wide, graph.integers(0, 0, -1, 2))
    return StepOutput(graph("ReduceMax", pairs, axes=[-1], keepdims=0), states, weight)


def _write_luong(graph: Graph, decoder: LuongDecoder, step: Step) -> StepOutput:
    x = step.x
    if decoder.fed_width:
        x = graph("Concat", x, graph.input("past.fed", np.float32, ["batch", 1, decoder.fed_width]), axis=-1)
    query, states = run_cells(graph, decoder.layers, x, step.states)
    context, weight = attend(graph, decoder.aligner, query, step.source)
    both = graph("Concat", context, query, axis=-1)
    vector = graph("Tanh", graph.affine(both, read_affine(decoder.combine)))
    return StepOutput(vector, states, weight, vector if decoder.fed_width else None)


_WRITERS: dict[type[nn.Module], Any] = {
    PlainDecoder: _write_plain,
    BahdanauDecoder: _write_bahdanau,
    LuongDecoder: _write_luong,
}


def _counts(network: Seq2Seq) -> bool:
    """Tell whether the decoder counts its steps: its window moves with them."""
    return not isinstance(network.decoder, PlainDecoder) and network.decoder.aligner.radius is not None


def _slice(graph: Graph, x: str, axis: int, first: int, last: int) -> str:
    return str(graph("Slice", x, *(graph.integers(number) for number in (first, last, axis))))


def _times(graph: Graph, source: str, more: Sequence[int]) -> str:
    """Return the shape [B, *more]."""
    batch = graph("Slice", graph("Shape", source), graph.integers(0), graph.integers(1))
    return str(graph("Concat", batch, graph.integers(*more), axis=0))
