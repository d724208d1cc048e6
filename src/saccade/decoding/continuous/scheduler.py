"""Continuous batching: sentences pass through a fixed number of slots, and new ones take those of finished ones.

The outputs are those of `greedy` and `beam_search`, sentence by sentence. The host asks the device for nothing inside a
step; every few steps it learns which sentences had finished some steps ago, while the device works on the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.decoding.beam import BeamOptions
from saccade.decoding.constraints import Constraints, constrain
from saccade.decoding.continuous.greedy_state import StateSize
from saccade.decoding.continuous.results import Flags, Integers, collect_beam, collect_greedy
from saccade.decoding.continuous.sources import SourceEncoder, next_power_of_two, to_device
from saccade.decoding.continuous.step import SlotBatch, to_host
from saccade.decoding.options import Hypothesis
from saccade.decoding.slices import Tick
from saccade.decoding.stepper import SlotStepper

FEW_SENTENCES = 8
MAX_SOURCE_STEPS = 16384  # that are encoded together
Load = Callable[[Sequence[int]], tuple[Tensor, Tensor]]  # numbers of sentences to their sources and lengths, padded
Column = NDArray[Any]  # a value for every sentence


class SchedulerSettings(NamedTuple):
    """Settings of continuous batching: how much is decoded together, and how often the host looks at it."""

    rows: int  # hypotheses
    row_steps: int  # of all hypotheses together, if each goes to its limit
    first_steps: int  # of output that there is room for at first; it is doubled when that is not enough
    steps: int  # in a round, which ends with a status check
    lag: int  # rounds that a status check is behind
    spare: float  # the share of slots that may be empty when no sentence waits
    rounded: bool  # sizes are powers of two, so that few different ones occur

    def steps_of(self, num_sentences: int) -> int:
        """Return the steps of a round: half as many for few sentences, as the host then has time to look."""
        return self.steps if num_sentences > FEW_SENTENCES else max(1, self.steps // 2)


SETTINGS = {
    "cpu": SchedulerSettings(256, 1 << 16, 16, 1, 0, 0.25, False),
    "cuda": SchedulerSettings(2048, 1 << 20, 64, 4, 1, 0.5, True),
}


class DecodingWork(NamedTuple):
    """Sentences to decode: how to load their sources on the host, the sources' lengths, and prefixes of the outputs.

    `tick` is called between two rounds of steps.
    """

    load: Load
    lengths: Sequence[int]
    prefixes: Sequence[Sequence[int]] = ()
    tick: Tick | None = None


class SlotFactory(NamedTuple):
    """Makes batches of slots for a model and options. `made` keeps them by size; `encoder` replays encodings."""

    model: SlotStepper
    options: BeamOptions
    device: torch.device
    settings: SchedulerSettings
    made: dict[StateSize, SlotBatch] | None = None
    encoder: SourceEncoder | None = None

    def make(self, size: StateSize) -> SlotBatch:
        """Return an empty batch of slots of this size."""
        if self.made is None:
            return SlotBatch(self.model, self.options, size, self.device)
        if size not in self.made:
            self.made[size] = SlotBatch(self.model, self.options, size, self.device)
        self.made[size].state.live_B.zero_()
        return self.made[size]

    def encode(self, source: Tensor, length_E: Tensor) -> Any:
        """Return the model's state after these sources; further rows are copies of the last."""
        if self.encoder is not None and self.encoder.accepts(source):
            return self.encoder.start(source, length_E)
        return self.model.start(to_device(source, self.device), to_device(length_E, self.device))

    def is_reused(self, started: Any) -> bool:
        """Return whether other sources will be encoded into this same state."""
        return self.encoder is not None and self.encoder.is_reused(started)


@torch.inference_mode()
def generate(factory: SlotFactory, work: DecodingWork) -> list[list[Hypothesis]]:
    """Return for every sentence its best outputs, best first."""
    results: list[list[Hypothesis]] = [[] for _ in work.lengths]
    for num_slots, numbers in _group_by_limit(factory, work):
        scheduler = _Scheduler(factory, work, num_slots, numbers, results)
        while not scheduler.is_done:
            scheduler.run_round()
            if work.tick is not None and (wanted := work.tick()) is not None:
                scheduler.drop(~np.asarray(wanted, np.bool_))
    return results


def _group_by_limit(factory: SlotFactory, work: DecodingWork) -> Iterator[tuple[int, Integers]]:
    """Yield numbers of slots with the sentences for them, longest first; long outputs get fewer slots."""
    options, settings = factory.options, factory.settings
    limits = np.asarray(options.limits(work.lengths, work.prefixes), np.int64)
    order = np.lexsort((-np.asarray(work.lengths, np.int64), -limits))
    most = max(1, settings.rows // options.width)
    while len(order):
        longest = int(limits[order[0]])
        num_slots = min(most, max(1, settings.row_steps // (options.width * longest)))
        count = len(order) if num_slots == most else int((limits[order] > longest // 2).sum())
        yield num_slots, order[:count]
        order = order[count:]


class _Sentences(NamedTuple):
    """Sentences in slots: number, slot, most ids, ids so far, and whether loops are cut."""

    numbers: Column
    slots: Column
    limits: Column
    lengths: Column
    guarded: Column

    @property
    def size(self) -> int:
        return len(self.numbers)

    def select(self, is_kept: Flags) -> _Sentences:
        return _Sentences(*(column[is_kept] for column in self))

    def join(self, other: _Sentences) -> _Sentences:
        return _Sentences(*(np.concatenate(both) for both in zip(self, other, strict=True)))

    def after(self, count: int) -> _Sentences:
        """Return the sentences some steps later."""
        return self._replace(lengths=np.minimum(self.lengths + count, self.limits))


_EMPTY = np.zeros(0, np.int64)
NO_SENTENCES = _Sentences(_EMPTY, _EMPTY, _EMPTY, _EMPTY, _EMPTY.astype(np.bool_))


class _StatusCheck(NamedTuple):
    """The slots that were live at the end of a round, on their way to the host, and the sentences in them."""

    live_B: Tensor
    sentences: _Sentences
    wait: Callable[[], None]


class _PendingResults(NamedTuple):
    """The contents of some slots, on their way to the host, and the sentences that were in them."""

    columns: dict[str, Tensor]
    sentences: _Sentences
    wait: Callable[[], None]


@final
@dataclass
class _Scheduler:
    """Passes some sentences through slots, round by round."""

    factory: SlotFactory
    work: DecodingWork
    num_slots: int
    waiting: Integers
    results: list[list[Hypothesis]]
    batch: SlotBatch | None = None
    sentences: _Sentences = NO_SENTENCES
    checks: deque[_StatusCheck] = field(default_factory=deque)
    pending: deque[_PendingResults] = field(default_factory=deque)

    @property
    def is_done(self) -> bool:
        return not (len(self.waiting) or self.sentences.size or self.pending)

    def run_round(self) -> None:
        """Queue several decoder steps, then process results of the previous round while they run."""
        self._admit()
        lag = self._run_steps() if self.sentences.size else 0
        while self.pending:
            self._store_results(self.pending.popleft())
        while len(self.checks) > lag:
            self._retire_finished(self.checks.popleft())

    def drop(self, is_unwanted: Flags) -> None:
        """Drop the sentences that nobody waits for; those in slots are as they are now."""
        self.waiting = self.waiting[~is_unwanted[self.waiting]]
        if is_unwanted[self.sentences.numbers].any():
            self._retire(is_unwanted[self.sentences.numbers])

    def _run_steps(self) -> int:
        """Queue the steps of a round and a status check; return how many checks may still be on their way."""
        left = int((self.sentences.limits - self.sentences.lengths).max())
        if not left:
            return 0
        batch, count = self._fit_round(), min(left, self.factory.settings.steps_of(self.sentences.size))
        for _ in range(count):
            batch.step()
        self.sentences = self.sentences.after(count)
        if left == count and not len(self.waiting):  # all have come to their limits: no check is needed
            self.checks.clear()
            self._retire(np.ones(self.sentences.size, np.bool_))
            return 0
        self.checks.append(
            _StatusCheck(to_host(batch.state.live_B), self.sentences, _record_event(self.factory.device))
        )
        return self.factory.settings.lag

    def _admit(self) -> None:
        """Give free slots to waiting sentences, once an eighth of the slots is free: encoding few is not worth it."""
        num_slots = self.num_slots if self.batch is None else self.batch.size.batch
        while len(self.waiting) and (free := num_slots - self.sentences.size) * 8 >= num_slots:
            most = min(free, max(1, MAX_SOURCE_STEPS // max(1, self.work.lengths[self.waiting[0]])))
            numbers, self.waiting = self.waiting[:most], self.waiting[most:]
            self._enter(numbers)

    def _enter(self, number_E: Integers) -> None:
        numbers = number_E.tolist()
        source, length_E = self.work.load(numbers)
        started = self.factory.encode(source, length_E)  # what follows is done while the device encodes
        prefixes = [self.work.prefixes[number] for number in numbers] if self.work.prefixes else ()
        constraints = constrain(self.factory.options, source, length_E, prefixes)
        batch = self._fit_sources(started.num_source_steps, constraints)
        is_free_B = np.ones(batch.size.batch, np.bool_)
        is_free_B[self.sentences.slots] = False
        slot_E = is_free_B.nonzero()[0][: len(numbers)]
        is_reused = len(numbers) <= FEW_SENTENCES and self.factory.is_reused(started)
        batch.enter(slot_E.tolist(), started, constraints, is_reused=is_reused)
        limit_E, guarded_E = constraints.limit_B.numpy(), constraints.guarded_B.numpy()
        entering = _Sentences(number_E, slot_E, limit_E, np.zeros_like(number_E), guarded_E)
        self.sentences = self.sentences.join(entering)

    def _fit_sources(self, source_steps: int, constraints: Constraints) -> SlotBatch:
        """Return slots with room for these sources and prefixes."""
        prefix_steps, width = constraints.prefix_BT.shape[1], self.factory.options.width
        if self.batch is None:
            count = min(self.num_slots, len(constraints.limit_B) + len(self.waiting))
            steps = min(self.factory.settings.first_steps, int(constraints.limit_B.max()) + 2)
            return self._resize(StateSize(count, width, steps, source_steps, prefix_steps))
        size = self.batch.size
        more = (max(size.source_steps, source_steps), max(size.prefix_steps, prefix_steps))
        return self._resize(size._replace(source_steps=more[0], prefix_steps=more[1]))

    def _fit_round(self) -> SlotBatch:
        """Return slots with room for the steps of a round, and without empty slots when no sentence waits for them."""
        assert self.batch is not None
        size, settings, count = self.batch.size, self.factory.settings, self.sentences.size
        steps = int(self.sentences.after(settings.steps).lengths.max()) + 2
        if steps > size.steps:
            size = size._replace(steps=max(steps, 2 * size.steps))
        if not len(self.waiting) and count <= size.batch * (1 - settings.spare):
            size = size._replace(batch=count)
        return self._resize(size)

    def _resize(self, size: StateSize) -> SlotBatch:
        """Move the sentences to slots of this size."""
        if self.factory.settings.rounded:
            batch, width, *steps = size
            size = StateSize(next_power_of_two(batch), width, *(next_power_of_two(n) if n else 0 for n in steps))
        if self.batch is not None and self.batch.size == size:
            return self.batch
        before, self.batch = self.batch, self.factory.make(size)
        if before is not None and self.sentences.size:
            self.batch.refill(before, self.sentences.slots.tolist())
            self.sentences = self.sentences._replace(slots=np.arange(self.sentences.size))
        return self.batch

    def _retire_finished(self, check: _StatusCheck) -> None:
        """Retire the sentences that had finished at this check."""
        check.wait()
        is_live = check.live_B.numpy()[check.sentences.slots]
        if not is_live.all():
            is_finished = np.isin(self.sentences.numbers, check.sentences.numbers[~is_live])
            if is_finished.any():
                self._retire(is_finished)

    def _retire(self, is_finished: Flags) -> None:
        """Free the slots of these sentences and send for their contents."""
        assert self.batch is not None
        finished, self.sentences = self.sentences.select(is_finished), self.sentences.select(~is_finished)
        columns = self.batch.columns(finished.slots.tolist(), int(finished.lengths.max()) + 1)
        self.pending.append(_PendingResults(columns, finished, _record_event(self.factory.device)))

    def _store_results(self, pending: _PendingResults) -> None:
        pending.wait()
        collect = collect_greedy if self.factory.options.width == 1 else collect_beam
        sentences = pending.sentences
        found = collect(pending.columns, self.factory.options, sentences.limits, sentences.guarded)
        for number, best in zip(sentences.numbers.tolist(), found, strict=True):
            self.results[number] = best


def _record_event(device: torch.device) -> Callable[[], None]:
    """Return a function that waits until the device has come to this point."""
    if device.type != "cuda":
        return lambda: None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event.synchronize
