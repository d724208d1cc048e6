"""Several models as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast, final

import torch
from torch import Tensor, nn

from saccade.decoding.stepper import Stepper


class EnsembleState(NamedTuple):
    """The state of each member."""

    members: tuple[Any, ...]

    def rows(self, index_N: Tensor) -> EnsembleState:
        """The state of other rows."""
        return EnsembleState(tuple(member.rows(index_N) for member in self.members))


@final
class Ensemble(nn.Module):
    """p(y) = 1/M Σ_m p_m(y): the mixture of its members.

    The mean of probabilities is itself a distribution, and one member that is sure can't be vetoed by another that
    has never seen a word; the mean of log-probabilities (a product of experts) is neither.
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def start(self, source: Tensor, source_length_B: Tensor) -> EnsembleState:
        """Every member reads the source."""
        return EnsembleState(tuple(member.start(source, source_length_B) for member in self._steppers()))

    def advance(self, state: EnsembleState, read_BT: Tensor) -> tuple[Tensor, EnsembleState]:
        """The mixture's log-probabilities at each id, [B, T, V], and the state after the last."""
        steps, states = [], []
        for member, before in zip(self._steppers(), state.members, strict=True):
            vectors, after = member.advance(before, read_BT)
            steps.append(member.logits(vectors).float().log_softmax(-1))
            states.append(after)
        return torch.stack(steps).logsumexp(0) - math.log(len(steps)), EnsembleState(tuple(states))

    def logits(self, vectors: Tensor) -> Tensor:
        """They are log-probabilities already."""
        return vectors

    def _steppers(self) -> list[Stepper]:
        return [cast(Stepper, member) for member in self.members]
