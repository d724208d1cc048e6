"""Text to text: a model with its tokenizers, decoded in batches of like lengths, scored by sacreBLEU."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import sacrebleu

from saccade.data.batches import pad_sources
from saccade.data.corpus import clean
from saccade.data.mistakes import Mistake
from saccade.data.tokenizer import Tokenizer
from saccade.decoding import BeamOptions, Hypothesis, beam_search

WINDOW = 2048  # lines that are sorted by length together


class Translation(NamedTuple):
    """An output: its text, its score, its pieces, and the log-probability of each."""

    text: str
    score: float
    pieces: list[str]
    log_probabilities: list[float]


class Scores(NamedTuple):
    """Corpus scores, with the signatures that make them comparable."""

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str


@final
@dataclass(frozen=True)
class Translator:
    """What `saccade.load` returns for a text-to-text run."""

    model: Any
    source: Tokenizer
    target: Tokenizer
    options: BeamOptions
    tokens_per_batch: int = 4096

    def predict(self, texts: Sequence[str], **decoding: Any) -> list[Translation]:
        """The best output for each text; blank texts stay blank. `decoding` as in BeamOptions (width=1: greedy)."""
        return [best[0] for best in self.predict_best(texts, **decoding)]

    def predict_best(self, texts: Sequence[str], **decoding: Any) -> list[list[Translation]]:
        """The `num_best` outputs for each text, best first."""
        options = replace(self.options, **decoding)
        ids = [self.source.encode(clean(text)) for text in texts]
        found: list[list[Translation]] = [[Translation("", 0.0, [], [])] for _ in texts]
        for rows in self._batches([len(row) for row in ids]):
            source_BS, length_B = pad_sources([ids[row] for row in rows])
            device = next(self.model.parameters()).device
            hypotheses = beam_search(self.model, source_BS.to(device), length_B.to(device), options)
            for row, best in zip(rows, hypotheses, strict=True):
                found[row] = [self._shown(hypothesis) for hypothesis in best]
        return found

    def stream(self, lines: Iterable[str], **decoding: Any) -> Iterator[Translation]:
        """Outputs in the order of the lines, in memory that doesn't grow with their number."""
        source = iter(lines)
        while window := list(itertools.islice(source, WINDOW)):
            yield from self.predict(window, **decoding)

    def _batches(self, lengths: list[int]) -> Iterator[list[int]]:
        """Rows of like lengths within the token budget; blank ones are left out."""
        batch: list[int] = []
        for row in sorted((row for row, n in enumerate(lengths) if n), key=lambda row: lengths[row]):
            if batch and (len(batch) + 1) * (lengths[row] + 1) > self.tokens_per_batch:
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch

    def _shown(self, hypothesis: Hypothesis) -> Translation:
        pieces = self.target.pieces(hypothesis.ids)
        return Translation(self.target.decode(hypothesis.ids), hypothesis.score, pieces, hypothesis.log_probabilities)


def evaluate(outputs: Sequence[str], references: Sequence[str], *, tokenize: str = "13a") -> Scores:
    """BLEU and chrF as sacreBLEU counts them."""
    if tokenize not in sacrebleu.BLEU.TOKENIZERS:
        raise Mistake(f"tokenize: {tokenize!r} given; allowed: {', '.join(sacrebleu.BLEU.TOKENIZERS)}")
    bleu = sacrebleu.BLEU(tokenize=tokenize, force=True)  # force: don't guess whether the text is tokenised
    chrf = sacrebleu.CHRF()
    bleu_score, chrf_score = bleu.corpus_score(outputs, [references]), chrf.corpus_score(outputs, [references])
    return Scores(bleu_score.score, str(bleu.get_signature()), chrf_score.score, str(chrf.get_signature()))
