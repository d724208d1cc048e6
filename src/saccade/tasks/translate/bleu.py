"""BLEU and chrF as sacreBLEU counts them, and word errors, of a whole set and by source length."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import sacrebleu

from saccade.errors import UserError
from saccade.inspection.draw import by_class
from saccade.tasks.translate.word_errors import word_error_rate

LENGTHS = (5, 10, 15, 20, 25, 30, 40, 50, 100)


class TextScores(NamedTuple):
    """Corpus scores, with the signatures that make them comparable."""

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    wer: float


class LengthScores(NamedTuple):
    """Scores of the pairs whose source has up to `longest` words (None: no end) and more than the class before."""

    shortest: int
    longest: int | None
    num_pairs: int
    bleu: float
    chrf: float

    @property
    def label(self) -> str:
        return f"over {self.shortest - 1}" if self.longest is None else f"{self.shortest}-{self.longest}"


def check_tokenize(tokenize: str) -> None:
    """Before anything is translated."""
    if tokenize not in sacrebleu.BLEU.TOKENIZERS:
        raise UserError(f"tokenize: {tokenize!r} given; allowed: {', '.join(sacrebleu.BLEU.TOKENIZERS)}")


def score_texts(outputs: Sequence[str], references: Sequence[str], *, tokenize: str = "13a") -> TextScores:
    """BLEU and chrF as sacreBLEU counts them, and the word error rate."""
    check_tokenize(tokenize)
    if len(outputs) != len(references):
        raise UserError(f"references: {len(references):,} given for {len(outputs):,} outputs; there must be as many")
    bleu = sacrebleu.BLEU(tokenize=tokenize, force=True)  # force: don't guess whether the text is tokenised
    chrf = sacrebleu.CHRF()
    bleu_score, chrf_score = bleu.corpus_score(outputs, [references]), chrf.corpus_score(outputs, [references])
    signatures = str(bleu.get_signature()), str(chrf.get_signature())
    wer = word_error_rate(outputs, references)
    return TextScores(bleu_score.score, signatures[0], chrf_score.score, signatures[1], wer)


def score_by_length(
    sources: Sequence[str], outputs: Sequence[str], references: Sequence[str], *, tokenize: str = "13a"
) -> list[LengthScores]:
    """Corpus scores of the pairs in each class of source length, counted in words; empty classes are left out."""
    if len(sources) != len(outputs):
        raise UserError(f"sources: {len(sources):,} given for {len(outputs):,} outputs; there must be as many")
    lengths = [len(source.split()) for source in sources]
    found = []
    for shortest, longest in zip((0, *(length + 1 for length in LENGTHS)), (*LENGTHS, None), strict=True):
        rows = [row for row, n in enumerate(lengths) if shortest <= n and (longest is None or n <= longest)]
        if rows:
            part = score_texts([outputs[row] for row in rows], [references[row] for row in rows], tokenize=tokenize)
            found.append(LengthScores(shortest, longest, len(rows), part.bleu, part.chrf))
    return found


def describe_scores(scores: TextScores) -> list[str]:
    """Both scores with what is needed to compare them."""
    return [
        f"BLEU {scores.bleu:.2f}  ({scores.bleu_signature})",
        f"chrF {scores.chrf:.2f}  ({scores.chrf_signature})",
        f"word error {scores.wer:.2f}%",
    ]


def table(rows: Sequence[LengthScores]) -> list[str]:
    """Scores by length, as lines."""
    heading = ("words in the source", "pairs", "BLEU", "chrF")
    cells = [heading, *((row.label, f"{row.num_pairs:,}", f"{row.bleu:.2f}", f"{row.chrf:.2f}") for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]


def plot(rows: Sequence[LengthScores], path: Path, name: str = "BLEU") -> None:
    """BLEU by source length, as a PNG, SVG or PDF."""
    labels = [f"{row.label}\n({row.num_pairs:,})" for row in rows]
    figures = {name: [row.bleu for row in rows]}
    by_class.to_file(figures, path, classes=labels, across="words in the source (pairs)", up="BLEU")
