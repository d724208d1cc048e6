"""Which implementation a call takes, and why: a pure function of the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from saccade.attention.call import Attended, Call
from saccade.attention.kernels import (
    additive,
    additive_fused,
    additive_series,
    additive_single,
    additive_step,
    one_row,
    packed,
    sdpa,
    streamed,
    window,
)
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
    if call.query.device.type == "cuda" and packed.refuses(call) is None:
        return _PACKED
    is_single = additive_single.refuses(call) is None
    if is_single and additive_single.is_plain(call) and additive_single.pays(call):
        return _AT_ONCE
    if call.query.device.type == "cuda" and additive_step.refuses(call) is None:
        return _ADDITIVE_STEP
    if is_single:
        return _SINGLE
    if additive_fused.refuses(call) is None and additive.pays(call):  # it skips what lies outside a band by itself
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
    if additive.refuses(call) is None:
        return _ADDITIVE if additive.pays(call) else Choice("reference", "so few terms are quicker at once", reference)
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
        "additive": (additive.refuses, _ADDITIVE),
        "series": (additive_series.refuses, _SERIES),
        "additive_step": (additive_step.refuses, _ADDITIVE_STEP),
        "window": (window.refuses, _WINDOW),
        "one_row": (one_row.refuses, _ONE_ROW),
        "packed": (packed.refuses, _PACKED),
        "streamed": (streamed.refuses, _STREAMED),
    }[backend]
    if (refusal := refuses(call)) is not None:
        raise ValueError(f"backend: {backend!r} can't run this call: {refusal}")
    return choice


def _run_whole(call: Call) -> Attended:
    return _whole(call).run(call)


_PACKED = Choice("packed", packed.REASON, packed.run)
_STREAMED = Choice("streamed", streamed.REASON, streamed.run)
_SDPA = Choice("sdpa", sdpa.REASON, sdpa.run)
_ADDITIVE = Choice("additive", additive.REASON, additive.run)
_FUSED = Choice("additive", additive_fused.REASON, additive_fused.run)
_SERIES = Choice("series", additive_series.REASON, additive_series.run)
_SINGLE = Choice("additive", additive_single.REASON, additive_single.run)
_AT_ONCE = Choice("additive", additive_single.REASON, additive_single.at_once)
_ADDITIVE_STEP = Choice("additive_step", additive_step.REASON, additive_step.run)
_ONE_ROW = Choice("one_row", one_row.REASON, lambda call: one_row.run(call, _run_whole))
_WINDOW = Choice("window", window.REASON, lambda call: window.run(call, _run_whole))
