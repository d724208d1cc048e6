"""`saccade bench glimpse`: compares the cost of a forward pass with a convolutional network's, by image size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

import torch
from rich.table import Table
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from saccade.bench.measure import medians_side_by_side
from saccade.files import replace_file
from saccade.models.glimpse_network import GlimpseNetwork

SIDES = (28, 60, 100, 200, 400)
OPERATIONS_PER_POINT = 8  # a bilinear value: four products and their sum


@final
@dataclass(frozen=True)
class GlimpseRow:
    """Seconds and operations for one image of one size, for our network and the convolutional one."""

    side: int
    seconds: float
    peer_seconds: float
    operations: int
    peer_operations: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def run(
    *, device: torch.device, sides: Sequence[int] = SIDES, batch: int = 64, at_least: float = 0.4
) -> list[GlimpseRow]:
    """Measure both networks on images of each size, in turns."""
    glimpses = GlimpseNetwork(
        10, size=12, num_scales=4, num_glimpses=8, glimpse="convolution", glimpse_width=256, cell="lstm", width=512
    )
    glimpses, peer = glimpses.eval().to(device), build_convolutional(10).eval().to(device)
    noise_TBM2 = torch.zeros(glimpses.num_glimpses, 1, 1, 2, device=device)
    with torch.no_grad():
        return [_measure(glimpses, peer, noise_TBM2, side, batch, at_least) for side in sides]


def build_convolutional(num_classes: int) -> nn.Module:
    """Build a network of two convolutions, each followed by a pooling layer, and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, num_classes),
    )


def _measure(
    glimpses: GlimpseNetwork, peer: nn.Module, noise_TBM2: Tensor, side: int, batch: int, at_least: float
) -> GlimpseRow:
    device = noise_TBM2.device
    image_BCYX = torch.rand(batch, 1, side, side, device=device)
    runs = {"ours": lambda: glimpses(image_BCYX, noise_TBM2), "theirs": lambda: peer(image_BCYX)}
    seconds = medians_side_by_side(runs, device, at_least=at_least)
    points = glimpses.num_glimpses * len(glimpses.sensor.x_N1) * OPERATIONS_PER_POINT
    operations = {name: _count_operations(function) // batch for name, function in runs.items()}
    return GlimpseRow(
        side=side,
        seconds=seconds["ours"] / batch,
        peer_seconds=seconds["theirs"] / batch,
        operations=operations["ours"] + points,
        peer_operations=operations["theirs"],
    )


def _count_operations(function: Callable[[], object]) -> int:
    """Count the operations of matrix products and convolutions."""
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def table(rows: Sequence[GlimpseRow]) -> Table:
    """Build a table with a line for each image size."""
    found = Table(title="forward pass, one image", title_justify="left", header_style="bold", box=None, pad_edge=False)
    for heading in ("image", "glimpses", "convolutions", "ratio", "glimpses", "convolutions", "ratio"):
        found.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        found.add_row(
            f"{row.side} x {row.side}",
            f"{row.seconds * 1e6:,.0f} us",
            f"{row.peer_seconds * 1e6:,.0f} us",
            f"{row.seconds / row.peer_seconds:.2f}",
            f"{row.operations / 1e6:,.0f} M",
            f"{row.peer_operations / 1e6:,.0f} M",
            f"{row.operations / row.peer_operations:.2f}",
        )
    return found


def plot(rows: Sequence[GlimpseRow], path: Path) -> None:
    """Draw time and operations by the image's side, with logarithmic axes."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator

    figure = Figure(figsize=(8.4, 3.4), layout="constrained")
    panels: dict[str, tuple[float, list[float], list[float]]] = {
        "microseconds for an image": (1e6, [row.seconds for row in rows], [row.peer_seconds for row in rows]),
        "million operations": (1e-6, [row.operations for row in rows], [row.peer_operations for row in rows]),
    }
    for axes, (label, (unit, ours, theirs)) in zip(figure.subplots(1, 2), panels.items(), strict=True):
        for name, values, colour in (("glimpses", ours, "tab:orange"), ("convolutions", theirs, "tab:gray")):
            axes.loglog([row.side for row in rows], [value * unit for value in values], "o-", color=colour, label=name)
        axes.set_xticks([row.side for row in rows], [str(row.side) for row in rows])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("pixels along a side")
        axes.set_ylabel(label)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(frameon=False)
    with replace_file(path) as draft:
        figure.savefig(draft, dpi=150, format="png")
