"""Text encoders as ONNX operators: a vector for each token, and one of the whole text."""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

from saccade.export.onnx import blocks
from saccade.export.onnx.blocks import Parts
from saccade.export.onnx.graph import Graph
from saccade.export.onnx.recurrent import read_steps
from saccade.export.projections import read_affine
from saccade.models.text_encoder import BagEncoder, RecurrentTextEncoder, TextEncoder, TransformerTextEncoder


class EncodedText(NamedTuple):
    """Vectors [B, S, D], the last state [B, D], and the weights [B, H, S, S] of each layer that attends."""

    memory: str
    last: str
    weights: Parts


def encode_text(graph: Graph, encoder: TextEncoder, x_BSD: str, length_B: str) -> EncodedText:
    """Read the embeddings of texts."""
    if isinstance(encoder, RecurrentTextEncoder):
        memory, hidden = read_steps(graph, encoder.layers, x_BSD, length_B)
        return EncodedText(memory, graph("Gather", hidden[0], graph.number(-1), axis=1), [])
    if isinstance(encoder, BagEncoder):
        return EncodedText(x_BSD, pick_last(graph, x_BSD, length_B), [])
    memory, weights = _attend(graph, encoder, x_BSD, length_B)
    return EncodedText(memory, pick_last(graph, memory, length_B), weights)


def pick_last(graph: Graph, x_BSD: str, length_B: str) -> str:
    """Return each row's last real step, [B, D]."""
    place_B1 = graph("Unsqueeze", graph("Sub", length_B, graph.number(1)), graph.integers(1))
    return str(graph("GatherND", x_BSD, place_B1, batch_dims=1))


def put_encoder_weights(graph: Graph, encoder: TextEncoder, weights: Parts, rows: str) -> None:
    """Make an output of the weights of self-attention, if there is any."""
    if isinstance(encoder, TransformerTextEncoder) and weights:
        blocks.put_weights(graph, "encoder_attention", weights, encoder.sizes, ("steps", "source"), rows=rows)


def _attend(graph: Graph, encoder: TransformerTextEncoder, x: str, length_B: str) -> tuple[str, Parts]:
    if isinstance(encoder.project, nn.Linear):
        x = graph.affine(x, read_affine(encoder.project))
    keys = blocks.see_all(graph, x, length_B, encoder.sizes, encoder.bias)
    x = blocks.add_positions(graph, encoder.positions, x, keys.query_T)
    x, weights = blocks.encode(graph, encoder.blocks, x, keys, encoder.sizes)
    return graph.norm(x, encoder.norm) if isinstance(encoder.norm, nn.LayerNorm) else x, weights
