"""Contributions of each output to a score of its set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import sacrebleu

from saccade.tasks.tally import Tally
from saccade.tasks.translate.scoring.metrics import METRICS
from saccade.tasks.translate.scoring.word_errors import word_errors

MEANS = ("exact", "rouge", "rouge1", "rouge2")  # scores that are means over pairs


def tally(metric: str, outputs: Sequence[str], references: Sequence[str], *, tokenize: str = "13a") -> Tally | None:
    """Return the addends of a metric; None if it is not made of sums."""
    pairs = list(zip(outputs, references, strict=True))
    if metric == "bleu":
        bleu = sacrebleu.BLEU(tokenize=tokenize, force=True, effective_order=True)
        found = [bleu.sentence_score(output, [reference]) for output, reference in pairs]
        rows = [[one.sys_len, one.ref_len, *one.counts, *one.totals] for one in found]
        return Tally(metric, np.array(rows, float), "bleu")
    if metric == "wer":
        errors = [[word_errors(output, reference), len(reference.split())] for output, reference in pairs]
        return Tally(metric, np.array(errors, float), is_error=True)
    if metric in MEANS:
        score = METRICS[metric]
        return Tally(metric, np.array([[score([output], [wanted]) / 100, 1] for output, wanted in pairs], float))
    return None
