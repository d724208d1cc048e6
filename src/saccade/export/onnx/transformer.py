"""A Transformer as two ONNX graphs: the encoder, and a step of the decoder with its cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
from torch import nn

from saccade.export.onnx import blocks
from saccade.export.onnx.blocks import KeyScope, Parts
from saccade.export.onnx.graph import Graph
from saccade.layers.residual import Norm
from saccade.models.transformer import BlockSizes, DecoderBlock, Residual, Transformer

NAMES = ("key", "value")


def make_encoder(network: Transformer) -> bytes:
    """Write the graph that reads a source, and returns the keys and values of every decoder layer."""
    graph, sizes = Graph(), network.sizes
    source = graph.input("source", np.int64, ["batch", "source"])
    length = graph.input("source_length", np.int64, ["batch"])
    keys = blocks.see_all(graph, source, length, sizes, network.encoder_bias)
    x = _embed(graph, network, cast(nn.Embedding, network.source), source, keys.query_T)
    x, _ = blocks.encode(graph, network.encoder, x, keys, sizes)
    if isinstance(network.encoder_norm, Norm):
        x = graph.norm(x, network.encoder_norm)
    for number, block in enumerate(cast(Iterator[DecoderBlock], network.decoder)):
        for name, value in zip(NAMES, blocks.remember(graph, block.cross, x, None), strict=True):
            shape: list[str | int] = ["batch", sizes.num_heads, "source", f"{name}_width"]
            graph.output(f"memory.{number}.{name}", value, np.float32, shape)
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
        found = blocks.attend_itself(graph, block.own, blocks.norm_input(graph, x, attending), own, past[number])
        x = blocks.add_residual(graph, x, found.answer, attending)
        for name, value in zip(NAMES, found.memory, strict=True):
            shape: list[str | int] = ["batch", sizes.num_heads, "all", f"{name}_width"]
            graph.output(f"present.{number}.{name}", value, np.float32, shape)
        found = blocks.ask(graph, block.cross, blocks.norm_input(graph, x, crossing), memory[number], across, None)
        x = blocks.add_residual(graph, x, found.answer, crossing)
        fed = blocks.feed(graph, block.feed_forward, blocks.norm_input(graph, x, feeding), sizes)
        x = blocks.add_residual(graph, x, fed, feeding)
        weights.append(found.weight)
    _put_logits(graph, network, x)
    blocks.put_weights(graph, "attention", weights, sizes, ("steps", "source"))
    return graph.to_bytes()


def _put_logits(graph: Graph, network: Transformer, x: str) -> None:
    if isinstance(network.decoder_norm, Norm):
        x = graph.norm(x, network.decoder_norm)
    logits = graph("MatMul", x, graph.constant(network.output.weight.mT))
    if network.output_bias is not None:
        logits = graph("Add", logits, graph.constant(network.output_bias))
    graph.output("logits", logits, np.float32, ["batch", "steps", len(network.output.weight)])


def _take_caches(graph: Graph, name: str, sizes: BlockSizes, axis: str) -> Parts:
    return [graph.input(f"{name}.{one}", np.float32, ["batch", sizes.num_heads, axis, f"{one}_width"]) for one in NAMES]


def _make_scopes(
    graph: Graph, network: Transformer, read: str, length: str, past: str, memory: str
) -> tuple[KeyScope, KeyScope]:
    """Return where the decoder looks: to the steps so far, and to the source."""
    num_past, num_read = graph.size(past, 2), graph.size(read, 1)
    place, everywhere = graph.steps(num_past, num_read), graph.steps(graph.number(0), graph("Add", num_past, num_read))
    allowed = graph("LessOrEqual", blocks.distance(graph, place, everywhere), graph.number(0))
    if network.sizes.window is not None:
        allowed = graph("And", allowed, blocks.mark_near(graph, place, everywhere, network.sizes.window))
    own = KeyScope(place, everywhere, allowed, blocks.read_bias(graph, network.decoder_bias, place, everywhere))
    source_place = graph.steps(graph.number(0), graph.size(memory, 2))
    return own, KeyScope(place, source_place, blocks.mark_within(graph, source_place, length))


def _embed(graph: Graph, network: Transformer, table: nn.Embedding, ids: str, place: str) -> str:
    x = graph("Mul", graph("Gather", graph.constant(table.weight), ids), graph.constant(network.sizes.width**0.5))
    return blocks.add_positions(graph, network.positions, x, place)
