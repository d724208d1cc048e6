"""Ensembles: several models that decode together, by the mean of their probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast, final

import torch
from torch import Tensor, nn

from saccade.decoding.stepper import Stepper


class EnsembleState(NamedTuple):
    """The decoder states of all members of an ensemble."""

    members: tuple[Any, ...]

    def rows(self, index_N: Tensor) -> EnsembleState:
        return EnsembleState(tuple(member.rows(index_N) for member in self.members))


@final
class Ensemble(nn.Module):
    """p(y) = 1/M Σ_m p_m(y): a mixture of models.

    The mean of probabilities is itself a distribution, and a member that has never read a word can't veto one that is
    sure of it; neither holds for the mean of log-probabilities (a product of experts).
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def start(self, source: Tensor, source_length_B: Tensor) -> EnsembleState:
        return EnsembleState(tuple(member.start(source, source_length_B) for member in self._steppers()))

    def advance(self, state: EnsembleState, read_BT: Tensor) -> tuple[Tensor, EnsembleState]:
        """Return the mixture's log-probabilities at each id, [B, T, V], and the state after the last."""
        steps, states = [], []
        for member, before in zip(self._steppers(), state.members, strict=True):
            vectors, after = member.advance(before, read_BT)
            steps.append(member.logits(vectors).float().log_softmax(-1))
            states.append(after)
        return torch.stack(steps).logsumexp(0) - math.log(len(steps)), EnsembleState(tuple(states))

    def logits(self, vectors: Tensor) -> Tensor:
        return vectors  # they are log-probabilities already

    def _steppers(self) -> list[Stepper]:
        return [cast(Stepper, member) for member in self.members]
