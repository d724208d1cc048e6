"""Samples as a part of a page: what went in, what came out, and where it looked."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from saccade.data.text.tokenizer import SPACE

MOST_PIECES = 60  # on a side of a heat map


class Sample(NamedTuple):
    """One sentence and what the model made of it; `weights` [T][S] are the output's looks at the source."""

    source: str
    output: str
    reference: str
    score: float | None
    source_pieces: Sequence[str] = ()
    output_pieces: Sequence[str] = ()
    weights: Sequence[Sequence[float]] | None = None


def articles(samples: Sequence[Sample]) -> str:
    """The samples, each with its texts and its heat map."""
    shown = "".join(_sample(sample, number) for number, sample in enumerate(samples, 1))
    if any(sample.weights for sample in samples):
        shown = (
            '<p class="hint">Point at a word of an output: the words it looked at light up in its source.</p>\n' + shown
        )
    return shown


def _sample(sample: Sample, number: int) -> str:
    score = "" if sample.score is None else f" <small>score {sample.score:.2f}</small>"
    sides = [
        (
            "Source",
            _running(sample.source, sample.source_pieces, "column") if sample.weights else escape(sample.source),
        ),
        ("Output", _running(sample.output, sample.output_pieces, "row") if sample.weights else escape(sample.output)),
        ("Reference", escape(sample.reference)),
    ]
    texts = "".join(f'<div><dt>{name}</dt><dd dir="auto">{text}</dd></div>\n' for name, text in sides)
    return f"<article><h3>Sentence {number}{score}</h3>\n<dl>\n{texts}</dl>\n{_heat_map(sample, number)}</article>\n"


def _running(text: str, pieces: Sequence[str], side: str) -> str:
    """The text, in pieces that can light up where they spell it, else plain."""
    real = [piece for piece in pieces if piece != "</s>"]
    is_marked = any(SPACE in piece for piece in real)
    gap = "" if is_marked or "".join(real) == text else " "
    if gap.join(real).replace(SPACE, " ").strip() != text.strip():
        return escape(text)
    return gap.join(_span(piece, f'data-{side}="{at}"') for at, piece in enumerate(real)).strip()


def _span(piece: str, name: str) -> str:
    """The space before a word doesn't light up with it."""
    word = piece.removeprefix(SPACE)
    return f"{' ' * (word != piece)}<span {name}>{escape(word.replace(SPACE, ' '))}</span>"


def _heat_map(sample: Sample, number: int) -> str:
    """A table of shades: a row for each piece of the output, a column for each of the source."""
    if not sample.weights or not sample.weights[0]:
        return ""
    height, width = len(sample.weights), len(sample.weights[0])
    columns = _labels(sample.source_pieces, width)
    head = "".join(
        f'<th scope="col" data-column="{at}"><span dir="auto">{_marked(piece)}</span></th>'
        for at, piece in enumerate(columns)
    )
    rows = "".join(
        f'<tr><th scope="row" data-row="{at}" dir="auto">{_marked(piece)}</th>'
        f"{''.join(_cell(weight) for weight in row[:MOST_PIECES])}</tr>\n"
        for at, (piece, row) in enumerate(zip(_labels(sample.output_pieces, height), sample.weights, strict=False))
    )
    cut = f", the first {MOST_PIECES} pieces of each" if max(height, width) > MOST_PIECES else ""
    caption = f"Weights in percent. Down: the output; across: the source{cut}."
    grid = table(caption, f"<tr><td></td>{head}</tr>", rows, look="heat")
    return f"<details{' open' * (number == 1)}><summary>Where it looked</summary>\n{grid}</details>\n"


def _marked(piece: str) -> str:
    return escape(piece).replace(SPACE, f"<i>{SPACE}</i>")


def _labels(pieces: Sequence[str], count: int) -> list[str]:
    """A name for each weight; the end of the sentence has one, but no piece."""
    return [*pieces, *["</s>"] * (count - len(pieces))][: min(count, MOST_PIECES)]


def _cell(weight: float) -> str:
    share = min(1.0, max(0.0, weight))  # in this order NaN gives 0
    look = ' class="strong"' if share > 0.5 else ""
    return f'<td{look} style="--w:{share:.2f}">{100 * share:.0f}</td>'


def table(caption: str, head: str, rows: str, look: str = "") -> str:
    """A table that scrolls inside its own box; nothing where it has no rows."""
    if not rows:
        return ""
    return (
        f'<div class="scroll {look}" role="region" tabindex="0" aria-label="{escape(caption)}">'
        f"<table><caption><span>{escape(caption)}</span></caption>\n<thead>{head}</thead>\n<tbody>{rows}</tbody></table></div>\n"
    )
