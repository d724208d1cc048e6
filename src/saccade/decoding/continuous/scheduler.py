"""Many sentences through a fixed number of slots: those that are done leave, those that wait enter.

The outputs are those of `greedy` and `beam_search`, sentence by sentence. The device is asked for nothing inside a
step; every few steps it says which sentences were done some steps ago, while it goes on with the others.
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
from saccade.decoding.continuous.greedy_state import Size
from saccade.decoding.continuous.results import Flags, Integers, beam_outputs, greedy_outputs
from saccade.decoding.continuous.sources import SourceEncoder, on_device, power
from saccade.decoding.continuous.step import Stage, to_host
from saccade.decoding.options import Hypothesis
from saccade.decoding.stepper import Slotted

FEW_SENTENCES = 8
ENCODED = 16384  # source steps that are read together
Load = Callable[[Sequence[int]], tuple[Tensor, Tensor]]  # numbers of sentences to their sources and lengths, padded
Column = NDArray[Any]  # something of every sentence


class Pace(NamedTuple):
    """How much is written together, and how often it is looked at."""

    rows: int  # hypotheses
    row_steps: int  # of all hypotheses together, if each goes to its limit
    first_steps: int  # of output that there is room for at first; it is doubled when that is not enough
    steps: int  # in a round, which ends with a look
    lag: int  # rounds that a look is behind
    spare: float  # the share of slots that may be empty when nobody waits
    rounded: bool  # sizes are powers of two, so that few are met

    def steps_of(self, num_sentences: int) -> int:
        """In a round of so many: for few the host has time to look twice as often, and they wait for nobody else."""
        return self.steps if num_sentences > FEW_SENTENCES else max(1, self.steps // 2)


PACES = {"cpu": Pace(256, 1 << 16, 16, 1, 0, 0.25, False), "cuda": Pace(2048, 1 << 20, 64, 4, 1, 0.5, True)}


class DecodingWork(NamedTuple):
    """Sentences to be written: how to load their sources, on the host; how long these are; what outputs begin with."""

    load: Load
    lengths: Sequence[int]
    prefixes: Sequence[Sequence[int]] = ()


class Factory(NamedTuple):
    """Where stages come from: a model, how it is to write, stages made before, by their size, and who reads sources."""

    model: Slotted
    options: BeamOptions
    device: torch.device
    pace: Pace
    made: dict[Size, Stage] | None = None
    reader: SourceEncoder | None = None

    def stage(self, size: Size) -> Stage:
        """An empty stage of this size."""
        if self.made is None:
            return Stage(self.model, self.options, size, self.device)
        if size not in self.made:
            self.made[size] = Stage(self.model, self.options, size, self.device)
        self.made[size].board.live_B.zero_()
        return self.made[size]

    def start(self, source: Tensor, length_E: Tensor) -> Any:
        """The model's state after these sources; further rows are those of the last."""
        if self.reader is not None and self.reader.reads(source):
            return self.reader.start(source, length_E)
        return self.model.start(on_device(source, self.device), on_device(length_E, self.device))

    def keeps(self, started: Any) -> bool:
        """Whether other sources will be read into this state."""
        return self.reader is not None and self.reader.keeps(started)


@torch.inference_mode()
def write(factory: Factory, work: DecodingWork) -> list[list[Hypothesis]]:
    """For every sentence its best outputs, best first."""
    found: list[list[Hypothesis]] = [[] for _ in work.lengths]
    for batch, numbers in _groups(factory, work):
        writing = _Writing(factory, work, batch, numbers, found)
        while not writing.is_over:
            writing.round()
    return found


def _groups(factory: Factory, work: DecodingWork) -> Iterator[tuple[int, Integers]]:
    """Sentences, longest first, with the number of slots that they get; long outputs get fewer."""
    options, pace = factory.options, factory.pace
    limit_S = np.asarray(options.limits(work.lengths, work.prefixes), np.int64)
    order_S = np.lexsort((-np.asarray(work.lengths, np.int64), -limit_S))
    most = max(1, pace.rows // options.width)
    while len(order_S):
        longest = int(limit_S[order_S[0]])
        batch = min(most, max(1, pace.row_steps // (options.width * longest)))
        count = len(order_S) if batch == most else int((limit_S[order_S] > longest // 2).sum())
        yield batch, order_S[:count]
        order_S = order_S[count:]


class _Sentences(NamedTuple):
    """Some that are being written: their numbers and slots, how many ids each may and does have, who may not loop."""

    number_S: Column
    slot_S: Column
    limit_S: Column
    written_S: Column
    guarded_S: Column

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.number_S)

    def only(self, is_kept_S: Flags) -> _Sentences:
        """Some of them."""
        return _Sentences(*(column_S[is_kept_S] for column_S in self))

    def joined(self, other: _Sentences) -> _Sentences:
        """These and others."""
        return _Sentences(*(np.concatenate(both) for both in zip(self, other, strict=True)))

    def after(self, count: int) -> _Sentences:
        """Some steps later."""
        return self._replace(written_S=np.minimum(self.written_S + count, self.limit_S))


_NO = np.zeros(0, np.int64)
NOBODY = _Sentences(_NO, _NO, _NO, _NO, _NO.astype(np.bool_))


class _Look(NamedTuple):
    """Which slots were live at the end of a round, on the way to the host, and who was in which."""

    live_B: Tensor
    sentences: _Sentences
    wait: Callable[[], None]


class _Leaving(NamedTuple):
    """What was written in some slots, on the way to the host, and by whom."""

    columns: dict[str, Tensor]
    sentences: _Sentences
    wait: Callable[[], None]


@final
@dataclass
class _Writing:
    """Some sentences on their way through slots."""

    factory: Factory
    work: DecodingWork
    batch: int
    waiting: Integers
    found: list[list[Hypothesis]]
    stage: Stage | None = None
    sentences: _Sentences = NOBODY
    looks: deque[_Look] = field(default_factory=deque)
    leaving: deque[_Leaving] = field(default_factory=deque)

    @property
    def is_over(self) -> bool:
        """Nobody waits, writes or leaves."""
        return not (len(self.waiting) or self.sentences.size or self.leaving)

    def round(self) -> None:
        """Some steps. What is asked of the device was done before they are; the host catches up meanwhile."""
        self._let_in()
        lag = self._go_on() if self.sentences.size else 0
        while self.leaving:
            self._note(self.leaving.popleft())
        while len(self.looks) > lag:
            self._let_out(self.looks.popleft())

    def _go_on(self) -> int:
        """Some steps, and a look; how many looks need not be there yet."""
        left = int((self.sentences.limit_S - self.sentences.written_S).max())
        if not left:
            return 0
        stage, count = self._fitting_stage(), min(left, self.factory.pace.steps_of(self.sentences.size))
        for _ in range(count):
            stage.step()
        self.sentences = self.sentences.after(count)
        if left == count and not len(self.waiting):  # all have come to their limits, and nobody needs to look
            self.looks.clear()
            self._leave(np.ones(self.sentences.size, np.bool_))
            return 0
        self.looks.append(_Look(to_host(stage.board.live_B), self.sentences, _mark(self.factory.device)))
        return self.factory.pace.lag

    def _let_in(self) -> None:
        """Those who wait take free slots, when there are enough of these to be worth reading for."""
        batch = self.batch if self.stage is None else self.stage.size.batch
        while len(self.waiting) and (free := batch - self.sentences.size) * 8 >= batch:
            most = min(free, max(1, ENCODED // max(1, self.work.lengths[self.waiting[0]])))
            numbers_E, self.waiting = self.waiting[:most], self.waiting[most:]
            self._enter(numbers_E)

    def _enter(self, number_E: Integers) -> None:
        numbers = number_E.tolist()
        source, length_E = self.work.load(numbers)
        started = self.factory.start(source, length_E)  # what follows is done while the device reads
        prefixes = [self.work.prefixes[number] for number in numbers] if self.work.prefixes else ()
        constraints = constrain(self.factory.options, source, length_E, prefixes)
        stage = self._roomy_stage(started.num_source_steps, constraints)
        is_free_B = np.ones(stage.size.batch, np.bool_)
        is_free_B[self.sentences.slot_S] = False
        slot_E = is_free_B.nonzero()[0][: len(numbers)]
        stays = len(numbers) <= FEW_SENTENCES and self.factory.keeps(started)
        stage.enter(slot_E.tolist(), started, constraints, stays=stays)
        limit_E, guarded_E = constraints.limit_B.numpy(), constraints.guarded_B.numpy()
        entering = _Sentences(number_E, slot_E, limit_E, np.zeros_like(number_E), guarded_E)
        self.sentences = self.sentences.joined(entering)

    def _roomy_stage(self, source_steps: int, constraints: Constraints) -> Stage:
        """The stage, with room for these sources and prefixes."""
        prefix_steps, width = constraints.prefix_BT.shape[1], self.factory.options.width
        if self.stage is None:
            count = min(self.batch, len(constraints.limit_B) + len(self.waiting))
            steps = min(self.factory.pace.first_steps, int(constraints.limit_B.max()) + 2)
            return self._moved(Size(count, width, steps, source_steps, prefix_steps))
        size = self.stage.size
        more = (max(size.source_steps, source_steps), max(size.prefix_steps, prefix_steps))
        return self._moved(size._replace(source_steps=more[0], prefix_steps=more[1]))

    def _fitting_stage(self) -> Stage:
        """The stage, with room for the steps of a round; without empty slots, when nobody waits for them."""
        assert self.stage is not None
        size, pace, count = self.stage.size, self.factory.pace, self.sentences.size
        steps = int(self.sentences.after(pace.steps).written_S.max()) + 2
        if steps > size.steps:
            size = size._replace(steps=max(steps, 2 * size.steps))
        if not len(self.waiting) and count <= size.batch * (1 - pace.spare):
            size = size._replace(batch=count)
        return self._moved(size)

    def _moved(self, size: Size) -> Stage:
        """The stage of this size; who is written goes there."""
        if self.factory.pace.rounded:
            batch, width, *steps = size
            size = Size(power(batch), width, *(power(one) if one else 0 for one in steps))
        if self.stage is not None and self.stage.size == size:
            return self.stage
        before, self.stage = self.stage, self.factory.stage(size)
        if before is not None and self.sentences.size:
            self.stage.refill(before, self.sentences.slot_S.tolist())
            self.sentences = self.sentences._replace(slot_S=np.arange(self.sentences.size))
        return self.stage

    def _let_out(self, look: _Look) -> None:
        """Who was done in that round leaves, and what it wrote is sent for."""
        look.wait()
        is_live_S = look.live_B.numpy()[look.sentences.slot_S]
        if not is_live_S.all():
            is_leaving_S = np.isin(self.sentences.number_S, look.sentences.number_S[~is_live_S])
            if is_leaving_S.any():
                self._leave(is_leaving_S)

    def _leave(self, is_leaving_S: Flags) -> None:
        """What these wrote is sent for."""
        assert self.stage is not None
        leaving, self.sentences = self.sentences.only(is_leaving_S), self.sentences.only(~is_leaving_S)
        columns = self.stage.columns(leaving.slot_S.tolist(), int(leaving.written_S.max()) + 1)
        self.leaving.append(_Leaving(columns, leaving, _mark(self.factory.device)))

    def _note(self, leaving: _Leaving) -> None:
        leaving.wait()
        outputs = greedy_outputs if self.factory.options.width == 1 else beam_outputs
        found = outputs(leaving.columns, self.factory.options, leaving.sentences.guarded_S)
        for number, best in zip(leaving.sentences.number_S.tolist(), found, strict=True):
            self.found[number] = best


def _mark(device: torch.device) -> Callable[[], None]:
    """A way to wait until the device has come to this point."""
    if device.type != "cuda":
        return lambda: None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event.synchronize
