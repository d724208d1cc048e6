"""All scores of a set of outputs, the run's own metric first, and the scores by source length."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sacrebleu

from saccade.errors import UserError
from saccade.inspection.draw import by_class
from saccade.inspection.pages.report import name_of
from saccade.tasks.translate.scoring.metrics import BESIDE, METRICS, Judgement, check_tokenize, share_of_short

LENGTHS = (5, 10, 15, 20, 25, 30, 40, 50, 100)
PERCENT = ("exact", "wer")  # written with their sign
ROUGE_SIGNATURE = "F1, mean of the pairs; words in lower case, no stemming"


class TextScores(NamedTuple):
    """Corpus scores, with the signatures that make them comparable; `rouge` is ROUGE-L."""

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    exact: float
    wer: float
    rouge: float
    rouge1: float
    rouge2: float

    def plain(self, names: Sequence[str]) -> dict[str, Any]:
        """Return these scores by their names, each with its signature if it has one."""
        found = self._asdict()
        return {key: found[key] for name in names for key in (name, f"{name}_signature") if key in found}


class LengthScores(NamedTuple):
    """Scores of the pairs whose source has up to `longest` words (None: no end) and more than the class before."""

    shortest: int
    longest: int | None
    num_pairs: int
    scores: TextScores

    @property
    def label(self) -> str:
        return f"over {self.shortest - 1}" if self.longest is None else f"{self.shortest}-{self.longest}"

    def plain(self) -> dict[str, Any]:
        """Return what programs read."""
        place = {"label": self.label, "shortest": self.shortest, "longest": self.longest, "num_pairs": self.num_pairs}
        return place | {name: getattr(self.scores, name) for name in METRICS}


def score_texts(outputs: Sequence[str], references: Sequence[str], *, tokenize: str = "13a") -> TextScores:
    """Score outputs by every metric."""
    if len(outputs) != len(references):
        raise UserError(f"references: {len(references):,} given for {len(outputs):,} outputs; there must be as many")
    bleu, chrf = sacrebleu.BLEU(tokenize=check_tokenize(tokenize), force=True), sacrebleu.CHRF()
    others = {name: METRICS[name](outputs, references) for name in METRICS if name not in ("bleu", "chrf")}
    return TextScores(
        bleu=bleu.corpus_score(outputs, [references]).score,
        bleu_signature=str(bleu.get_signature()),
        chrf=chrf.corpus_score(outputs, [references]).score,
        chrf_signature=str(chrf.get_signature()),
        **others,
    )


def score_by_length(
    sources: Sequence[str], outputs: Sequence[str], references: Sequence[str], *, tokenize: str = "13a"
) -> list[LengthScores]:
    """Score the pairs in each class of source length, counted in words; empty classes are left out."""
    if len(sources) != len(outputs):
        raise UserError(f"sources: {len(sources):,} given for {len(outputs):,} outputs; there must be as many")
    lengths = [len(source.split()) for source in sources]
    found = []
    for shortest, longest in zip((0, *(length + 1 for length in LENGTHS)), (*LENGTHS, None), strict=True):
        rows = [row for row, n in enumerate(lengths) if shortest <= n and (longest is None or n <= longest)]
        if rows:
            part = score_texts([outputs[row] for row in rows], [references[row] for row in rows], tokenize=tokenize)
            found.append(LengthScores(shortest, longest, len(rows), part))
    return found


def choose_shown(judgement: Judgement, references: Sequence[str]) -> list[str]:
    """Choose the scores to show: the run's metric first, and those that can tell something of such references."""
    metric, tokenize = judgement
    names = dict.fromkeys([metric, *BESIDE.get(metric, ()), "bleu", "chrf", "exact", "wer"])
    hidden = {"loss", "auto"} | ({"bleu"} - {metric} if share_of_short(references, tokenize) > 0.5 else set())
    return [name for name in names if name not in hidden]


def describe_scores(scores: TextScores, names: Sequence[str]) -> list[str]:
    """Write scores, each with what is needed to compare it."""
    details = {"bleu": scores.bleu_signature, "chrf": scores.chrf_signature, "rouge": ROUGE_SIGNATURE}
    lines = [f"{name_of(name)} {getattr(scores, name):.2f}{'%' * (name in PERCENT)}" for name in names]
    return [f"{line}  ({details[name]})" if name in details else line for name, line in zip(names, lines, strict=True)]


def table(rows: Sequence[LengthScores], names: Sequence[str]) -> list[str]:
    """Write scores by length, as lines."""
    head = ("words in the source", "pairs", *map(name_of, names))
    values = [[f"{getattr(row.scores, name):.2f}" for name in names] for row in rows]
    cells = [head, *((row.label, f"{row.num_pairs:,}", *own) for row, own in zip(rows, values, strict=True))]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]


def plot(rows: Sequence[LengthScores], path: Path, name: str) -> None:
    """Draw a score by source length, as a PNG, SVG or PDF."""
    labels = [f"{row.label}\n({row.num_pairs:,})" for row in rows]
    figures = {name_of(name): [getattr(row.scores, name) for row in rows]}
    by_class.to_file(figures, path, classes=labels, across="words in the source (pairs)", up=name_of(name))
