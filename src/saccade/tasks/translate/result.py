"""Answers of a model that writes text: the output, its scores, and where it looked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor

from saccade.data.text.tokenizer import END, SPECIAL
from saccade.decoding import Cut
from saccade.errors import UserError
from saccade.inspection.draw import heatmap, sound
from saccade.tasks.cuts import Kind, tell_kind
from saccade.tasks.translate.copying.copied import CopyOrigin


class SoundSource(NamedTuple):
    """A source of sound: its frames, and the seconds from one to the next."""

    frames_SF: NDArray[np.float32]
    hop: float


class PlacedPlaceholder(NamedTuple):
    """A placeholder of a source in its output, and how it came there: "copied" by the model; "aligned", behind what
    read the words before it; or "by length", as the model has no attention.
    """

    text: str
    way: str


class GlossaryTerm(NamedTuple):
    """A term of a glossary that a source has, and how the output has it: "as asked", "in another form" or "missing"."""

    source: str
    target: str
    way: str


class WordConfidence(NamedTuple):
    """The share of an output's words that is expected to be right, and the probability of each word to be so."""

    sentence: float
    words: list[tuple[str, float]]

    def line(self) -> str:
        words = ", ".join(f"{word} {_percent(p)}" for word, p in self.words)
        return f"{_percent(self.sentence)} sure: {words}"


class TranslationResult(NamedTuple):
    """An output: its text, its score, its pieces, and the log-probability of each.

    Where it `ended`, the last log-probability is that of </s>. `cut` is "length" where it reached its greatest length,
    and "loop" where it went in circles; of an output that ended, another one was better when it was cut so.
    With `attention=True` also the weights [T, S] of each piece (</s> included) on the source's pieces, which for sound
    are seconds, and the sound that was `heard`. With `num_best`, `others` are the next best outputs, best first.
    `kept` are the placeholders of the source, `terms` those of a glossary in it. Where the model copies, `copied` tells
    beside the weights how each piece came about (</s> included). `unknown` counts the tokens of the source that the
    vocabulary lacks, if there are any.
    """

    text: str
    score: float
    pieces: list[str]
    log_probabilities: list[float]
    ended: bool = True
    attention: Tensor | None = None
    source_pieces: list[str] | None = None
    heard: SoundSource | None = None
    name: str | None = None  # of the sound
    others: tuple[TranslationResult, ...] = ()
    cut_by: Cut | None = None  # the setting of the section `decoding`
    kept: tuple[PlacedPlaceholder, ...] = ()
    terms: tuple[GlossaryTerm, ...] = ()
    confidence: WordConfidence | None = None  # on request
    copied: tuple[CopyOrigin, ...] = ()
    unknown: int | None = None

    @property
    def cut(self) -> Kind | None:
        return tell_kind(self.cut_by)

    def line(self) -> str:
        return self.text

    def plain(self) -> dict[str, Any]:
        own = self._replace(heard=None, others=(), cut_by=None)._asdict() | {"cut": self.cut}
        own |= {name: [one._asdict() for one in own[name]] or None for name in ("kept", "terms")}
        own["copied"] = [one.plain() for one in self.copied] or None
        own["confidence"] = None if self.confidence is None else self.confidence._asdict()
        shown = {name: value for name, value in own.items() if value is not None and name != "others"}
        if self.others:
            shown["others"] = [one.plain() for one in self.others]
        if self.attention is not None:
            shown["attention"] = [[round(weight, 4) for weight in row] for row in self.attention.tolist()]
        return shown

    def show(self, console: Console) -> None:
        """Print how sure it is, and draw the weights in the terminal, where there are any."""
        if self.confidence is not None:
            console.print(self.confidence.line(), markup=False, highlight=False, soft_wrap=True)
        if self.attention is not None and self.source_pieces is not None:
            pieces = self._written_pieces()
            console.print(heatmap.in_terminal(self.attention, queries=pieces, keys=self.source_pieces, console=console))

    def draw(self, path: Path) -> None:
        """Draw the weights as a PNG, SVG or PDF; of a blank line there is none."""
        if not self.log_probabilities:
            return
        if self.attention is None or self.source_pieces is None:
            raise UserError(f"{path}: there are no weights to draw; ask for attention")
        if self.heard is not None:
            sound.to_file(
                self.attention, path, words=self._written_pieces(), frames_SF=self.heard.frames_SF, hop=self.heard.hop
            )
        else:
            heatmap.to_file(
                self.attention, path, queries=self._written_pieces(), keys=self.source_pieces, title=self.text
            )

    def _written_pieces(self) -> list[str]:
        return [*self.pieces, SPECIAL[END]][: len(self.log_probabilities)]


def join_best(best: Sequence[TranslationResult]) -> TranslationResult:
    """Return the best result with the others, if there are any."""
    first, *others = best
    return first._replace(others=tuple(others))


class HeadChoice(NamedTuple):
    """The weights to show: of a decoder layer (the last), and a head of it or the mean of all."""

    layer: int = -1
    head: int | None = None

    def of(self, weight_BLHTS: Tensor) -> Tensor:
        num_layers, num_heads = weight_BLHTS.shape[1:3]
        if not num_layers:
            raise UserError("attention: this model has none; it reads the source into one vector")
        for name, value, count in (("layer", self.layer, num_layers), ("head", self.head or 0, num_heads)):
            if not -count <= value < count:
                raise UserError(f"{name}: {value} given; allowed: 0 to {count - 1}, or -1 for the last")
        weight_BHTS = weight_BLHTS[:, self.layer]
        return weight_BHTS.mean(1) if self.head is None else weight_BHTS[:, self.head]


def _percent(share: float) -> str:
    """Write a share so that only what is certain is 100%."""
    return ">99%" if 0.995 <= share < 1 else f"{100 * share:.0f}%"
