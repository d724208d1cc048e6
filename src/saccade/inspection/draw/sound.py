"""Measures and draws where in the sound each word of an output was heard."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from saccade.files import replace_file


def count_later_looks(weight_TS: Tensor) -> tuple[int, int]:
    """Count the steps whose greatest weight is later than that of the step before, and the steps compared."""
    peak_T = weight_TS.argmax(1)
    return int((peak_T[1:] > peak_T[:-1]).sum()), max(0, len(peak_T) - 1)


def measure_monotonic_share(weights: Iterable[Tensor]) -> float:
    """Return the share of steps of all outputs that look later than the step before; NaN without steps."""
    counts = [count_later_looks(weight_TS) for weight_TS in weights]
    steps = sum(count for _, count in counts)
    return sum(later for later, _ in counts) / steps if steps else float("nan")


def to_file(
    weight_TS: Tensor, path: Path, *, words: Sequence[str], frames_SF: NDArray[np.float32], hop: float, title: str = ""
) -> None:
    """Draw the sound's frames, and each word's weights on the same seconds below, as a PNG, SVG or PDF."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    seconds = len(frames_SF) * hop
    figure = Figure(figsize=(min(16.0, 2.5 + 2.2 * seconds), 2.6 + 0.3 * len(words)), layout="constrained", dpi=150)
    FigureCanvasAgg(figure)
    sound, looks = figure.subplots(2, 1, sharex=True, height_ratios=[2.0, 0.6 + 0.3 * len(words)])
    whole = (0, seconds, 0, frames_SF.shape[1])
    sound.imshow(frames_SF.T, origin="lower", aspect="auto", cmap="magma", extent=whole, vmin=-2, vmax=3)
    sound.set_ylabel("mel")
    size = (0, seconds, len(words) - 0.5, -0.5)
    looks.imshow(weight_TS.detach().float().cpu().numpy(), cmap="viridis", vmin=0, aspect="auto", extent=size)
    looks.set_yticks(range(len(words)), words)
    looks.set_xlabel("seconds")
    looks.tick_params(axis="y", length=0)
    if title:
        sound.set_title(title)
    with replace_file(path) as draft:
        figure.savefig(draft)
