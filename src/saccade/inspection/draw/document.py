"""Draws a document on two levels: a bar for the weight of each sentence, and its words shaded by theirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from saccade.inspection.draw import heatmap
from saccade.inspection.draw.confusion import in_terminal as colour_words
from saccade.inspection.draw.confusion import shade_words
from saccade.inspection.draw.figure import RAMP, list_fonts, make_colour_map, open_picture
from saccade.inspection.pages.render import render

BAR = 10  # cells of the heaviest sentence in the terminal
BARS, PLAIN_BARS = "▏▎▍▌▋▊▉█", "#"
LINE = 100  # characters of a line of a picture
LETTER, ROW = 0.085, 0.24  # inches: a letter's width, a line's height
LEFT = 1.9  # inches of the bars


class SentenceWeight(NamedTuple):
    """A sentence of a document: its weight, and its words, `first` to `end`."""

    weight: float
    first: int
    end: int


class Document(NamedTuple):
    """The words of a document with their weights, and its sentences with theirs."""

    words: Sequence[str]
    weights: Sequence[float]
    sentences: Sequence[SentenceWeight]

    @property
    def most(self) -> float:
        return max((one.weight for one in self.sentences), default=0.0) or 1.0


def in_terminal(document: Document, console: Console) -> RenderableType:
    """Draw a row for each sentence; in a file, which has no colours, words have numbers."""
    words = [heatmap.make_printable(word, console.encoding) for word in document.words]
    text = colour_words(words, document.weights, with_numbers=not console.is_terminal)
    parts = list(_cut_words(text, document.sentences))
    bars = [_bar(one.weight, document.most, console) for one in document.sentences]
    if not console.is_terminal:
        return Group(
            *(Text(f"{bar} ", overflow="ignore", no_wrap=True) + part for bar, part in zip(bars, parts, strict=True))
        )
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column()
    for bar, part in zip(bars, parts, strict=True):
        table.add_row(Text(bar), part)
    return table


def _cut_words(text: Text, sentences: Sequence[SentenceWeight]) -> Iterator[Text]:
    """Cut a text with a span for each word into sentences."""
    starts = [0, *(span.end + 1 for span in text.spans)]
    for one in sentences:
        yield text[starts[one.first] : max(starts[one.first], starts[one.end] - 1)]


def _bar(weight: float, most: float, console: Console) -> str:
    eighths = round(8 * BAR * weight / most)
    bar = BARS[-1] * (eighths // 8) + (BARS[eighths % 8 - 1] if eighths % 8 else "")
    if not heatmap.can_show(console, BARS):
        bar = PLAIN_BARS * round(eighths / 8)
    return f"{bar}{' ' * (BAR - cell_len(bar))} {100 * weight:4.1f}%"


def render_html(document: Document) -> str:
    """Render a row for each sentence for a page."""
    most = max(document.weights, default=0.0)
    rows = [
        (one.weight, one.weight / document.most, shade_words(*_part(document, one), most=most))
        for one in document.sentences
    ]
    return render("document.html", sentences=rows)


def _part(document: Document, one: SentenceWeight) -> tuple[Sequence[str], Sequence[float]]:
    return document.words[one.first : one.end], document.weights[one.first : one.end]


class _Word(NamedTuple):
    column: int
    line: int
    word: str
    weight: float


def to_file(document: Document, path: Path, *, title: str) -> None:
    """Write a PNG, SVG or PDF, by the path's ending."""
    placed, bars, line = list[_Word](), list[tuple[int, SentenceWeight]](), 0
    for one in document.sentences:
        bars.append((line, one))
        own = list(_place(*_part(document, one), line))
        placed += own
        line = (own[-1].line if own else line) + 1
    width, height = LEFT + (LINE + 4) * LETTER, (line + 2) * ROW
    with open_picture(path, (width, height)) as figure:
        figure.set_layout_engine("none")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, width), ylim=(height, 0))
        axes.axis("off")
        axes.text(0.15, 0.6 * ROW, title, va="center", weight="bold")
        for row, one in bars:
            _draw_bar(axes, (row + 2) * ROW, one.weight, document.most)
        most, colours = max(document.weights, default=0.0) or 1.0, make_colour_map()
        for place in placed:
            share = place.weight / most
            axes.text(
                LEFT + place.column * LETTER,
                (place.line + 2) * ROW,
                place.word,
                family=["DejaVu Sans Mono", *list_fonts()],
                fontsize=10,
                va="center",
                color="white" if share > 0.58 else "#1d2126",
                bbox={"facecolor": colours(share), "edgecolor": "none", "pad": 1.2},
            )


def _draw_bar(axes: object, middle: float, weight: float, most: float) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axes, Axes)
    length = 0.95 * weight / most
    axes.barh(middle, length, height=0.55 * ROW, left=1.05 - length, color=RAMP[3])
    axes.text(1.12, middle, f"{100 * weight:.1f}%", va="center", fontsize=9, color="#5c6570")


def _place(words: Sequence[str], weights: Sequence[float], line: int) -> Iterator[_Word]:
    """Place words in lines of a fixed width; where no letter is wider than another."""
    column = 0
    for word, weight in zip(words, weights, strict=True):
        size = cell_len(word)
        if column and column + size > LINE:
            column, line = 0, line + 1
        yield _Word(column, line, word, weight)
        column += size + 1
