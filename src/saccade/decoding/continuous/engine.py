"""A model ready to write in slots, and what it keeps from one call to the next."""

from __future__ import annotations

import copy
import functools
import threading
from typing import cast, final

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from saccade.attention import MultiHeadAttention
from saccade.decoding.beam import BeamOptions
from saccade.decoding.continuous.greedy_state import Size
from saccade.decoding.continuous.scheduler import PACES, DecodingWork, Factory, write
from saccade.decoding.continuous.sources import SourceEncoder
from saccade.decoding.continuous.step import Stage
from saccade.decoding.options import DecodingOptions, Hypothesis
from saccade.decoding.stepper import Slotted

WIDEST = 255  # hypotheses of a sentence, which are numbered by bytes
MOST_STAGES = 16  # that are kept; each has room for its sentences


@final
class DecodingEngine:
    """Writes with a model in slots; on a CUDA device with a copy of it, in a precision of its own.

    The copy takes the model's weights at the beginning of a call where they have changed, so that a model in training
    is written with as it is; it lies in one place, and so do the stages with their captured steps.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype | None = None) -> None:
        self.model, self._lock = model, threading.Lock()
        self._dtype = dtype if isinstance(getattr(model, "source", None), nn.Embedding) else None
        self._copy: nn.Module | None = None
        self._reader: SourceEncoder | None = None
        self._versions: list[tuple[int, int]] = []  # of the weights that the copy has
        parts = (getattr(module, kept) for module in model.modules() for kept in ("_parameters", "_buffers"))
        self._tensors = [part for part in parts if part]  # where they are, found once: a walk takes a millisecond
        self._stages: dict[BeamOptions, dict[Size, Stage]] = {}

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def refuses(self, options: DecodingOptions, work: DecodingWork) -> str | None:
        """Why this work can't be done in slots, in words; None when it can."""
        if not isinstance(options, BeamOptions):
            return "samples are drawn on the host"
        if not hasattr(self.model, "slots"):
            return f"{type(self.model).__name__} has no slots"
        if options.width > WIDEST:
            return f"a beam of more than {WIDEST}"
        if self.device.type not in PACES:
            return f"no pace is known for {self.device.type}"
        if self.model.training:
            return "dropout is on"
        if hasattr(self.model, "unshard"):
            return "it is sharded over several processes (FSDP2)"
        model = cast(Slotted, self.model)
        longest = max(options.limits(work.lengths, work.prefixes), default=0)
        if model.max_places is not None and longest > model.max_places:
            return f"the model has no more than {model.max_places} positions"
        return model.refuses_slots()

    def write(self, work: DecodingWork, options: BeamOptions) -> list[list[Hypothesis]]:
        """For every sentence its best outputs, best first."""
        device = self.device
        if device.type != "cuda":
            return write(Factory(cast(Slotted, self.model), options, device, PACES[device.type]), work)
        with self._lock:
            if sum(map(len, self._stages.values())) > MOST_STAGES:
                self._stages.clear()
            made = self._stages.setdefault(options, {})
            taken = cast(Slotted, self._taken())
            if self._reader is None:
                self._reader = SourceEncoder(taken, device)
            return write(Factory(taken, options, device, PACES["cuda"], made, self._reader), work)

    @torch.no_grad()
    def _taken(self) -> nn.Module:
        """The copy, with the model's weights as they are now."""
        if self._copy is None:
            self._copy = copy.deepcopy(self.model).requires_grad_(False)
            for parameter in self._copy.parameters():
                parameter.data = parameter.data.to(self._dtype or parameter.dtype)
        versions = [(x.data_ptr(), x._version) for kept in self._tensors for x in kept.values() if x is not None]
        versions.append((0, _optimizer_steps()[0]))
        if versions == self._versions:
            return self._copy
        self._versions = versions
        torch._foreach_copy_(list(self._copy.parameters()), list(self.model.parameters()))
        for mine, theirs in zip(self._copy.buffers(), self.model.buffers(), strict=True):
            mine.copy_(theirs)
        for module in self._copy.modules():
            if isinstance(module, MultiHeadAttention):
                module.join()
        return self._copy


@functools.cache
def _optimizer_steps() -> list[int]:
    """How many steps any optimizer has taken since this was first asked: fused ones change no weight's version."""
    steps = [0]

    def count(*_: object) -> None:
        steps[0] += 1

    register_optimizer_step_post_hook(count)
    return steps
