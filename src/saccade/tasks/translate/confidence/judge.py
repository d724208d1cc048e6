"""Fits confidence on outputs whose references are known, and says how far it is from the share that is right."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from markupsafe import Markup

from saccade.inspection.calibration import (
    Bin,
    Floats,
    MonotoneMap,
    expected_error,
    fit_monotone,
    fit_words,
    make_bins,
)
from saccade.inspection.insight import TextSide
from saccade.inspection.pages import curves
from saccade.inspection.pages.curves import Line
from saccade.inspection.pages.render import render_table
from saccade.tasks.translate.confidence.confidence import Confidence, read_words
from saccade.tasks.translate.result import TranslationResult

if TYPE_CHECKING:
    from saccade.tasks.translate.predictor import Translator

GROUP = 20  # outputs that the map of whole outputs takes together, so that none decides alone
UNCHANGED = MonotoneMap((0.0, 1.0), (0.0, 1.0))


class JudgedWords(NamedTuple):
    """p and rightness [words] of all words, and the number of words of each output."""

    p: Floats
    right: Floats
    counts: list[int]

    def means(self, of_words: Floats) -> Floats:
        """Return the mean of each output."""
        return np.array([of_words[start:stop].mean() for start, stop in pairwise(np.cumsum([0, *self.counts]))])


class Reliability(NamedTuple):
    """Bins of words, and of whole outputs, each as the model says it and as it is fitted."""

    words: tuple[list[Bin], list[Bin]]
    sentences: tuple[list[Bin], list[Bin]]

    def figures(self) -> dict[str, float]:
        """Return the expected calibration errors, before and after."""
        names = (("words", self.words), ("sentences", self.sentences))
        return {
            f"calibration_error_{name}{when}": expected_error(bins)
            for name, both in names
            for when, bins in zip(("_before", ""), both, strict=True)
        }

    def lines(self) -> list[str]:
        names = (("words", self.words), ("sentences", self.sentences))
        return [
            f"calibration error of {name}: {100 * expected_error(before):.1f}% as the model says it, "
            f"{100 * expected_error(after):.1f}% as it is fitted"
            for name, (before, after) in names
        ]

    def render(self) -> Markup:
        """Draw the shares of right words over the confidence, before and after, and tell the errors."""
        charts = Markup()
        for name, (before, after) in (("words", self.words), ("sentences", self.sentences)):
            drawn = [
                Line("as it should be", [(0.0, 0.0), (1.0, 1.0)]),
                Line("as the model says it", [(one.confidence, one.right) for one in before]),
                Line("as it is fitted", [(one.confidence, one.right) for one in after]),
            ]
            heading = f"Share of right words, by the confidence of {name}"
            chart = curves.draw_chart(drawn, label=heading, x_label="confidence", x_end=1.0, from_zero=True)
            charts += curves.draw_figure(
                heading, chart, drawn, "Above the straight line it is right more often than it says."
            )
        rows = [(name.replace("_", " "), f"{100 * value:.1f}%") for name, value in self.figures().items()]
        errors = render_table("Expected calibration error", ["Of", "Error"], rows, template="named_rows.html")
        return Markup('<div class="charts">{}</div>\n{}').format(charts, errors)


def judge(translator: Translator, results: Sequence[TranslationResult], references: Sequence[str]) -> JudgedWords:
    """Find the words that are right: their references have them too, in the same order."""
    p, right, counts = list[Floats](), list[Floats](), list[int]()
    for result, reference in zip(results, references, strict=True):
        found = read_words(result, translator.output_side(result))
        tokenizer = translator.output_tokenizer(reference)
        if found.words:
            words = TextSide.of(reference, tokenizer.pieces(tokenizer.encode(reference)), tokenizer.begins_word).words
            p.append(found.p)
            right.append(_find_right(found.words, words))
            counts.append(len(found.words))
    return JudgedWords(np.concatenate([np.zeros(0), *p]), np.concatenate([np.zeros(0), *right]), counts)


def fit(judged: JudgedWords) -> Confidence:
    """Fit the map of words, and on what it says the map of whole outputs."""
    words = fit_words(judged.p, judged.right)
    said, right = judged.means(words(judged.p)), judged.means(judged.right)
    groups = np.array_split(np.argsort(said, kind="stable"), max(1, len(said) // GROUP))
    sums = [(float(said[rows].mean()), float(right[rows].mean())) for rows in groups if len(rows) >= GROUP]
    texts = fit_monotone(*map(np.array, zip(*sums, strict=True))) if len(sums) > 1 else UNCHANGED
    return Confidence(words, texts, len(judged.p), len(judged.counts))


def measure(judged: JudgedWords, confidence: Confidence) -> Reliability:
    """Put words and outputs into bins by what is said of them, before and after."""
    after, right = confidence.words(judged.p), judged.means(judged.right)
    said = (judged.means(judged.p), confidence.texts(judged.means(after)))
    return Reliability(
        (make_bins(judged.p, judged.right), make_bins(after, judged.right)),
        (make_bins(said[0], right), make_bins(said[1], right)),
    )


def _find_right(words: Sequence[str], reference: Sequence[str]) -> Floats:
    right = np.zeros(len(words))
    for block in SequenceMatcher(None, words, reference, autojunk=False).get_matching_blocks():
        right[block.a : block.a + block.size] = 1.0
    return right
