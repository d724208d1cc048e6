"""Attention flow: how much can pass from an output to an input when weights are the capacities of the layers' graph.

Abnar & Zuidema 2020, section 3: a node for each position in each layer, an edge for each weight (0.5 A + 0.5 I, the
mean of the heads), and for each pair of ends the maximum flow between them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.decoding.slices import pause
from saccade.inspection.views.rollout import through_residual

UNIT = 10**8  # scipy's capacities are whole numbers of 32 bits


class Nodes(NamedTuple):
    """The positions of one layer."""

    first: int
    size: int

    def after(self, size: int) -> Nodes:
        """Return the next `size` nodes."""
        return Nodes(self.first + self.size, size)


class Edges(NamedTuple):
    """From every position of a layer to every one of another, with capacities [from, to]."""

    start: Nodes
    end: Nodes
    capacity: NDArray[np.float64]


def encoder(weight_LHSS: Tensor) -> Tensor:
    """Compute the flow from each position of the last layer to each one of the input, [S, S]."""
    bottom = Nodes(0, weight_LHSS.shape[-1])
    edges, top = _stack(weight_LHSS, bottom)
    return _flows(edges, top, bottom)


def pooling(weight_HTS: Tensor, encoder_LHSS: Tensor) -> Tensor:
    """Compute the flow from a label through a pooling (the mean of its hops) and an encoder to the text, [T, S]."""
    bottom = Nodes(0, encoder_LHSS.shape[-1])
    edges, memory = _stack(encoder_LHSS, bottom)
    label = memory.after(weight_HTS.shape[-2])
    return _flows([*edges, Edges(label, memory, _to_numpy(weight_HTS.mean(0)))], label, bottom)


def decoder(own_LHTT: Tensor, cross_LHTS: Tensor, encoder_LHSS: Tensor, *, to: str) -> Tensor:
    """Compute the flow from each output step through the decoder to the output read so far, [T, T].

    If `to` is cross, it goes on through the encoder to the source, [T, S]. A layer has nodes in its middle and above:
    self-attention leads from the middle to the layer below, cross-attention (half) from above to the encoder, and the
    residual (the other half) from above to the middle.
    """
    num_steps, length = cross_LHTS.shape[-2:]
    source = Nodes(0, length)
    edges, memory = _stack(encoder_LHSS, source)
    read = below = memory.after(num_steps)
    for own_HTT, cross_HTS in zip(own_LHTT, cross_LHTS, strict=True):
        middle, above = below.after(num_steps), below.after(num_steps).after(num_steps)
        edges += [
            Edges(middle, below, _to_numpy(through_residual(own_HTT))),
            Edges(above, middle, 0.5 * np.eye(num_steps)),
            Edges(above, memory, 0.5 * _to_numpy(cross_HTS.mean(0))),
        ]
        below = above
    return _flows(edges, below, source if to == "cross" else read)


def _stack(weight_LHSS: Tensor, bottom: Nodes) -> tuple[list[Edges], Nodes]:
    """Return the edges between successive layers, and the nodes of the last."""
    edges: list[Edges] = []
    for weight_HSS in weight_LHSS:
        top = bottom.after(bottom.size)
        edges.append(Edges(top, bottom, _to_numpy(through_residual(weight_HSS))))
        bottom = top
    return edges, bottom


def _to_numpy(weight_TS: Tensor) -> NDArray[np.float64]:
    return weight_TS.detach().cpu().double().numpy()


def _flows(edges: list[Edges], outputs: Nodes, inputs: Nodes) -> Tensor:
    """Compute the maximum flow for each pair of an output and an input."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import maximum_flow

    size = outputs.first + outputs.size
    graph = coo_array(_round_capacities(edges), (size, size)).tocsr()
    rows = []
    for query in range(outputs.size):
        start, ends = outputs.first + query, range(inputs.first, inputs.first + inputs.size)
        rows.append([maximum_flow(graph, start, end).flow_value for end in ends])
        pause()
    return torch.tensor(rows, dtype=torch.float64).div(UNIT).float()


def _round_capacities(edges: list[Edges]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the capacities that are not 0, as whole numbers, and their pairs of nodes, [2, N]."""
    starts = np.array([[part.start.first, part.end.first] for part in edges])
    grids = [np.indices(part.capacity.shape).reshape(2, -1) for part in edges]
    ends = np.concatenate([grid + start[:, None] for grid, start in zip(grids, starts, strict=True)], axis=1)
    capacity = np.rint(UNIT * np.concatenate([part.capacity.ravel() for part in edges])).astype(np.int32)
    return capacity[capacity > 0], ends[:, capacity > 0].astype(np.int32)
