"""Many sentences through a fixed number of slots: those that are done leave, those that wait enter.

The outputs are those of `greedy` and `beam_search`, sentence by sentence. The device is asked for nothing inside a
step; every few steps it says which sentences were done some steps ago, while it goes on with the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from saccade.decoding.beam import BeamOptions
from saccade.decoding.board import Size
from saccade.decoding.constraints import Constraints, constrain
from saccade.decoding.harvest import beam_outputs, greedy_outputs
from saccade.decoding.options import Hypothesis
from saccade.decoding.reader import Reader, on_device, power
from saccade.decoding.stage import Stage, to_host
from saccade.decoding.stepper import Slotted

FEW_SENTENCES = 8
ENCODED = 16384  # source steps that are read together
Load = Callable[[Sequence[int]], tuple[Tensor, Tensor]]  # numbers of sentences to their sources and lengths, padded


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


class Work(NamedTuple):
    """Sentences to be written: how to load their sources, on the host; how long these are; what outputs begin with."""

    load: Load
    lengths: Sequence[int]
    prefixes: Sequence[Sequence[int]] = ()

    def prefix(self, number: int) -> Sequence[int]:
        """What a sentence's output begins with."""
        return self.prefixes[number] if self.prefixes else ()


class Factory(NamedTuple):
    """Where stages come from: a model, how it is to write, stages made before, by their size, and who reads sources."""

    model: Slotted
    options: BeamOptions
    device: torch.device
    pace: Pace
    made: dict[Size, Stage] | None = None
    reader: Reader | None = None

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
def write(factory: Factory, work: Work) -> list[list[Hypothesis]]:
    """For every sentence its best outputs, best first."""
    found: list[list[Hypothesis]] = [[] for _ in work.lengths]
    for batch, numbers in _groups(factory, work):
        writing = _Writing(factory, work, batch, deque(numbers), found)
        while not writing.is_over:
            writing.round()
    return found


def _groups(factory: Factory, work: Work) -> Iterator[tuple[int, list[int]]]:
    """Sentences, longest first, with the number of slots that they get; long outputs get fewer."""
    options, pace = factory.options, factory.pace
    limits = [limit(options, work, number) for number in range(len(work.lengths))]
    order = sorted(range(len(limits)), key=lambda number: (-limits[number], -work.lengths[number]))
    most = max(1, pace.rows // options.width)
    while order:
        longest = limits[order[0]]
        batch = min(most, max(1, pace.row_steps // (options.width * longest)))
        count = len(order) if batch == most else sum(limits[number] > longest // 2 for number in order)
        yield batch, order[:count]
        order = order[count:]


def limit(options: BeamOptions, work: Work, number: int) -> int:
    """The longest output of a sentence, </s> included."""
    return max(options.limit(work.lengths[number]), len(work.prefix(number)) + 1)


@final
@dataclass(eq=False)
class _Sentence:
    """One that is being written: its number, its constraints' row, its slot, and at most how many ids it has."""

    number: int
    constraints: Constraints
    row: int
    limit: int
    slot: int
    written: int = 0


class _Look(NamedTuple):
    """Which slots were live at the end of a round, on the way to the host, and who was in which."""

    live_B: Tensor
    sentences: list[tuple[int, _Sentence]]
    wait: Callable[[], None]


class _Leaving(NamedTuple):
    """What was written in some slots, on the way to the host, and by whom."""

    columns: dict[str, Tensor]
    sentences: list[_Sentence]
    wait: Callable[[], None]


@final
@dataclass
class _Writing:
    """Some sentences on their way through slots."""

    factory: Factory
    work: Work
    batch: int
    waiting: deque[int]
    found: list[list[Hypothesis]]
    stage: Stage | None = None
    sentences: list[_Sentence] = field(default_factory=list)
    looks: deque[_Look] = field(default_factory=deque)
    leaving: deque[_Leaving] = field(default_factory=deque)

    @property
    def is_over(self) -> bool:
        """Nobody waits, writes or leaves."""
        return not (self.waiting or self.sentences or self.leaving)

    def round(self) -> None:
        """Some steps. What is asked of the device was done before they are; the host catches up meanwhile."""
        self._let_in()
        lag = self._go_on() if self.sentences else 0
        while self.leaving:
            self._note(self.leaving.popleft())
        while len(self.looks) > lag:
            self._let_out(self.looks.popleft())

    def _go_on(self) -> int:
        """Some steps, and a look; how many looks need not be there yet."""
        left = max(sentence.limit - sentence.written for sentence in self.sentences)
        if not left:
            return 0
        stage, count = self._fitting_stage(), min(left, self.factory.pace.steps_of(len(self.sentences)))
        for _ in range(count):
            stage.step()
        for sentence in self.sentences:
            sentence.written = min(sentence.written + count, sentence.limit)
        if left == count and not self.waiting:  # all have come to their limits, and nobody needs to look
            self.looks.clear()
            self._leave(self.sentences)
            return 0
        where = [(sentence.slot, sentence) for sentence in self.sentences]
        self.looks.append(_Look(to_host(stage.board.live_B), where, _mark(self.factory.device)))
        return self.factory.pace.lag

    def _let_in(self) -> None:
        """Those who wait take free slots, when there are enough of these to be worth reading for."""
        batch = self.batch if self.stage is None else self.stage.size.batch
        while self.waiting and (batch - len(self.sentences)) * 8 >= batch:
            numbers = [self.waiting.popleft()]
            most = min(batch - len(self.sentences), ENCODED // max(1, self.work.lengths[numbers[0]]))
            while self.waiting and len(numbers) < most:
                numbers.append(self.waiting.popleft())
            self._enter(numbers)

    def _enter(self, numbers: list[int]) -> None:
        source, length_E = self.work.load(numbers)
        prefixes = [self.work.prefix(number) for number in numbers]
        constraints = constrain(self.factory.options, source, length_E, prefixes)
        started = self.factory.start(source, length_E)
        stage = self._roomy_stage(started.num_source_steps, constraints)
        taken = {sentence.slot for sentence in self.sentences}
        slots = [slot for slot in range(stage.size.batch) if slot not in taken][: len(numbers)]
        stage.enter(slots, started, constraints, stays=len(slots) <= FEW_SENTENCES and self.factory.keeps(started))
        limits = constraints.limit_B.tolist()
        self.sentences += [
            _Sentence(number, constraints, row, limits[row], slots[row]) for row, number in enumerate(numbers)
        ]

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
        size, pace, count = self.stage.size, self.factory.pace, len(self.sentences)
        steps = max(min(sentence.written + pace.steps, sentence.limit) for sentence in self.sentences) + 2
        if steps > size.steps:
            size = size._replace(steps=max(steps, 2 * size.steps))
        if not self.waiting and count <= size.batch * (1 - pace.spare):
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
        if before is not None and self.sentences:
            self.stage.refill(before, [sentence.slot for sentence in self.sentences])
            for slot, sentence in enumerate(self.sentences):
                sentence.slot = slot
        return self.stage

    def _let_out(self, look: _Look) -> None:
        """Who was done in that round leaves, and what it wrote is sent for."""
        assert self.stage is not None
        look.wait()
        live = look.live_B.tolist()
        done = {sentence for slot, sentence in look.sentences if not live[slot]}
        leaving = [sentence for sentence in self.sentences if sentence in done]
        if leaving:
            self._leave(leaving)

    def _leave(self, leaving: list[_Sentence]) -> None:
        """What these wrote is sent for."""
        assert self.stage is not None
        gone = set(leaving)
        self.sentences = [sentence for sentence in self.sentences if sentence not in gone]
        num_steps = max(sentence.written for sentence in leaving) + 1
        columns = self.stage.columns([sentence.slot for sentence in leaving], num_steps)
        self.leaving.append(_Leaving(columns, leaving, _mark(self.factory.device)))

    def _note(self, leaving: _Leaving) -> None:
        leaving.wait()
        options = self.factory.options
        outputs = greedy_outputs if options.width == 1 else beam_outputs
        own = [(sentence.constraints, sentence.row) for sentence in leaving.sentences]
        for sentence, found in zip(leaving.sentences, outputs(leaving.columns, options, own), strict=True):
            self.found[sentence.number] = found


def _mark(device: torch.device) -> Callable[[], None]:
    """A way to wait until the device has come to this point."""
    if device.type != "cuda":
        return lambda: None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event.synchronize
