"""The native library in the place of our search: the same options, scores and cuts, without Python between steps."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import cast, final

import numpy as np

from saccade.data.batches import pad_sources
from saccade.data.text.tokenizer import END, PAD, START, UNKNOWN
from saccade.decoding import BeamOptions, Hypothesis, SamplingOptions, Stepper
from saccade.decoding.beam import CutScore, name_cut, rank_hypotheses
from saccade.decoding.constraints import Constraints, constrain
from saccade.decoding.slices import Tick, narrow
from saccade.export.native.engine import NativeEngine
from saccade.export.native.library import SearchOptions, SearchOutput, SearchTold, load_library
from saccade.export.native.shortlist import Integers, Shortlist
from saccade.export.proof import Ids
from saccade.export.stepped import keep_within, search_steps

MOST_WIDTH = 32  # of a beam without Python; csrc/native.h has twice this number
MOST_ROWS = 128  # that one thread steps with
FEW_ROWS = 8  # for each thread: these share every step instead
SLICE = 64  # rows times steps between two looks at who else waits
BUSY = 1.5  # processes that want to run, for each core
ALL_STEPS = 1 << 40
ENDED = 0


@final
class NativeSearch:
    """Searches with a packed model."""

    name = "native"

    def __init__(self, engine: NativeEngine, shortlist: Shortlist | None = None) -> None:
        self._engine, self._shortlist = engine, shortlist

    def refuse(self, options: BeamOptions | SamplingOptions) -> str | None:
        """Refuse what Python has to search for, if there is a shortlist: it is for the library's own search."""
        if self._shortlist is None or self._is_whole(options):
            return None
        asked = "sample" if isinstance(options, SamplingOptions) else f"beam: {options.width}"
        asked = "no_repeat_ngram" if isinstance(options, BeamOptions) and options.no_repeat_ngram else asked
        return f"{asked} with a shortlist: that search is done outside of the library, for all ids"

    @staticmethod
    def _is_whole(options: BeamOptions | SamplingOptions) -> bool:
        """Tell whether the library searches by itself."""
        return isinstance(options, BeamOptions) and options.width <= MOST_WIDTH and not options.no_repeat_ngram

    def refuse_prefixes(self, options: BeamOptions | SamplingOptions) -> None:
        """Refuse nothing: every option can be combined with prefixes."""

    def search(
        self, sources: Ids, prefixes: Ids, options: BeamOptions | SamplingOptions, tick: Tick | None
    ) -> list[list[Hypothesis]]:
        """Return the best outputs of every source, best first."""
        options = keep_within(self._engine.longest, sources, options)
        if not isinstance(options, BeamOptions) or not self._is_whole(options):
            return search_steps(cast(Stepper, self._engine), sources, prefixes, options, tick)
        found: list[list[Hypothesis]] = [[] for _ in sources]
        if kept := [row for row, ids in enumerate(sources) if ids]:
            tell = None if tick is None else narrow(tick, kept)
            best = self._search_all([sources[row] for row in kept], [prefixes[row] for row in kept], options, tell)
            for row, hypotheses in zip(kept, best, strict=True):
                found[row] = hypotheses
        return found

    def _search_all(
        self, sources: Ids, prefixes: Ids, options: BeamOptions, tick: Tick | None
    ) -> list[list[Hypothesis]]:
        """Search without Python between steps, or between a few of them where others wait."""
        source_BS, length_B = pad_sources(sources)
        constraints = constrain(options, source_BS, length_B, prefixes)
        order = sorted(range(len(sources)), key=lambda row: -len(sources[row]))  # so that threads end together
        running = _RunningSearch(self._engine, options, len(sources))
        try:
            limits, guards = constraints.limit_B.tolist(), constraints.guarded_B.tolist()
            for row in order:
                ids = source_BS[row, : int(length_B[row])].tolist()
                running.add(ids, prefixes[row], limits[row], guards[row])
                if self._shortlist is not None:
                    running.allow(self._shortlist.allow(ids, prefixes[row]))
            running.run(order, tick)
            found: list[list[Hypothesis]] = [[] for _ in sources]
            for number, row in enumerate(order):
                found[row] = running.tell(number, constraints, row)
            return found
        finally:
            running.forget()


def _is_busy() -> bool:
    """Tell whether others compute on this machine's cores: threads that share steps would wait for each other."""
    if not hasattr(os, "getloadavg"):  # Windows
        return False
    return os.getloadavg()[0] > BUSY * (os.cpu_count() or 1)


@final
class _RunningSearch:
    """A search of the library, from its beginning to its end."""

    def __init__(self, engine: NativeEngine, options: BeamOptions, count: int) -> None:
        self._library, self._engine, self._options = load_library(), engine, options
        banned = [PAD, START, *([] if options.writes_unknown else [UNKNOWN])]
        given = SearchOptions(
            options.width,
            options.num_best,
            options.min_length,
            options.max_rounds,
            options.length_offset,
            options.most_ended,
            sum(1 << number for number in banned),
            options.length_penalty,
        )
        self._rows = min(count * options.width, MOST_ROWS)
        is_shared = count * options.width < FEW_ROWS * engine.threads or count < engine.threads
        is_shared = is_shared and not _is_busy()
        self._handle = self._library.saccade_search(
            engine.handle, ctypes.byref(given), count, max(self._rows, options.width), is_shared
        )
        assert self._handle

    def add(self, ids: list[int], prefix: Sequence[int], limit: int, is_guarded: bool) -> None:
        self._engine.check_ids([ids])
        source, start = np.array(ids, np.int32), np.array([*prefix, PAD], np.int32)
        done = self._library.saccade_add(
            self._handle, len(ids), source.ctypes.data, len(prefix), start.ctypes.data, limit, is_guarded
        )
        assert not done

    def allow(self, ids_N: Integers) -> None:
        """Say which ids the output of the source that was added last may have."""
        done = self._library.saccade_allow(self._handle, len(ids_N), ids_N.ctypes.data)
        assert not done

    def run(self, order: Sequence[int], tick: Tick | None) -> None:
        steps = ALL_STEPS if tick is None else max(1, SLICE // self._rows)
        while self._library.saccade_run(self._handle, steps):
            if tick is not None and (wanted := tick()) is not None:
                for number, row in enumerate(order):
                    if not wanted[row]:
                        self._library.saccade_drop(self._handle, number)

    def tell(self, number: int, constraints: Constraints, row: int) -> list[Hypothesis]:
        """Return the outputs of a source as our search does."""
        told, output = SearchTold(), SearchOutput()
        self._library.saccade_tell(self._handle, number, ctypes.byref(told))
        finished, cut = list[Hypothesis](), list[Hypothesis]()
        for which in range(told.num_found):
            self._library.saccade_output(self._handle, number, which, ctypes.byref(output))
            ids, steps = output.ids[: output.count], output.steps[: output.count]
            if output.kind == ENDED:
                finished.append(self._options.hypothesis(ids[: -1 if ids[-1] == END else None], steps))
            else:
                kept, why = constraints.cut(row, ids)
                cut.append(self._options.hypothesis(ids[:kept], steps[:kept], why))
        found = rank_hypotheses(finished, cut, self._options.num_best)
        if self._options.width == 1 or not told.lost:
            return found
        limit = int(constraints.limit_B[row])
        reason = "max_rounds" if told.lost == 1 else self._options.name_limit(limit)
        return name_cut(found, CutScore(told.lost_score, reason))

    def forget(self) -> None:
        self._library.saccade_forget(self._handle)
