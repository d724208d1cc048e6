"""Samples as a part of a page: what went in, what came out, and where the model looked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from saccade.data.text.tokenizer import SPACE
from saccade.inspection.pages.render import render, render_table

MOST_PIECES = 60  # on a side of a heat map


class PageSample(NamedTuple):
    """One sentence and the model's output for it; `weights` [T][S] are the output's attention to the source."""

    source: str
    output: str
    reference: str
    score: float | None
    source_pieces: Sequence[str] = ()
    output_pieces: Sequence[str] = ()
    weights: Sequence[Sequence[float]] | None = None


def render_samples(samples: Sequence[PageSample]) -> Markup:
    """Render samples, each with its texts and its heat map."""
    has_weights = any(sample.weights for sample in samples)
    return render("samples.html", samples=[_describe(sample) for sample in samples], has_weights=has_weights)


def _describe(sample: PageSample) -> dict[str, Any]:
    """Return what the template shows of a sample; only texts with weights can light up."""
    source, output = Markup.escape(sample.source), Markup.escape(sample.output)
    if sample.weights:
        source = _mark_pieces(sample.source, sample.source_pieces, "column")
        output = _mark_pieces(sample.output, sample.output_pieces, "row")
    texts = [("Source", source), ("Output", output), ("Reference", sample.reference)]
    return {"score": sample.score, "texts": texts, "heat_map": _render_heat_map(sample)}


def _mark_pieces(text: str, pieces: Sequence[str], side: str) -> Markup:
    """Cut the text into pieces that can light up, where they spell it; else leave it plain."""
    real = [piece for piece in pieces if piece != "</s>"]
    is_marked = any(SPACE in piece for piece in real)
    gap = "" if is_marked or "".join(real) == text else " "
    if gap.join(real).replace(SPACE, " ").strip() != text.strip():
        return escape(text)
    return Markup(gap).join(_mark_piece(piece, side, at) for at, piece in enumerate(real)).strip()


def _mark_piece(piece: str, side: str, at: int) -> Markup:
    """Mark a piece; the space before a word is outside, and doesn't light up with it."""
    word = piece.removeprefix(SPACE)
    span = Markup('<span data-{}="{}">{}</span>').format(side, at, word.replace(SPACE, " "))
    return span if word == piece else " " + span


def _render_heat_map(sample: PageSample) -> Markup:
    """Render a table of shades: a row for each piece of the output, a column for each of the source."""
    if not sample.weights or not sample.weights[0]:
        return Markup()
    height, width = len(sample.weights), len(sample.weights[0])
    labels = _labels(sample.output_pieces, height)
    rows = [
        (piece, [_clamp(weight) for weight in row[:MOST_PIECES]])
        for piece, row in zip(labels, sample.weights, strict=False)
    ]
    cut = f", the first {MOST_PIECES} pieces of each" if max(height, width) > MOST_PIECES else ""
    caption = f"Weights in percent. Down: the output; across: the source{cut}."
    columns = _labels(sample.source_pieces, width)
    return render_table(caption, columns, rows, template="heat_map.html", look="heat", space=SPACE)


def _labels(pieces: Sequence[str], count: int) -> list[str]:
    """Name each weight; the end of the sentence has a weight, but no piece."""
    return [*pieces, *["</s>"] * (count - len(pieces))][: min(count, MOST_PIECES)]


def _clamp(weight: float) -> float:
    return min(1.0, max(0.0, weight))  # in this order NaN gives 0
