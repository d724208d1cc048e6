"""Text to text: a model with its tokenizers, decoded in batches of like lengths, scored by sacreBLEU."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast, final

import sacrebleu
import torch
from torch import Tensor, nn

from saccade.data.batches import pad_sources
from saccade.data.corpus import clean
from saccade.data.mistakes import Mistake
from saccade.data.tokenizer import END, SPECIAL, START, Tokenizer
from saccade.decoding import Attending, BeamOptions, Hypothesis, SamplingOptions, chosen, search

WINDOW = 2048  # lines that are sorted by length together
WINDOW_CHARACTERS = 1 << 22  # and no more than this, however long they are
Way = BeamOptions | SamplingOptions


class Translation(NamedTuple):
    """An output: its text, its score, its pieces, and the log-probability of each.

    Where it `ended`, the last log-probability is that of </s>; otherwise it was cut at its maximum length or in a loop.
    With `attention=True` also the weights [T, S] of each piece (</s> included) on the source's pieces.
    """

    text: str
    score: float
    pieces: list[str]
    log_probabilities: list[float]
    ended: bool = True
    attention: Tensor | None = None
    source_pieces: list[str] | None = None


class Look(NamedTuple):
    """Which weights to show: a decoder layer (the last), and a head of it or the mean of all."""

    layer: int = -1
    head: int | None = None

    def of(self, weight_BLHTS: Tensor) -> Tensor:
        """[B, T, S]."""
        num_layers, num_heads = weight_BLHTS.shape[1:3]
        if not num_layers:
            raise Mistake("attention: this model has none; it reads the source into one vector")
        for name, value, count in (("layer", self.layer, num_layers), ("head", self.head or 0, num_heads)):
            if not -count <= value < count:
                raise Mistake(f"{name}: {value} given; allowed: 0 to {count - 1}, or -1 for the last")
        weight_BHTS = weight_BLHTS[:, self.layer]
        return weight_BHTS.mean(1) if self.head is None else weight_BHTS[:, self.head]


class _Text(NamedTuple):
    """A text to translate: its ids, and what its translation must begin with."""

    ids: list[int]
    prefix: str
    prefix_ids: list[int]


@final
@dataclass(frozen=True)
class Translator:
    """What `saccade.load` returns for a text-to-text run. The model is one that can be decoded (`Attending`).

    Every method takes how to decode as keywords: the fields of BeamOptions (`width=1` is greedy), or `sample=True` and
    those of SamplingOptions; `attention=True` for the weights, of a `layer` and a `head` if these are given. `prefixes`
    are texts that the outputs begin with. Blank texts stay blank.
    """

    model: nn.Module
    source: Tokenizer
    target: Tokenizer
    options: BeamOptions
    tokens_per_batch: int = 4096
    max_source_length: int = 8192

    def predict(
        self, texts: Iterable[str], *, prefixes: Iterable[str] | None = None, **decoding: Any
    ) -> list[Translation]:
        """The best output for each text."""
        return [best[0] for best in self.predict_best(texts, prefixes=prefixes, **decoding)]

    def predict_best(
        self, texts: Iterable[str], *, prefixes: Iterable[str] | None = None, **decoding: Any
    ) -> list[list[Translation]]:
        """The `num_best` outputs for each text, best first."""
        return self._predict(list(_aligned(texts, prefixes)), 1, *_request(self.options, decoding))

    def stream(
        self, lines: Iterable[str], *, prefixes: Iterable[str] | None = None, **decoding: Any
    ) -> Iterator[Translation]:
        """Outputs in the order of the lines, in memory that doesn't grow with their number."""
        return (best[0] for best in self.stream_best(lines, prefixes=prefixes, **decoding))

    def stream_best(
        self, lines: Iterable[str], *, prefixes: Iterable[str] | None = None, window: int = WINDOW, **decoding: Any
    ) -> Iterator[list[Translation]]:
        """The `num_best` outputs for each line; `window` lines are read before the first is written."""
        request = _request(self.options, decoding)
        number = 1
        for part in _windows(_aligned(lines, prefixes), window):
            yield from self._predict(part, number, *request)
            number += len(part)

    def _predict(
        self, texts: list[tuple[str, str]], number: int, options: Way, look: Look | None
    ) -> list[list[Translation]]:
        encoded = [self._encode(*text, number + row) for row, text in enumerate(texts)]
        found: list[list[Translation]] = [[Translation("", 0.0, [], [])] for _ in texts]
        hypotheses = options.width if isinstance(options, BeamOptions) else options.num_best
        for rows in _batches([len(text.ids) for text in encoded], self.tokens_per_batch // hypotheses):
            for row, best in zip(rows, self._decode([encoded[row] for row in rows], options, look), strict=True):
                found[row] = best
        return found

    def _encode(self, text: str, prefix: str, number: int) -> _Text:
        ids, limit, prefix = self.source.encode(clean(text)), self.max_source_length, clean(prefix)
        if len(ids) > limit:
            what = f"line {number:,} has {len(ids):,} tokens"
            warnings.warn(f"{what}; only the first {limit:,} are read (max_source_length)", stacklevel=2)
        return _Text(ids[:limit], prefix, self.target.encode(prefix))

    def _decode(self, texts: list[_Text], options: Way, look: Look | None) -> list[list[Translation]]:
        """One batch."""
        model, device = cast(Attending, self.model), next(self.model.parameters()).device
        source_BS, length_B = (tensor.to(device) for tensor in pad_sources([text.ids for text in texts]))
        prefixes = [text.prefix_ids for text in texts]
        found = search(model, source_BS, length_B, options, prefixes)
        shown = [[self._shown(text, one) for one in best] for text, best in zip(texts, found, strict=True)]
        if look is None:
            return shown
        return [
            [self._with_attention(model, text, ids.ids, one, look) for ids, one in zip(best, ones, strict=True)]
            for text, best, ones in zip(texts, found, shown, strict=True)
        ]

    def _shown(self, text: _Text, found: Hypothesis) -> Translation:
        """The output as text; of the prefix, what no token stands for is still there."""
        decoded = self.target.decode(found.ids)
        if text.prefix_ids and decoded.startswith(start := self.target.decode(text.prefix_ids)):
            decoded = text.prefix + decoded[len(start) :]
        return Translation(decoded, found.score, self.target.pieces(found.ids), found.log_probabilities, found.ended)

    @torch.no_grad()
    def _with_attention(
        self, model: Attending, text: _Text, ids: list[int], shown: Translation, look: Look
    ) -> Translation:
        """Read once more with the weights kept, one sentence at a time: nothing is asked of the fast path."""
        device = next(self.model.parameters()).device
        source_1S, length_1 = (tensor.to(device) for tensor in pad_sources([text.ids]))
        read_1T = torch.tensor([[START, *ids][: len(shown.log_probabilities)]], device=device)
        weight_TS = look.of(model.cross_attention(source_1S, length_1, read_1T))[0].float().cpu()
        return shown._replace(attention=weight_TS, source_pieces=[*self.source.pieces(text.ids), SPECIAL[END]])


def _batches(lengths: list[int], budget: int) -> Iterator[list[int]]:
    """Rows of like lengths within the token budget; blank ones are left out."""
    batch: list[int] = []
    for row in sorted((row for row, n in enumerate(lengths) if n), key=lambda row: lengths[row]):
        if batch and (len(batch) + 1) * (lengths[row] + 1) > budget:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _request(default: BeamOptions, decoding: dict[str, Any]) -> tuple[Way, Look | None]:
    """The keywords of a call, checked: what has no effect is refused, not ignored."""
    given = dict(decoding)
    look = {name: given.pop(name) for name in Look._fields if name in given}
    is_attention = given.pop("attention", False)
    if look and not is_attention:
        raise Mistake(f"{next(iter(look))}: given without attention=True")
    options = chosen(default, given)
    return options, Look(**look) if is_attention else None


def _aligned(texts: Iterable[str], prefixes: Iterable[str] | None) -> Iterator[tuple[str, str]]:
    """Each text with its prefix."""
    if prefixes is None:
        yield from ((text, "") for text in texts)
        return
    for number, (text, prefix) in enumerate(itertools.zip_longest(texts, prefixes), 1):
        if text is None or prefix is None:
            short = "prefixes" if prefix is None else "texts"
            raise Mistake(f"prefixes: there must be one for each text, but the {short} end after {number - 1:,}")
        yield text, prefix


def _windows(texts: Iterator[tuple[str, str]], size: int) -> Iterator[list[tuple[str, str]]]:
    """Runs of at most `size` texts, fewer where they are long."""
    window: list[tuple[str, str]] = []
    characters = 0
    for text in texts:
        window.append(text)
        characters += len(text[0])
        if len(window) == size or characters >= WINDOW_CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window


LENGTHS = (5, 10, 15, 20, 25, 30, 40, 50, 100)


class Scores(NamedTuple):
    """Corpus scores, with the signatures that make them comparable."""

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str


class LengthScores(NamedTuple):
    """Scores of the pairs whose source has up to `longest` words (None: no end) and more than the class before."""

    shortest: int
    longest: int | None
    num_pairs: int
    bleu: float
    chrf: float

    @property
    def label(self) -> str:
        """The class in words."""
        return f"over {self.shortest - 1}" if self.longest is None else f"{self.shortest}-{self.longest}"


def check_tokenize(tokenize: str) -> None:
    """Before anything is translated."""
    if tokenize not in sacrebleu.BLEU.TOKENIZERS:
        raise Mistake(f"tokenize: {tokenize!r} given; allowed: {', '.join(sacrebleu.BLEU.TOKENIZERS)}")


def evaluate(outputs: Sequence[str], references: Sequence[str], *, tokenize: str = "13a") -> Scores:
    """BLEU and chrF as sacreBLEU counts them."""
    check_tokenize(tokenize)
    if len(outputs) != len(references):
        raise Mistake(f"references: {len(references):,} given for {len(outputs):,} outputs; there must be as many")
    bleu = sacrebleu.BLEU(tokenize=tokenize, force=True)  # force: don't guess whether the text is tokenised
    chrf = sacrebleu.CHRF()
    bleu_score, chrf_score = bleu.corpus_score(outputs, [references]), chrf.corpus_score(outputs, [references])
    return Scores(bleu_score.score, str(bleu.get_signature()), chrf_score.score, str(chrf.get_signature()))


def by_length(
    sources: Sequence[str], outputs: Sequence[str], references: Sequence[str], *, tokenize: str = "13a"
) -> list[LengthScores]:
    """Corpus scores of the pairs in each class of source length, counted in words; empty classes are left out."""
    if len(sources) != len(outputs):
        raise Mistake(f"sources: {len(sources):,} given for {len(outputs):,} outputs; there must be as many")
    lengths = [len(source.split()) for source in sources]
    found = []
    for shortest, longest in zip((0, *(length + 1 for length in LENGTHS)), (*LENGTHS, None), strict=True):
        rows = [row for row, n in enumerate(lengths) if shortest <= n and (longest is None or n <= longest)]
        if rows:
            part = evaluate([outputs[row] for row in rows], [references[row] for row in rows], tokenize=tokenize)
            found.append(LengthScores(shortest, longest, len(rows), part.bleu, part.chrf))
    return found
