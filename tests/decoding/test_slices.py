"""Searches in slices: pauses change no result, sources that nobody waits for leave, and an end is an end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from saccade.decoding import BeamOptions, DecodingWork, Hypothesis, SamplingOptions, search
from saccade.decoding.continuous.scheduler import SETTINGS, SlotFactory, generate
from saccade.decoding.slices import ComputationEnded, Tick, pause, supervise, tick_of
from slot_cases import random_sources, small_model, work_of

NUM_SOURCES, DROPPED = 9, (0, 4, 7)
WAYS: dict[str, BeamOptions | SamplingOptions] = {
    "greedy": BeamOptions(max_length_factor=4.0),
    "beam": BeamOptions(width=4, num_best=3, max_length_factor=4.0),
    "samples": SamplingOptions(num_best=2, max_length_factor=4.0),
}
Search = Callable[[Tick | None], list[list[Hypothesis]]]


def make_search(way: str, *, slots: bool) -> Search:
    torch.manual_seed(3)
    model, options = small_model().requires_grad_(False), WAYS[way]
    work = work_of(random_sources(NUM_SOURCES))
    if not slots:
        return lambda tick: search(model, *work.load(range(NUM_SOURCES)), options, tick=tick)
    assert isinstance(options, BeamOptions)
    settings = SETTINGS["cpu"]._replace(rows=4 * options.width)  # some wait for a slot
    factory = SlotFactory(model, options, torch.device("cpu"), settings)
    return lambda tick: generate(factory, DecodingWork(work.load, work.lengths, tick=tick))


SEARCHES = pytest.mark.parametrize(
    ("way", "slots"), [("greedy", False), ("beam", False), ("samples", False), ("greedy", True), ("beam", True)]
)


@SEARCHES
def test_pauses_change_nothing(way: str, *, slots: bool) -> None:
    run, calls = make_search(way, slots=slots), list[None]()
    expected = run(None)
    assert run(lambda: calls.append(None)) == expected
    assert run(lambda: [True] * NUM_SOURCES) == expected
    assert len(calls) >= max(len(best[0].ids) for best in expected)


@SEARCHES
def test_sources_that_nobody_waits_for_leave_and_change_no_other(way: str, *, slots: bool) -> None:
    run, calls = make_search(way, slots=slots), list[None]()

    def tick() -> Sequence[bool] | None:
        calls.append(None)
        return None if len(calls) < 3 else [number not in DROPPED for number in range(NUM_SOURCES)]

    expected, found = run(None), run(tick)
    for number, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        if number not in DROPPED:
            assert [one.ids for one in mine] == [one.ids for one in theirs]
    longest = [max(map(len, (one.ids for one in expected[number]))) for number in DROPPED]
    assert max(longest) > 4  # it would have gone on
    assert all(len(one.ids) <= 4 for number in DROPPED for one in found[number])
    calls.clear()
    run(lambda: calls.append(None) or [False] * NUM_SOURCES)  # type: ignore[func-returns-value]
    assert len(calls) <= 2


class Endless:
    """A supervisor that drops the first input, and ends all at its third pause."""

    def __init__(self) -> None:
        self.num_pauses = 0

    def pause(self) -> None:
        self.num_pauses += 1
        if self.num_pauses == 3:
            raise ComputationEnded

    def find_wanted(self) -> list[bool]:
        return [False, True, True]


def test_a_supervisor_is_of_a_block_and_of_a_thread() -> None:
    supervisor = Endless()
    pause()
    assert tick_of([0]) is None
    with supervise(supervisor):
        pause()
        tick = tick_of([2, 0])
        assert tick is not None
        assert tick() == [True, False]
        with pytest.raises(ComputationEnded):
            make_search("beam", slots=False)(tick_of(range(9)))
    pause()
    assert supervisor.num_pauses == 3
