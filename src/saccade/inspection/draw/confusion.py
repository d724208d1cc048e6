"""Counts which label was predicted for which, and shows the counts in the terminal and in the report."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from markupsafe import Markup
from numpy.typing import NDArray
from rich.text import Text

from saccade.inspection.draw import heatmap
from saccade.inspection.pages.render import render, render_table

MOST_LABELS = 12  # in the terminal; the rarer ones are counted together
MOST_PAIRS = 10  # of labels that were taken for each other, below a table without all labels
OTHERS = "(others)"
SCORE_COLUMNS = ["Label", "Texts", "Precision", "Recall", "F1"]


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
        return _score_labels(self.labels, self.count.sum(1), self.count.sum(0), np.diag(self.count))

    def scores(self) -> dict[str, Any]:
        """Return all of it for programs."""
        table = {"labels": self.labels, "count": self.count.tolist()}
        return {
            "accuracy": self.accuracy,
            "macro_f1": self.macro_f1,
            "by_label": [row._asdict() for row in self.by_label()],
            "confusion": table,
        }

    def lines(self, width: int | None = None) -> list[str]:
        """Format the table as text, with as many labels as fit; behind the others, the pairs most often confused."""
        width = width or shutil.get_terminal_size().columns
        sizes = range(min(len(self.labels), MOST_LABELS), 1, -1)
        tables = ((size, self._format_table(size)) for size in sizes)
        shown, table = next((one for one in tables if max(map(len, one[1])) <= width), (0, []))
        return table if shown == len(self.labels) else [*table, *self._format_pairs()]

    def _format_pairs(self) -> list[str]:
        wrong = self.count - np.diag(np.diag(self.count))
        order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_PAIRS]
        pairs = [(int(row), int(column)) for row, column in zip(*np.unravel_index(order, wrong.shape), strict=True)]
        rows = [f"{wrong[at]:>6,}  {self.labels[at[0]]} -> {self.labels[at[1]]}" for at in pairs if wrong[at]]
        return (
            ["", f"Most confused of {len(self.labels)} labels (true -> given; --json has all):", *rows] if rows else []
        )

    def _format_table(self, most: int) -> list[str]:
        """Format true labels as rows, predicted labels as columns, F1 as the last column."""
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
        return matrix + _render_scores(self.by_label())

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


@final
@dataclass(frozen=True)
class LabelCounts:
    """Texts with several labels at once: how many have each label, how many were given it, and how many both."""

    labels: list[str]
    true: NDArray[np.int64]
    found: NDArray[np.int64]
    right: NDArray[np.int64]
    num_texts: int
    num_exact: int  # texts with exactly the right labels

    @classmethod
    def of(cls, true: Sequence[Collection[str]], found: Sequence[Collection[str]]) -> LabelCounts:
        """Count every label that occurs on either side; the most frequent true label is first."""
        pairs = list(zip(map(set, true), map(set, found), strict=True))
        each = [Counter(name for names in side for name in names) for side in (true, found)]
        both = Counter(name for one, other in pairs for name in one & other)
        labels = sorted({*each[0], *each[1]}, key=lambda name: (-each[0][name], name))
        given, said, right = (np.array([count[name] for name in labels], np.int64) for count in (*each, both))
        return cls(labels, given, said, right, len(pairs), sum(one == other for one, other in pairs))

    @property
    def accuracy(self) -> float:
        """Return the share of texts with exactly the right labels, in percent."""
        return _percent(self.num_exact, self.num_texts)

    @property
    def micro_f1(self) -> float:
        """Return F1 = 2 right / (true + found) over all labels of all texts, in percent."""
        return _percent(2 * int(self.right.sum()), int(self.true.sum() + self.found.sum()))

    @property
    def macro_f1(self) -> float:
        """Return the mean F1 of all labels that occur, rare or frequent, in percent."""
        return float(np.mean([row.f1 for row in self.by_label()])) if self.labels else 0.0

    def by_label(self) -> list[LabelScores]:
        return _score_labels(self.labels, self.true, self.found, self.right)

    def scores(self) -> dict[str, Any]:
        """Return all of it for programs."""
        totals = {name: getattr(self, name) for name in ("micro_f1", "macro_f1", "accuracy")}
        return {**totals, "by_label": [row._asdict() for row in self.by_label()]}

    def lines(self) -> list[str]:
        """Format a line for each label."""
        rows = [SCORE_COLUMNS, *map(_format_scores, self.by_label())]
        widths = [max(len(row[column]) for row in rows) for column in range(len(SCORE_COLUMNS))]
        return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]

    def html(self) -> Markup:
        """Render a row for each label for the report."""
        return _render_scores(self.by_label())


def shade_words(words: Sequence[str], weights: Sequence[float], *, most: float | None = None) -> Markup:
    """Render a text as HTML with a darker shade for a greater weight; `most`, or the greatest, has the full shade."""
    most = (max(weights, default=0.0) if most is None else most) or 1.0
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


def _score_labels(
    labels: Sequence[str], true: NDArray[np.int64], found: NDArray[np.int64], right: NDArray[np.int64]
) -> list[LabelScores]:
    rows = zip(labels, true.tolist(), found.tolist(), right.tolist(), strict=True)
    return [LabelScores(n, t, _percent(r, f), _percent(r, t), _percent(2 * r, t + f)) for n, t, f, r in rows]


def _render_scores(rows: Iterable[LabelScores]) -> Markup:
    scores = [_format_scores(row) for row in rows]
    return render_table("Each label, in percent", SCORE_COLUMNS, scores, template="named_rows.html")


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def _format_scores(row: LabelScores) -> list[str]:
    return [row.label, f"{row.num_texts:,}", f"{row.precision:.1f}", f"{row.recall:.1f}", f"{row.f1:.1f}"]
