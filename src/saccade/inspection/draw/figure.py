"""The file endings, fonts and colours that all pictures of words share."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from saccade.errors import UserError
from saccade.files import replace_file

PICTURES = (".png", ".svg", ".pdf")
FONTS = (  # the first is always there; the others, where they are, have the scripts that it lacks
    "DejaVu Sans", "Noto Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans Devanagari", "Noto Sans Thai",
    "Noto Sans Arabic", "Noto Sans Hebrew", "Hiragino Sans", "PingFang SC", "Arial Unicode MS", "Yu Gothic",
    "Microsoft YaHei", "Malgun Gothic", "Nirmala UI", "WenQuanYi Zen Hei", "Droid Sans Fallback", "Symbola",
)  # fmt: skip
STYLE: Any = {
    "text.parse_math": False,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}  # words stay words: $, and to be found
RAMP = ("#f3f5f8", "#b9d2ea", "#5c9fd6", "#1762a8", "#0a2f5c")  # from no weight to all of it
MISSING = re.compile(r"Glyph (\d+) .* missing from")


def check_ending(path: Path) -> None:
    """Refuse a path whose ending is no picture format."""
    if path.suffix not in PICTURES:
        raise UserError(f"{path}: a picture ends in {', '.join(PICTURES[:-1])} or {PICTURES[-1]}")


@contextmanager
def open_picture(path: Path, size: tuple[float, float]) -> Iterator[Any]:
    """Open a figure to draw into, and save it as PNG, SVG or PDF, by the path's ending, at the end of the block."""
    check_ending(path)
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE | {"font.family": list_fonts()}), _warn_once(path):
        figure = Figure(figsize=size, layout="constrained", dpi=150)
        FigureCanvasAgg(figure)
        yield figure
        with replace_file(path) as draft:
            figure.savefig(draft)


def make_colour_map() -> Any:
    """Return the colour map of weights."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("weights", RAMP)


def list_fonts() -> list[str]:
    """Return the fonts that are installed."""
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    return [name for name in FONTS if name in installed]


@contextmanager
def _warn_once(path: Path) -> Iterator[None]:
    """Warn once of all letters that no font has; an SVG gets its fonts where it is opened, so it needs no warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    missing = dict[str, None]()
    for warning in caught:
        if found := MISSING.match(str(warning.message)):
            missing[chr(int(found[1]))] = None
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if missing and path.suffix != ".svg":
        letters = "".join(list(missing)[:12])
        hint = "install one (fonts-noto-cjk), or draw to .svg or .html, which take them where they are opened"
        warnings.warn(f"{path}: no font here has {letters}; {hint}", stacklevel=2)
