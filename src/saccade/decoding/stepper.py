"""What decoding asks of a model."""

from __future__ import annotations

from typing import Any, Protocol, Self, final

from torch import Tensor

from saccade.attention.slots import Slots


class DecoderState(Protocol):
    """A model between two steps, one row per hypothesis."""

    def rows(self, index_N: Tensor) -> Self:
        """The state of these rows, in this order; a row may be taken twice or not at all."""


class Stepper(Protocol):
    """A model that writes one id at a time.

    What it reads is ids [B, S], vectors [B, S, D], or pictures [B, C, Y, X]; of each row so many steps (of a picture,
    places to look at) are real.
    """

    def start(self, source: Tensor, source_length_B: Tensor, /) -> Any:
        """Read the source: the state before the first step."""

    def advance(self, state: Any, read_BT: Tensor) -> tuple[Tensor, Any]:
        """Read some ids: the vectors at each of them, and the state after the last."""

    def logits(self, vectors: Tensor) -> Tensor:
        """Unnormalised log-probabilities of the next id."""


@final
class Started:
    """A stepper whose source has been read already."""

    def __init__(self, model: Stepper, state: Any) -> None:
        self._state, self.advance, self.logits = state, model.advance, model.logits

    def start(self, source: Tensor, source_length_B: Tensor, /) -> Any:
        """The state after that source."""
        del source, source_length_B
        return self._state


class Slotted(Stepper, Protocol):
    """A model that also goes on with many sentences in slots, each at a place of its own, all in place.

    The state it gives has `enter(index_E, started)`, `refill(other, index_E)` and `reorder(parent_BN)`; what `start`
    gives says its `num_source_steps`.
    """

    @property
    def max_places(self) -> int | None:
        """How many steps it may read; None: any number."""

    def refuses_slots(self) -> str | None:
        """Why it can't after all, in words; None when it can."""

    def slots(self, slots: Slots, num_source_steps: int) -> Any:
        """The state of empty slots, for sources of so many steps."""
