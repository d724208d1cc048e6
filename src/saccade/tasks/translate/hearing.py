"""Measurements and pictures of a model that hears: word errors by length, and where in the sound it looked."""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from saccade.data.text.corpus import Pair
from saccade.inspection.draw.sound import measure_monotonic_share
from saccade.inspection.pages.render import render_picture, render_table
from saccade.inspection.record import find_attention
from saccade.tasks.base import Evaluation
from saccade.tasks.translate.scoring.word_errors import word_error_rate

if TYPE_CHECKING:
    from saccade.tasks.translate.predictor import Translator
    from saccade.tasks.translate.result import TranslationResult

NUM_ALIGNED = 200  # sources whose weights are measured
NUM_DRAWN = 4


class LengthErrors(NamedTuple):
    """The word error rate of the pairs whose reference has so many words."""

    num_words: int
    num_pairs: int
    wer: float


def errors_by_length(outputs: Sequence[str], references: Sequence[str]) -> list[LengthErrors]:
    """Compute word error rates by the number of words that were said."""
    classes: dict[int, list[int]] = defaultdict(list)
    for row, reference in enumerate(references):
        classes[len(reference.split())].append(row)
    return [
        LengthErrors(count, len(rows), word_error_rate([outputs[n] for n in rows], [references[n] for n in rows]))
        for count, rows in sorted(classes.items())
    ]


def monotonic(translator: Translator, pairs: Sequence[Pair]) -> float | None:
    """Measure how many pieces look later than the one before, in percent of the first sources; None without attention.

    NaN where no output has two pieces.
    """
    heard = _predict_with_attention(translator, pairs[:NUM_ALIGNED])
    if heard is None:
        return None
    words = (one.attention[: len(one.pieces)] for one in heard if one.attention is not None)
    return 100 * measure_monotonic_share(words)


def evaluation(
    translator: Translator, pairs: Sequence[Pair], outputs: Sequence[str], lines: list[str], figures: dict[str, Any]
) -> Evaluation:
    """Evaluate a set of sounds; `lines` and `figures` say the scores that texts have too."""
    rows, later = errors_by_length(outputs, [pair.target for pair in pairs]), monotonic(translator, pairs)
    if later is not None:
        figures = {**figures, "monotonic": None if math.isnan(later) else later}
    if later is not None and not math.isnan(later):
        lines = [*lines, f"words that look later than the word before {later:.2f}%"]
    shown = [f"{row.num_words:>10}  {row.num_pairs:>6,}  {row.wer:>10.2f}" for row in rows]
    heading = f"{'words said':>10}  {'sounds':>6}  {'word error':>10}"
    return Evaluation({**figures, "by_length": [row._asdict() for row in rows]}, [*lines, "", heading, *shown])


class SoundReport(NamedTuple):
    """The part of a report that is about sounds."""

    scores: dict[str, float]
    sections: list[tuple[str, str]]


def report_sound(
    translator: Translator, pairs: Sequence[Pair], outputs: Sequence[str], worst: Sequence[Pair]
) -> SoundReport:
    """Report word errors by length, and where in the sound some outputs, and the worst, looked."""
    rows = errors_by_length(outputs, [pair.target for pair in pairs])
    cells = [(row.num_words, f"{row.num_pairs:,}", f"{row.wer:.2f}") for row in rows]
    head = ["words said", "sounds", "word error, %"]
    caption = "Word errors by the number of words that were said"
    sections: list[tuple[str, str]] = [("By length", render_table(caption, head, cells))]
    later, ranked = monotonic(translator, pairs), sorted(pairs, key=lambda pair: len(pair.target.split()))
    chosen = [ranked[(2 * rank + 1) * len(ranked) // (2 * NUM_DRAWN)] for rank in range(min(NUM_DRAWN, len(ranked)))]
    if later is not None:
        sections.append(("Where it looked", _figures(translator, chosen)))
    if worst and later is not None:
        sections.append(("Worst outputs", _figures(translator, worst[:NUM_DRAWN])))
    elif worst:
        texts = translator.predict([pair.source for pair in worst])
        written = [(pair.target, one.text) for pair, one in zip(worst, texts, strict=True)]
        sections.append(("Worst outputs", render_table("The outputs that share least", ["Said", "Written"], written)))
    return SoundReport({} if later is None else {"monotonic": later}, sections)


def _figures(translator: Translator, pairs: Sequence[Pair]) -> str:
    drawn = translator.predict([pair.source for pair in pairs], attention=True)
    return "".join(_figure(pair, found) for pair, found in zip(pairs, drawn, strict=True))


def _figure(pair: Pair, found: TranslationResult) -> Markup:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "look.png"
        found.draw(path)
        return render_picture(path.read_bytes(), f"said: {pair.target}; written: {found.text}")


def _predict_with_attention(translator: Translator, pairs: Sequence[Pair]) -> list[TranslationResult] | None:
    """Return greedy outputs with their weights; None where a model has no attention."""
    if not find_attention(translator.model, ("cross",)):
        return None
    return translator.predict([pair.source for pair in pairs], width=1, attention=True)
