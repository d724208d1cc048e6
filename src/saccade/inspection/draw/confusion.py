"""Counts which label was predicted for which, and shows the counts in the terminal and in the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
import torch
from markupsafe import Markup
from numpy.typing import NDArray
from rich.text import Text

from saccade.inspection.draw import heatmap
from saccade.inspection.pages.render import render, render_table

MOST_LABELS = 12  # in the terminal; the rarer ones are counted together
OTHERS = "(others)"


class LabelScores(NamedTuple):
    """The number of texts with a label, and its scores in percent; a score is 0 if there is nothing to divide by."""

    label: str
    num_texts: int
    precision: float
    recall: float
    f1: float


@final
@dataclass(frozen=True)
class Confusion:
    """The number of texts for each pair of true label (rows) and predicted label (columns)."""

    labels: list[str]
    count: NDArray[np.int64]

    @classmethod
    def of(cls, true: Sequence[str], found: Sequence[str]) -> Confusion:
        """Count all pairs of labels that occur on either side; the most frequent true label is first."""
        assert len(true) == len(found)
        names = sorted({*true, *found})
        number = {name: index for index, name in enumerate(names)}
        count = np.zeros((len(names), len(names)), np.int64)
        np.add.at(count, ([number[name] for name in true], [number[name] for name in found]), 1)
        order = np.argsort(-count.sum(1), kind="stable")
        return cls([names[index] for index in order], count[np.ix_(order, order)])

    @property
    def accuracy(self) -> float:
        """Return the share of texts with the right label, in percent."""
        return _percent(int(np.trace(self.count)), int(self.count.sum()))

    @property
    def macro_f1(self) -> float:
        """Return the mean F1 of all labels that occur, rare or frequent, in percent."""
        return float(np.mean([row.f1 for row in self.by_label()]))

    def by_label(self) -> list[LabelScores]:
        """Score each label: F1 = 2 P R / (P + R) = 2 right / (true + found)."""
        true, found, right = self.count.sum(1), self.count.sum(0), np.diag(self.count)
        rows = zip(self.labels, true.tolist(), found.tolist(), right.tolist(), strict=True)
        return [LabelScores(n, t, _percent(r, f), _percent(r, t), _percent(2 * r, t + f)) for n, t, f, r in rows]

    def lines(self, most: int = MOST_LABELS) -> list[str]:
        """Format the table as text: true labels are rows, predicted labels are columns, F1 is the last column."""
        part = self._keep_frequent(most)
        f1 = {row.label: f"{row.f1:.1f}" for row in self.by_label()}
        head = ["", *part.labels, "F1"]
        rows = [
            [name, *map(str, row), f1.get(name, "")] for name, row in zip(part.labels, part.count.tolist(), strict=True)
        ]
        widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
        return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *rows)]

    def html(self) -> Markup:
        """Render the table with every label for the report; a cell is shaded by its share of the row."""
        rows = list(zip(self.labels, self.count.tolist(), strict=True))
        caption = "Down: the true label; across: the one given"
        matrix = render_table(caption, self.labels, rows, template="confusion.html", look="heat")
        head = ["Label", "Texts", "Precision", "Recall", "F1"]
        scores = [_format_scores(row) for row in self.by_label()]
        return matrix + render_table("Each label, in percent", head, scores, template="named_rows.html")

    def draw(self, path: Path) -> None:
        """Draw the shares of each row as a PNG, SVG or PDF."""
        heatmap.check_ending(path)
        share = torch.from_numpy(self.count / self.count.sum(1, keepdims=True).clip(1))
        heatmap.to_file(
            share,
            path,
            queries=self.labels,
            keys=self.labels,
            title="down: true; across: given",
            label="share of the row",
        )

    def _keep_frequent(self, most: int) -> Confusion:
        """Keep the most frequent labels and count all others as one label."""
        if len(self.labels) <= most:
            return self
        group = np.minimum(np.arange(len(self.labels)), most - 1)
        count = np.zeros((most, most), np.int64)
        np.add.at(count, (group[:, None], group), self.count)
        return Confusion([*self.labels[: most - 1], OTHERS], count)


def shade_words(words: Sequence[str], weights: Sequence[float]) -> Markup:
    """Render a text as HTML with a darker shade for a greater weight; the greatest has the full shade."""
    most = max(weights, default=0.0) or 1.0
    span = Markup('<span style="background:rgb(var(--accent) / {:.2f});border-radius:3px" title="{:.1f}%">{}</span>')
    return Markup(" ").join(
        span.format(0.6 * weight / most, 100 * weight, word) for word, weight in zip(words, weights, strict=True)
    )


def in_terminal(words: Sequence[str], weights: Sequence[float], *, with_numbers: bool = False) -> Text:
    """Colour a text for the terminal, brighter for a greater weight; numbers help where there are no colours."""
    most, line = max(weights, default=0.0) or 1.0, Text()
    for word, weight in zip(words, weights, strict=True):
        level = round(90 + 165 * weight / most)
        shown = f"{word}:{weight:.2f}" if with_numbers else word
        line.append(shown, style=f"rgb({level // 3},{level},{level // 2})").append(" ")
    return line


def render_articles(texts: Iterable[tuple[str, str, str, str]]) -> Markup:
    """Render texts for a page; each is its HTML, the true label, the predicted label and a remark."""
    return render("labelled.html", texts=[(Markup(text), true, given, said) for text, true, given, said in texts])


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def _format_scores(row: LabelScores) -> list[str]:
    return [row.label, f"{row.num_texts:,}", f"{row.precision:.1f}", f"{row.recall:.1f}", f"{row.f1:.1f}"]
