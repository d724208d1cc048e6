"""State that the operations of one pass over a model share, and no signature carries.

A pass runs through modules, torch's own among them, whose arguments are the model's tensors. Three things belong to the
pass as a whole and are read deep inside its operations:

    seeds         random seeds, drawn all at once when the pass begins: one launch instead of one for each dropout
    half_weights  half-precision copies of the weights, made when the pass begins (`half_weights.py`)
    starts_early  whether a kernel may begin while the kernel before it still runs (`kernels/launch.py`)

As arguments they would pass through every layer and model. Here `with` blocks set them, for the thread that runs the
pass: another thread may run another pass at the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self, final

import torch
from torch import Tensor

if TYPE_CHECKING:
    from saccade.ops.half_weights import HalfWeights

SEEDS_AT_ONCE = 256  # more than models have dropouts; a model that has more draws the rest singly


@final
class PassContext(threading.local):
    """Settings of the pass that this thread runs."""

    seeds: Seeds | None = None
    half_weights: HalfWeights | None = None
    starts_early: bool = False


CURRENT = PassContext()


@final
class Override:
    """A `with` block in which some fields of the context have other values; it may be entered again."""

    def __init__(self, **values: Any) -> None:
        self._values, self._outer = values, list[dict[str, Any]]()

    def __enter__(self) -> None:
        self._outer.append({name: getattr(CURRENT, name) for name in self._values})
        self._set(self._values)

    def __exit__(self, *_: object) -> None:
        self._set(self._outer.pop())

    def _set(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(CURRENT, name, value)


@final
class Seeds:
    """Passes over a model on a device. All begin alike, so that what they draw follows from torch's seed alone."""

    def __init__(self, device: torch.device) -> None:
        self.device, self._place = device, device  # a tensor's device has a number
        self._left: Iterator[Tensor] = iter(())
        self._override = Override(seeds=self)

    def __enter__(self) -> Self:
        # two of 8 bytes each: a seed begins at 16 bytes, as one that is allocated does
        seeds = torch.empty(SEEDS_AT_ONCE, 2, dtype=torch.int64, device=self.device).random_()
        self._place, self._left = seeds.device, (seeds[number, :1] for number in range(SEEDS_AT_ONCE))
        self._override.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._left = iter(())
        self._override.__exit__()

    def next(self, device: torch.device) -> Tensor | None:
        """Return a seed that nobody else gets, [1], if one is left."""
        return next(self._left, None) if device == self._place else None


def draw_seed(device: torch.device) -> Tensor:
    """Return where a kernel's random numbers start, [1]: one of the pass's seeds, or drawn by torch's generator.

    Both are drawn again when a graph is replayed.
    """
    seed = None if CURRENT.seeds is None else CURRENT.seeds.next(device)
    return torch.empty(1, dtype=torch.int64, device=device).random_() if seed is None else seed


def draw_singly() -> tuple[Override, Override]:
    """Return what `checkpoint` runs both of its passes in: each seed comes from torch's generator, which it resets.

    The training loop doesn't capture blocks that are computed again; others who use `Seeds` may.
    """
    return Override(seeds=None), Override(seeds=None)
