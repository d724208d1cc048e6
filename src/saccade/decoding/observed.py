"""A stepper that reports what it reads, so that a text can be shown while it is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from torch import Tensor

from saccade.decoding.stepper import Stepper


@final
class ObservedStepper:
    """The same model, for one text by sampling or greedy search: `report` gets all ids so far, but for the first (<s>).

    The last id is never read, so the result has the rest.
    """

    def __init__(self, model: Stepper, report: Callable[[Sequence[int]], None]) -> None:
        self._model, self._report, self._ids = model, report, list[int]()
        self.start, self.logits = model.start, model.logits

    def advance(self, state: Any, read_BT: Tensor) -> tuple[Tensor, Any]:
        assert len(read_BT) == 1
        self._ids += read_BT[0].tolist()
        self._report(self._ids[1:])
        return self._model.advance(state, read_BT)
