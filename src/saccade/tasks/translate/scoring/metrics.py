"""The metrics that a run may go by: each a function of outputs and their references."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import sacrebleu

from saccade.errors import UserError
from saccade.tasks.translate.scoring.rouge import mean_rouge, rouge_l, rouge_n
from saccade.tasks.translate.scoring.word_errors import word_error_rate

TextMetric = Callable[[Sequence[str], Sequence[str]], float]  # of outputs and their references
LOWER_IS_BETTER = ("loss", "wer")
BLEU_ORDER = 4  # its longest n-grams: an answer of fewer words has none


def exact_match(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Return the percentage of outputs that are equal to their references."""
    return 100 * sum(map(str.__eq__, outputs, references)) / max(1, len(references))


def bleu(outputs: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> float:
    """Return sacreBLEU's BLEU; it doesn't guess whether the text is tokenised."""
    return sacrebleu.BLEU(tokenize=tokenize, force=True).corpus_score(outputs, [references]).score


def chrf(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Compute sacreBLEU's chrF, from 0 to 100."""
    return sacrebleu.CHRF().corpus_score(outputs, [references]).score


METRICS: dict[str, TextMetric] = {
    "bleu": bleu,
    "chrf": chrf,
    "exact": exact_match,
    "wer": word_error_rate,
    "rouge": partial(mean_rouge, rouge_l),
    "rouge1": partial(mean_rouge, rouge_n(1)),
    "rouge2": partial(mean_rouge, rouge_n(2)),
}
BESIDE = {  # what a validation shows beside the run's own metric
    "bleu": ("chrf",),
    "chrf": ("bleu",),
    "exact": ("chrf",),
    "wer": ("exact",),
    "rouge": ("rouge1", "rouge2"),
    "loss": ("bleu", "chrf"),
}


class Judgement(NamedTuple):
    """The metric by which the best model of a run is chosen, and the sacreBLEU tokenizer that counts."""

    metric: str = "bleu"
    tokenize: str = "13a"


DEFAULT_JUDGEMENT = Judgement()


def measure(
    names: Iterable[str], outputs: Sequence[str], references: Sequence[str], *, tokenize: str = "13a"
) -> dict[str, float]:
    """Return these metrics of a set by their names; `tokenize` is sacreBLEU's tokenizer."""
    table = METRICS | {"bleu": partial(bleu, tokenize=tokenize)}
    return {name: table[name](outputs, references) for name in names}


def check_tokenize(tokenize: str) -> str:
    """Return the name of a sacreBLEU tokenizer; refuse others before anything is translated."""
    if tokenize not in sacrebleu.BLEU.TOKENIZERS:
        raise UserError(f"tokenize: {tokenize!r} given; allowed: {', '.join(sacrebleu.BLEU.TOKENIZERS)}")
    return tokenize


def share_of_short(references: Sequence[str], tokenize: str) -> float:
    """Return the share of references with too few tokens for BLEU: it is 0 for them, or by chance."""
    split = sacrebleu.BLEU(tokenize=check_tokenize(tokenize)).tokenizer
    return sum(len(split(text).split()) < BLEU_ORDER for text in references) / max(1, len(references))
