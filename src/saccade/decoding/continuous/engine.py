"""The decoding engine: a model that decodes in slots, and what is kept between calls."""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Sequence
from typing import cast, final

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from saccade.attention import MultiHeadAttention
from saccade.decoding.beam import BeamOptions
from saccade.decoding.continuous.greedy_state import StateSize
from saccade.decoding.continuous.scheduler import SETTINGS, DecodingWork, SlotFactory, generate
from saccade.decoding.continuous.sources import SourceEncoder
from saccade.decoding.continuous.step import SlotBatch
from saccade.decoding.options import DecodingOptions, Hypothesis
from saccade.decoding.slices import Tick
from saccade.decoding.stepper import SlotStepper

WIDEST = 255  # most hypotheses of a sentence: their numbers are bytes
MAX_BATCHES = 16  # slot batches that are kept; each has memory for its sentences


@final
class DecodingEngine:
    """Decodes in slots; on a CUDA device with a copy of the model, in a precision of its own.

    At the beginning of a call the copy takes the model's weights if they have changed, so that a model in training is
    used as it is. Its memory stays in place, and so does that of the slots with their captured steps.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype | None = None) -> None:
        self.model, self._lock = model, threading.Lock()
        self._dtype = dtype if isinstance(getattr(model, "source", None), nn.Embedding) else None
        self._copy: nn.Module | None = None
        self._encoder: SourceEncoder | None = None
        self._versions: list[tuple[int, int]] = []  # of the weights that the copy has
        parts = (getattr(module, kept) for module in model.modules() for kept in ("_parameters", "_buffers"))
        self._tensors = [part for part in parts if part]  # found once: a walk through the modules takes a millisecond
        self._batches: dict[BeamOptions, dict[StateSize, SlotBatch]] = {}

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def refuses(self, options: DecodingOptions, work: DecodingWork) -> str | None:
        """Return the reason why slots can't do this work, or None if they can."""
        if not isinstance(options, BeamOptions):
            return "samples are drawn on the host"
        if not hasattr(self.model, "slots"):
            return f"{type(self.model).__name__} has no slots"
        if options.patience:
            return "patience: slots search while a better output may come"
        if options.width > WIDEST:
            return f"a beam of more than {WIDEST}"
        if self.device.type not in SETTINGS:
            return f"slots run on {' and '.join(SETTINGS)} only"
        if self.model.training:
            return "dropout is on"
        if hasattr(self.model, "unshard"):
            return "it is sharded over several processes (FSDP2)"
        model = cast(SlotStepper, self.model)
        longest = max(options.limits(work.lengths, work.prefixes), default=0)
        if model.max_places is not None and longest > model.max_places:
            return f"the model has no more than {model.max_places} positions"
        return model.refuses_slots()

    def generate(self, work: DecodingWork, options: BeamOptions) -> list[list[Hypothesis]]:
        """Return for every sentence its best outputs, best first."""
        device = self.device
        if device.type != "cuda":
            return generate(SlotFactory(cast(SlotStepper, self.model), options, device, SETTINGS[device.type]), work)
        with self._lock:
            if sum(map(len, self._batches.values())) > MAX_BATCHES:
                self._batches.clear()
            made = self._batches.pop(options, {})  # another call may come between two rounds
            model = cast(SlotStepper, self._update_copy())
            if self._encoder is None:
                self._encoder = SourceEncoder(model, device)
            factory = SlotFactory(model, options, device, SETTINGS["cuda"], made, self._encoder)
            try:
                return generate(factory, work._replace(tick=self._unlock_during(work.tick)))
            finally:
                self._batches[options] = made

    def _unlock_during(self, tick: Tick | None) -> Tick | None:
        """Let other calls in while a tick waits."""
        if tick is None:
            return None

        def unlocked() -> Sequence[bool] | None:
            self._lock.release()
            try:
                return tick()
            finally:
                self._lock.acquire()

        return unlocked

    @torch.no_grad()
    def _update_copy(self) -> nn.Module:
        """Copy the weights that have changed into the copy, and return it."""
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
    """Count the steps that any optimizer takes, from the first call on.

    It hooks itself to all optimizers, because torch's fused ones write weights without raising their version: that an
    optimizer took a step is then the only sign that the weights have changed.
    """
    steps = [0]

    def count(*_: object) -> None:
        steps[0] += 1

    register_optimizer_step_post_hook(count)
    return steps
