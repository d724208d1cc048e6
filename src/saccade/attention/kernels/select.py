"""Which implementation a call takes, and why: a pure function of the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from saccade.attention.call import Attended, Call
from saccade.attention.kernels import one_row, sdpa, window
from saccade.attention.kernels.additive import fused, series, single, step, tiles
from saccade.attention.kernels.packed import op
from saccade.attention.kernels.sparse import op as streamed
from saccade.attention.reference import reference

BACKENDS = (
    "auto",
    "reference",
    "sdpa",
    "additive",
    "additive_step",
    "series",
    "window",
    "one_row",
    "packed",
    "streamed",
)


class Choice(NamedTuple):
    """An implementation and the sentence that says why it was chosen."""

    backend: str
    why: str
    run: Callable[[Call], Attended]

    def __str__(self) -> str:
        return f"{self.backend}: {self.why}"


def select(call: Call, backend: str = "auto") -> Choice:
    """The quickest implementation of this call, or the named one; ValueError with the reason if it can't."""
    if backend not in BACKENDS:
        raise ValueError(f"backend: {backend!r} given; allowed: {', '.join(BACKENDS)}")
    if backend != "auto":
        return _named(call, backend)
    if call.query.device.type == "cuda" and op.refuses(call) is None:
        return _PACKED
    is_single = single.refuses(call) is None
    if is_single and single.is_plain(call) and single.pays(call):
        return _AT_ONCE
    if call.query.device.type == "cuda" and step.refuses(call) is None:
        return _ADDITIVE_STEP
    if is_single:
        return _SINGLE
    if fused.refuses(call) is None and tiles.pays(call):  # it skips what lies outside a band by itself
        return _FUSED
    if one_row.refuses(call) is not None and _streams(call):
        return _STREAMED
    if window.refuses(call) is None and window.pays(call):
        return _WINDOW
    if one_row.refuses(call) is None:
        return _ONE_ROW
    return _whole(call)


def _whole(call: Call) -> Choice:
    """The quickest of those that compute all pairs."""
    if tiles.refuses(call) is None:
        return _ADDITIVE if tiles.pays(call) else Choice("reference", "so few terms are quicker at once", reference)
    if _streams(call):
        return _STREAMED
    if (refusal := sdpa.refuses(call)) is None:
        return _SDPA
    return Choice("reference", refusal, reference)


def _streams(call: Call) -> bool:
    return call.query.device.type == "cuda" and streamed.pays(call) and streamed.refuses(call) is None


def _named(call: Call, backend: str) -> Choice:
    if backend == "reference":
        return Choice("reference", "it was asked for", reference)
    refuses, choice = {
        "sdpa": (sdpa.refuses, _SDPA),
        "additive": (tiles.refuses, _ADDITIVE),
        "series": (series.refuses, _SERIES),
        "additive_step": (step.refuses, _ADDITIVE_STEP),
        "window": (window.refuses, _WINDOW),
        "one_row": (one_row.refuses, _ONE_ROW),
        "packed": (op.refuses, _PACKED),
        "streamed": (streamed.refuses, _STREAMED),
    }[backend]
    if (refusal := refuses(call)) is not None:
        raise ValueError(f"backend: {backend!r} can't run this call: {refusal}")
    return choice


def _run_whole(call: Call) -> Attended:
    return _whole(call).run(call)


_PACKED = Choice("packed", op.REASON, op.run)
_STREAMED = Choice("streamed", streamed.REASON, streamed.run)
_SDPA = Choice("sdpa", sdpa.REASON, sdpa.run)
_ADDITIVE = Choice("additive", tiles.REASON, tiles.run)
_FUSED = Choice("additive", fused.REASON, fused.run)
_SERIES = Choice("series", series.REASON, series.run)
_SINGLE = Choice("additive", single.REASON, single.run)
_AT_ONCE = Choice("additive", single.REASON, single.at_once)
_ADDITIVE_STEP = Choice("additive_step", step.REASON, step.run)
_ONE_ROW = Choice("one_row", one_row.REASON, lambda call: one_row.run(call, _run_whole))
_WINDOW = Choice("window", window.REASON, lambda call: window.run(call, _run_whole))
