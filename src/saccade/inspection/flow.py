"""Attention flow: how much can pass from an output to an input when weights are the capacities of the layers' graph.

Abnar & Zuidema 2020, section 3: a node for each position in each layer, an edge for each weight (0.5 A + 0.5 I, the
mean of the heads), and for each pair of ends the maximum flow between them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import maximum_flow
from torch import Tensor

from saccade.inspection.views import through_residual

UNIT = 10**8  # scipy's capacities are whole numbers of 32 bits

Weights = NDArray[np.float64]


class Edges(NamedTuple):
    """From a run of nodes to another one: capacities [from, to]."""

    start: int
    end: int
    capacity: Weights


def flow(weight_LHSS: Tensor) -> Tensor:
    """The maximum flow from each position of the last layer to each one of the input, [S, S]."""
    length = weight_LHSS.shape[-1]
    edges, top = _stack(_residual(weight_LHSS), length, bottom=0)
    return weight_LHSS.new_tensor(_flows(edges, (top, length), (0, length)))


def decoder_flow(own_LHTT: Tensor, cross_LHTS: Tensor, encoder_LHSS: Tensor) -> Tensor:
    """The maximum flow from each output step through decoder and encoder to each position of the source, [T, S]."""
    num_steps, length = cross_LHTS.shape[-2:]
    edges, memory = _stack(_residual(encoder_LHSS), length, bottom=0)
    below = memory + length
    around = 0.5 * np.eye(num_steps)
    for own_TT, cross_HTS in zip(_residual(own_LHTT), cross_LHTS, strict=True):
        middle, above = below + num_steps, below + 2 * num_steps
        edges += [Edges(middle, below, own_TT), Edges(above, middle, around)]
        edges.append(Edges(above, memory, 0.5 * _plain(cross_HTS.mean(0))))
        below = above
    return cross_LHTS.new_tensor(_flows(edges, (below, num_steps), (0, length)))


def _residual(weight_LHSS: Tensor) -> list[Weights]:
    return [_plain(through_residual(weight_HSS.mean(0))) for weight_HSS in weight_LHSS]


def _plain(weight_TS: Tensor) -> Weights:
    return weight_TS.detach().cpu().double().numpy()


def _stack(layers: Iterable[Weights], length: int, *, bottom: int) -> tuple[list[Edges], int]:
    """The edges of layers on each other, and the first node of the last."""
    edges: list[Edges] = []
    for weight_SS in layers:
        edges.append(Edges(bottom + length, bottom, weight_SS))
        bottom += length
    return edges, bottom


def _flows(edges: list[Edges], outputs: tuple[int, int], inputs: tuple[int, int]) -> Weights:
    """One maximum flow for each pair; `outputs` and `inputs` are a first node and how many."""
    graph = _graph(edges, outputs[0] + outputs[1])
    found = [
        [maximum_flow(graph, outputs[0] + query, inputs[0] + key).flow_value for key in range(inputs[1])]
        for query in range(outputs[1])
    ]
    return np.array(found, np.float64) / UNIT


def _graph(edges: list[Edges], num_nodes: int) -> object:
    """The capacities as whole numbers, between all nodes."""
    ends = [np.indices(part.capacity.shape).reshape(2, -1) + np.array([[part.start], [part.end]]) for part in edges]
    capacity = np.concatenate([part.capacity.ravel() for part in edges])
    where = np.concatenate(ends, axis=1)
    whole = np.rint(UNIT * capacity).astype(np.int32)
    return coo_array((whole[whole > 0], where[:, whole > 0]), (num_nodes, num_nodes)).tocsr()
