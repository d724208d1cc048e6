"""The protocols of models that can be decoded."""

from __future__ import annotations

from typing import Any, Protocol, Self, final

from torch import Tensor

from saccade.attention.slots import Slots


class DecoderState(Protocol):
    """A model between two steps, one row per hypothesis."""

    def rows(self, index_N: Tensor) -> Self:
        """Return the state of these rows, in this order; a row may be taken twice or not at all."""


class Stepper(Protocol):
    """A model that writes one id at a time.

    Its source is ids [B, S], vectors [B, S, D], or pictures [B, C, Y, X]; a row's length counts its real steps, or the
    places of its picture.
    """

    def start(self, source: Tensor, source_length_B: Tensor, /) -> Any:
        """Read the source and return the state before the first step."""

    def advance(self, state: Any, read_BT: Tensor) -> tuple[Tensor, Any]:
        """Read some ids and return a vector for each, and the state after the last."""

    def logits(self, vectors: Tensor) -> Tensor:
        """Return the unnormalised log-probabilities of the next id."""


@final
class StartedStepper:
    """A stepper whose source has been read already."""

    def __init__(self, model: Stepper, state: Any) -> None:
        self._state, self.advance, self.logits = state, model.advance, model.logits

    def start(self, source: Tensor, source_length_B: Tensor, /) -> Any:
        del source, source_length_B
        return self._state


class SlotStepper(Stepper, Protocol):
    """A model that also decodes many sentences in slots, each at a step of its own, in tensors of fixed sizes.

    The state of `slots` has `enter(index_E, started)`, `refill(other, index_E)` and `reorder(parent_BN)`; that of
    `start` has `num_source_steps`.
    """

    @property
    def max_places(self) -> int | None:
        """The number of steps that it may read; None: any number."""

    def refuses_slots(self) -> str | None:
        """Say why this model can't use slots; None if it can."""

    def slots(self, slots: Slots, num_source_steps: int) -> Any:
        """Return the state of empty slots for sources of at most `num_source_steps` steps."""
