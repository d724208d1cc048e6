"""The table of kernels, and the choice of one for a call: a pure function that also says why.

To add a kernel, write a module with `REASON`, `refuses` and `run` (and `pays`), and give it a row in `KERNELS`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from saccade.attention.call import Attended, Call
from saccade.attention.kernels import one_row, sdpa, window
from saccade.attention.kernels.additive import fused, series, single, step, tiles
from saccade.attention.kernels.packed import op as packed
from saccade.attention.kernels.sparse import op as streamed
from saccade.attention.reference import reference


class Choice(NamedTuple):
    """An implementation and the sentence that says why it was chosen."""

    backend: str
    why: str
    run: Callable[[Call], Attended]

    def __str__(self) -> str:
        return f"{self.backend}: {self.why}"


class Kernel(NamedTuple):
    """An implementation of attention: how it runs, which calls it refuses, and when it is chosen."""

    name: str
    reason: str  # why it was chosen; empty: the last refusal before it is the reason
    run: Callable[[Call], Attended]
    refuses: Callable[[Call], str | None]  # a sentence that says why it can't run the call, or None
    pays: Callable[[Call], bool] | None = lambda _: True  # whether it is the quicker one; None: only by its name
    device: str | None = None  # the type of device where it may be chosen without its name; None: on all
    runs_parts: bool = False  # whether kernels that cut a call into parts may hand one to it


def select(call: Call, backend: str = "auto") -> Choice:
    """Return the quickest implementation of this call, or the named one; ValueError with the reason if it can't."""
    if backend not in BACKENDS:
        raise ValueError(f"backend: {backend!r} given; allowed: {', '.join(BACKENDS)}")
    return _choose_first(call, KERNELS) if backend == "auto" else _choose_named(call, backend)


def _choose_first(call: Call, kernels: tuple[Kernel, ...]) -> Choice:
    refusal = ""
    for kernel in kernels:
        if kernel.pays is None or kernel.device not in (None, call.query.device.type):
            continue
        if (problem := kernel.refuses(call)) is not None:
            refusal = problem
        elif kernel.pays(call):
            return Choice(kernel.name, kernel.reason or refusal, kernel.run)
    raise AssertionError("the last kernel of the table refuses no call")


def _choose_named(call: Call, name: str) -> Choice:
    kernel = _BY_NAME[name]
    if (refusal := kernel.refuses(call)) is not None:
        raise ValueError(f"backend: {name!r} can't run this call: {refusal}")
    return Choice(name, kernel.reason or "it was asked for", kernel.run)


def _attend_part(call: Call) -> Attended:
    """Run a part of a call that another kernel has cut into parts."""
    return _choose_first(call, _FOR_PARTS).run(call)


def _pays_at_once(call: Call) -> bool:
    return single.is_plain(call) and single.pays(call)


# The first that doesn't refuse and pays is chosen. Of several with one name, the name means the last, which takes most.
KERNELS = (
    Kernel("packed", packed.REASON, packed.run, packed.refuses, device="cuda"),
    Kernel("additive", single.REASON, single.at_once, single.refuses, _pays_at_once),
    Kernel("additive_step", step.REASON, step.run, step.refuses, device="cuda"),
    Kernel("additive", single.REASON, single.run, single.refuses),
    Kernel("additive", fused.REASON, fused.run, fused.refuses, tiles.pays),  # skips what lies outside a band by itself
    Kernel("one_row", one_row.REASON, partial(one_row.run, attend=_attend_part), one_row.refuses),
    Kernel("streamed", streamed.REASON, streamed.run, streamed.refuses, streamed.pays, device="cuda", runs_parts=True),
    Kernel("window", window.REASON, partial(window.run, attend=_attend_part), window.refuses, window.pays),
    Kernel("series", series.REASON, series.run, series.refuses, pays=None),
    Kernel("additive", tiles.REASON, tiles.run, tiles.refuses, tiles.pays, runs_parts=True),
    Kernel("reference", "so few terms are quicker at once", reference, tiles.refuses, runs_parts=True),
    Kernel("sdpa", sdpa.REASON, sdpa.run, sdpa.refuses, runs_parts=True),
    Kernel("reference", "", reference, lambda _: None, runs_parts=True),
)
_FOR_PARTS = tuple(kernel for kernel in KERNELS if kernel.runs_parts)
_BY_NAME = {kernel.name: kernel for kernel in KERNELS}
BACKENDS = ("auto", *dict.fromkeys(kernel.name for kernel in reversed(KERNELS)))
