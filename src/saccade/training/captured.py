"""Forward and backward of a batch as one CUDA graph: hundreds of launches become one.

A graph is bound to its batch's shapes, so it pays where shapes come back: packed batches have one, and batches of RNNs
are cut so that they have few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any, NamedTuple, Protocol, final

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from saccade.ops.cuda_graphs import record, warm_up
from saccade.ops.half_weights import HalfWeights
from saccade.ops.pass_context import Seeds

MOST_GRAPHS = 64


class Backward(Protocol):
    """A forward and a backward pass through one batch."""

    @property
    def runs_hooks(self) -> bool:
        """True if the parameters' hooks run: sums over processes may then begin before the pass ends."""

    def __call__(self, batch: Any, scale: Any) -> Tensor:
        """Add `scale` times a batch's gradients to the parameters'; return its part of the loss that is shown."""

    def excess(self, num_items: float) -> float:
        """Tell how many times too large a step of `num_items` leaves gradients, for the optimizer to divide them."""


class _Graph(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    scale: Tensor | None  # none where it is always one
    shown: Tensor
    gradients: list[Tensor | None]


@final
class CapturedBackward:
    """Another backward pass, recorded when a batch's shapes are seen for the second time, and from then on replayed.

    Gradients are those of the batch; only if several batches make a step (`adds`) are they added to what is there.
    """

    runs_hooks = False  # sums over processes begin when the pass is over

    def __init__(
        self,
        backward: Callable[[Any, Any], Tensor],
        parameters: Iterable[nn.Parameter],
        device: torch.device,
        *,
        adds: bool,
    ) -> None:
        self.backward, self.parameters, self.device, self.adds = backward, list(parameters), device, adds
        self.graphs: dict[Hashable, _Graph] = {}
        self._seen: Counter[Hashable] = Counter()
        self._pool: Any = None
        self.half_weights, self._seeds = HalfWeights(), Seeds(device)

    def __call__(self, batch: Any, scale: float) -> Tensor:
        """Replay the passes through a batch; the result is overwritten by the next call."""
        shape = _shape(batch), (is_whole := scale == 1.0 and not self.adds)
        self._seen[shape] += 1
        if shape not in self.graphs:
            if self._seen[shape] < 2 or len(self.graphs) >= MOST_GRAPHS:
                with self._seeds:  # as a captured pass, so that both draw the same
                    return self.backward(batch, scale)
            self.graphs[shape] = self._capture(batch, is_whole=is_whole)
        graph = self.graphs[shape]
        for own, given in zip(graph.inputs, _tensors(batch), strict=True):
            own.copy_(given, non_blocking=True)
        if graph.scale is not None:
            graph.scale.fill_(scale)
        if self.half_weights.lasts:  # otherwise the graph begins with a copy
            self.half_weights.renew()
        graph.graph.replay()
        for parameter, gradient in zip(self.parameters, graph.gradients, strict=True):
            parameter.grad = gradient
        return graph.shown

    def excess(self, num_items: float) -> float:
        """Return `num_items` where a step is one batch, which leaves the gradients of its sum: no product is needed."""
        return 1.0 if self.adds else num_items

    def _capture(self, batch: Any, *, is_whole: bool) -> _Graph:
        """Record the passes, after warming up with a factor of zero: added gradients then stay as they were."""
        batch = pytree.tree_map_only(Tensor, self._own, batch)
        scale = None if is_whole else torch.zeros((), device=self.device)
        for parameter in self.parameters:
            if self.adds and parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        step, chance = partial(self._step, batch, scale), torch.cuda.get_rng_state(self.device)
        warm_up(step, self.device)
        if not self.adds:
            for parameter in self.parameters:
                parameter.grad = None
        torch.cuda.empty_cache()
        graph, shown = record(step, self._pool)
        torch.cuda.set_rng_state(chance, self.device)  # a replay draws what this pass would have drawn
        self._pool = self._pool or graph.pool()
        return _Graph(graph, _tensors(batch), scale, shown, [parameter.grad for parameter in self.parameters])

    def _step(self, batch: Any, scale: Tensor | None) -> Tensor:
        with self.half_weights, self._seeds:
            return self.backward(batch, 1.0 if scale is None else scale)

    def _own(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device, copy=True)


def _tensors(batch: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor)]


def _shape(batch: Any) -> Hashable:
    """Return what a graph is bound to: shapes, and numbers that are no tensors."""
    return tuple(leaf.shape if isinstance(leaf, Tensor) else leaf for leaf in pytree.tree_leaves(batch))
