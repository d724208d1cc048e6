"""Text, or sound, to text: a model with its tokenizers, decoded in batches of like lengths, scored by sacreBLEU."""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast, final

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor, nn

from saccade.data.batches import pad_sources
from saccade.data.corpus import Corpus, Pair, clean, decoded_lines, read_lines
from saccade.data.frames import Sounds, pad_frames, rebased_lines
from saccade.data.mistakes import Mistake
from saccade.data.tokenizer import END, SPECIAL, START, Tokenizer
from saccade.decoding import Attending, BeamOptions, Hypothesis, SamplingOptions, chosen, search
from saccade.inspection import alignments, draw
from saccade.tasks import bleu, hearing
from saccade.tasks.evaluation import Evaluation, Watch, several

WINDOW = 2048  # lines that are sorted by length together
WINDOW_SOUNDS = 64  # sources of sound that are in memory together
WINDOW_CHARACTERS = 1 << 22  # and no more than this, however long they are
Way = BeamOptions | SamplingOptions


class Heard(NamedTuple):
    """A source of sound: its frames, and the seconds from one to the next."""

    frames_SF: NDArray[np.float32]
    hop: float


class Translation(NamedTuple):
    """An output: its text, its score, its pieces, and the log-probability of each.

    Where it `ended`, the last log-probability is that of </s>; otherwise it was cut at its maximum length or in a loop.
    With `attention=True` also the weights [T, S] of each piece (</s> included) on the source's pieces, which for sound
    are seconds, and the sound that was `heard`.
    """

    text: str
    score: float
    pieces: list[str]
    log_probabilities: list[float]
    ended: bool = True
    attention: Tensor | None = None
    source_pieces: list[str] | None = None
    heard: Heard | None = None

    def line(self) -> str:
        """What people read."""
        return self.text

    def plain(self) -> dict[str, Any]:
        """What programs read."""
        shown = {name: value for name, value in self._replace(heard=None)._asdict().items() if value is not None}
        if self.attention is not None:
            shown["attention"] = [[round(weight, 4) for weight in row] for row in self.attention.tolist()]
        return shown

    def show(self, console: Console) -> None:
        """The weights in the terminal, where there are any."""
        if self.attention is not None and self.source_pieces is not None:
            pieces = self._written()
            console.print(draw.in_terminal(self.attention, queries=pieces, keys=self.source_pieces, console=console))

    def draw(self, path: Path) -> None:
        """The weights as a PNG, SVG or PDF; of a blank line there is none."""
        if not self.log_probabilities:
            return
        if self.attention is None or self.source_pieces is None:
            raise Mistake(f"{path}: there are no weights to draw; ask for attention")
        if self.heard is not None:
            alignments.to_file(
                self.attention, path, words=self._written(), frames_SF=self.heard.frames_SF, hop=self.heard.hop
            )
        else:
            draw.to_file(self.attention, path, queries=self._written(), keys=self.source_pieces, title=self.text)

    def _written(self) -> list[str]:
        return [*self.pieces, SPECIAL[END]][: len(self.log_probabilities)]


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
    """A text to translate: its ids (of sound, its frames), and what its translation must begin with."""

    ids: Any
    prefix: str
    prefix_ids: list[int]


@final
@dataclass(frozen=True)
class Translator:
    """What `saccade.load` returns for a text-to-text run. The model is one that can be decoded (`Attending`).

    Every method takes how to decode as keywords: the fields of BeamOptions (`width=1` is greedy), or `sample=True` and
    those of SamplingOptions; `attention=True` for the weights, of a `layer` and a `head` if these are given. `prefixes`
    are texts that the outputs begin with. Blank texts stay blank. Where sources are sounds, texts name WAV files.
    """

    model: nn.Module
    source: Tokenizer | Sounds
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
        size = min(window, WINDOW_SOUNDS) if isinstance(self.source, Sounds) else window
        for part in _windows(_aligned(lines, prefixes), size):
            yield from self._predict(part, number, *request)
            number += len(part)

    def read(self, source: Path | None) -> Iterator[str]:
        """The lines of a file, or of the standard input; files that a list names are looked up from where it lies."""
        lines = decoded_lines("standard input", sys.stdin.buffer) if source is None else read_lines(source)
        if source is None or not isinstance(self.source, Sounds):
            return lines
        return rebased_lines(lines, source.parent, lambda row: f"{source}:{row + 1}")

    def pairs(self, corpus: Corpus) -> Iterator[Pair]:
        """A corpus as it is read here: the names of a list of sounds are looked up from where it lies."""
        if not isinstance(self.source, Sounds):
            return corpus.pairs()
        pairs, again = itertools.tee(corpus.pairs())
        folder = corpus.sides()[0][0].parent
        sources = rebased_lines((pair.source for pair in again), folder, lambda row: corpus.place(row, 0))
        return (pair._replace(source=source) for pair, source in zip(pairs, sources, strict=True))

    def evaluate(
        self,
        paths: Sequence[Path],
        *,
        tokenize: str = "13a",
        watch: Watch = lambda found, total: found,
        **decoding: Any,
    ) -> Evaluation:
        """BLEU, chrF and word errors of line-aligned files, or of one with both sides; `watch` sees outputs go by."""
        bleu.check_tokenize(tokenize)
        if len(paths) > 2:
            raise Mistake(f"{paths[2]}: one file too many; allowed: a source and its target, or one with both sides")
        pairs = list(self.pairs(Corpus(*map(str, paths))))
        sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
        outputs = [found.text for found in watch(self.stream(sources, **decoding), len(pairs))]
        scores = bleu.scored(outputs, references, tokenize=tokenize)
        if isinstance(self.source, Sounds):
            return hearing.evaluation(self, pairs, outputs, scores)
        by_length = bleu.by_length(sources, outputs, references, tokenize=tokenize)
        rows = [{"label": row.label, **row._asdict()} for row in by_length]
        return Evaluation(
            {"num_pairs": len(pairs), **scores._asdict(), "by_length": rows},
            [*bleu.said(scores), "", *bleu.table(by_length)],
            lambda path: bleu.plot(by_length, path),
        )

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
            unit = "frames" if isinstance(self.source, Sounds) else "tokens"
            what = f"line {number:,} has {len(ids):,} {unit}"
            warnings.warn(f"{what}; only the first {limit:,} are read (max_source_length)", stacklevel=2)
        return _Text(ids[:limit], prefix, self.target.encode(prefix))

    def _decode(self, texts: list[_Text], options: Way, look: Look | None) -> list[list[Translation]]:
        """One batch."""
        model, device = cast(Attending, self.model), next(self.model.parameters()).device
        source_BS, length_B = (tensor.to(device) for tensor in self._pad([text.ids for text in texts]))
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
        source_1S, length_1 = (tensor.to(device) for tensor in self._pad([text.ids]))
        read_1T = torch.tensor([[START, *ids][: len(shown.log_probabilities)]], device=device)
        weight_TS = look.of(model.cross_attention(source_1S, length_1, read_1T))[0].float().cpu()
        if isinstance(self.source, Sounds):
            heard = Heard(text.ids, self.source.mel.hop)
            return shown._replace(attention=weight_TS, source_pieces=self.source.pieces(text.ids), heard=heard)
        return shown._replace(attention=weight_TS, source_pieces=[*self.source.pieces(text.ids), SPECIAL[END]])

    def _pad(self, sources: list[Any]) -> tuple[Tensor, Tensor]:
        return pad_frames(sources) if isinstance(self.source, Sounds) else pad_sources(sources)


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
        raise Mistake(f"{next(iter(look))}: given without attention")
    options = chosen(default, given)
    return options, Look(**look) if is_attention else None


def _aligned(texts: Iterable[str], prefixes: Iterable[str] | None) -> Iterator[tuple[str, str]]:
    """Each text with its prefix."""
    texts = several(texts)
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
