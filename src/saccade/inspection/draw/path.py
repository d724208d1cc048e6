"""Draws the glimpses of a network: their path over the picture and what each saw, as a PNG or a moving GIF."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.errors import UserError
from saccade.files import replace_file
from saccade.layers.glimpse_sensor import GlimpseSensor

ENDINGS = (".png", ".gif")
FRAME_MILLISECONDS, LAST_MILLISECONDS = 600, 2400


@final
@dataclass(frozen=True)
class Scanpath:
    """A picture (uint8), the locations (x, y) in it, the sensor, and the class probabilities after each glimpse."""

    image_CYX: NDArray[np.uint8]
    location_T2: Tensor
    sensor: GlimpseSensor
    share_TV: Tensor
    names: Sequence[str]

    def pixels(self) -> list[tuple[float, float]]:
        """Return the locations in pixels from the left and from the top."""
        rows, columns = self.image_CYX.shape[-2:]
        return [((x + 1) * columns / 2, (y + 1) * rows / 2) for x, y in self.location_T2.tolist()]

    def belief(self, step: int) -> tuple[str, float]:
        """Return the likeliest class after a glimpse, and its probability."""
        share, row = self.share_TV[step].max(-1)
        return self.names[int(row)], float(share)

    def glimpses(self) -> Tensor:
        """Return the patches that the sensor saw, [T, scales, Y, X, C]."""
        device = self.sensor.x_N1.device
        image_1CYX = torch.tensor(self.image_CYX, device=device)[None].float() / 255
        seen_TCYX = self.sensor(image_1CYX, self.location_T2[None].to(device)).cpu()
        return seen_TCYX.unflatten(1, (self.sensor.num_scales, -1)).movedim(2, -1)


def check_ending(path: Path) -> None:
    """Refuse a path that ends in neither .png nor .gif."""
    if path.suffix not in ENDINGS:
        raise UserError(f"{path}: a path of glimpses ends in {' or '.join(ENDINGS)}")


def draw(scanpath: Scanpath, path: Path, *, title: str = "") -> None:
    """Write a PNG, or a GIF with a frame for each glimpse, by the path's ending."""
    check_ending(path)
    with replace_file(path) as draft:
        draft.write_bytes(draw_png(scanpath, title) if path.suffix == ".png" else draw_gif(scanpath, title))


def draw_png(scanpath: Scanpath, title: str = "") -> bytes:
    """Draw the whole path as one picture."""
    return _encode([_frame(scanpath, len(scanpath.location_T2), title)], "png")


def draw_gif(scanpath: Scanpath, title: str = "") -> bytes:
    """Draw a moving picture with one more glimpse in each frame."""
    num_glimpses = len(scanpath.location_T2)
    frames = [_frame(scanpath, until, title if until == num_glimpses else "") for until in range(1, num_glimpses + 1)]
    times = [FRAME_MILLISECONDS] * (num_glimpses - 1) + [LAST_MILLISECONDS]
    return _encode(frames, "gif", save_all=True, append_images=frames[1:], duration=times, loop=0)


def _encode(frames: list[Any], kind: str, **options: Any) -> bytes:
    written = io.BytesIO()
    frames[0].save(written, kind, **options)
    return written.getvalue()


def _frame(scanpath: Scanpath, until: int, title: str) -> Any:
    """Draw the first `until` glimpses on the picture, and beside it their patches and beliefs."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    num_glimpses, num_scales = len(scanpath.location_T2), scanpath.sensor.num_scales
    figure = Figure(figsize=(3.4 + 0.72 * num_glimpses, 3.7), dpi=110)
    canvas = FigureCanvasAgg(figure)
    grid = figure.add_gridspec(1, 2, width_ratios=[3.2, 0.72 * num_glimpses], left=0.02, right=0.99, wspace=0.06)
    _draw_path(figure.add_subplot(grid[0]), scanpath, until)
    small = grid[1].subgridspec(num_scales, num_glimpses, wspace=0.12, hspace=0.08)
    for step, glimpse_kYXC in enumerate(scanpath.glimpses()[:until]):
        for scale, patch_YXC in enumerate(glimpse_kYXC):
            axes = figure.add_subplot(small[scale, step])
            _show(axes, patch_YXC.numpy())
            _frame_colour(axes, colour(step, num_glimpses), bold=step == until - 1)
            if scale == num_scales - 1:
                name, share = scanpath.belief(step)
                axes.set_xlabel(f"{name}\n{share:.0%}", fontsize=8)
            if scale == 0:
                axes.set_title(str(step + 1), fontsize=9)
    figure.suptitle(title or " ")
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def _draw_path(axes: Any, scanpath: Scanpath, until: int) -> None:
    """Draw the picture with a square for each glimpse's finest patch, and a line from each to the next."""
    from matplotlib.patches import Rectangle

    image_YXC, size = np.moveaxis(scanpath.image_CYX, 0, -1), scanpath.sensor.size
    _show(axes, image_YXC / 255)
    places, total = [(x - 0.5, y - 0.5) for x, y in scanpath.pixels()[:until]], len(scanpath.location_T2)
    for step, ((x, y), (to_x, to_y)) in enumerate(itertools.pairwise(places)):
        axes.plot([x, to_x], [y, to_y], color=colour(step + 1, total), linewidth=1.8, zorder=3)
    for step, (x, y) in enumerate(places):
        style: Any = {"linewidth": 2.4 if step == until - 1 else 1.2, "edgecolor": colour(step, total), "zorder": 2}
        axes.add_patch(Rectangle((x - size / 2, y - size / 2), size, size, facecolor="none", **style))
        mark = {"markersize": 11, "markeredgecolor": "black", "zorder": 4 + step}
        axes.plot(x, y, "o", color=colour(step, total), **mark)
        axes.text(x, y, str(step + 1), fontsize=7, ha="center", va="center_baseline", zorder=4.5 + step)
    axes.set_xlim(-0.5, image_YXC.shape[1] - 0.5)
    axes.set_ylim(image_YXC.shape[0] - 0.5, -0.5)


def _show(axes: Any, image_YXC: NDArray[Any]) -> None:
    axes.imshow(image_YXC.squeeze(-1) if image_YXC.shape[-1] == 1 else image_YXC, cmap="gray", vmin=0, vmax=1)
    axes.set_xticks([])
    axes.set_yticks([])


def _frame_colour(axes: Any, colour: Any, *, bold: bool) -> None:
    for spine in axes.spines.values():
        spine.set_edgecolor(colour)
        spine.set_linewidth(2.6 if bold else 1.4)


def colour(step: int, total: int) -> tuple[float, float, float]:
    """Return the colour of a glimpse, from yellow to red: red, green and blue from 0 to 1."""
    return 1.0, 0.85 * (1 - step / max(1, total - 1)), 0.0
