"""The label of a text, with the words that weighed most."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from torch import Tensor

from saccade.errors import UserError
from saccade.inspection.draw import document, heatmap
from saccade.inspection.draw.confusion import in_terminal
from saccade.inspection.draw.document import Document, SentenceWeight


class KeyTerm(NamedTuple):
    """A word, and the share of all weight that lay on it, wherever it stood."""

    word: str
    weight: float


class Prediction(NamedTuple):
    """A label, its probability and that of every label; on request the words' weights [r, words] and key terms.

    Where a text may have several labels at once, `labels` are all that it was given, the likeliest first. `label` is
    then all of them with separators, or empty, and `probability` that of the least likely. Of a document, `sentences`
    have weights, too, and words those in their sentence times the sentence's.
    """

    label: str
    probability: float
    probabilities: dict[str, float]
    words: list[str] | None = None
    attention: Tensor | None = None
    key_terms: list[KeyTerm] | None = None
    labels: list[str] | None = None
    sentences: list[SentenceWeight] | None = None
    is_cut: bool = False  # only the beginning of the text was read

    @property
    def weights(self) -> list[float]:
        """The mean weight of each word over the r hops; none where none were asked for."""
        return [] if self.attention is None else self.attention.mean(0).tolist()

    @property
    def document(self) -> Document | None:
        """The text on two levels, where it is a document and its weights were asked for."""
        if self.sentences is None or self.words is None:
            return None
        return Document(self.words, self.weights, self.sentences)

    def line(self) -> str:
        """Write label, probability and what else was asked for, with tabs between them."""
        given = [self.label] if self.labels is None else self.labels
        shown = [self.label, ",".join(f"{self.probabilities[label]:.3f}" for label in given)]
        if self.key_terms is not None:
            shown.append(", ".join(term.word for term in self.key_terms))
        return "\t".join(shown)

    def plain(self) -> dict[str, Any]:
        found: dict[str, Any] = {"label": self.label, "probability": self.probability}
        found["probabilities"] = self.probabilities
        if self.labels is not None:
            found["labels"] = self.labels
        if self.words is not None and self.attention is not None:
            found |= {"words": self.words, "attention": self.attention.tolist()}
        if self.sentences is not None:
            found["sentences"] = [one._asdict() for one in self.sentences]
        if self.key_terms is not None:
            found["key_terms"] = [term._asdict() for term in self.key_terms]
        return {**found, "cut": "text"} if self.is_cut else found

    def show(self, console: Console) -> None:
        """Print the words in the terminal, each the brighter the more it weighs; in a file, with its weight."""
        if self.document is not None:
            console.print(document.in_terminal(self.document, console), soft_wrap=not console.is_terminal)
        elif self.words is not None:
            words = [heatmap.make_printable(word, console.encoding) for word in self.words]
            console.print(in_terminal(words, self.weights, with_numbers=not console.is_terminal), soft_wrap=True)

    def draw(self, path: Path) -> None:
        """Draw the words and their weights as a picture, a row for each hop."""
        if self.words is None or self.attention is None:
            raise UserError("attention: not asked for; a picture shows the weights")
        heatmap.check_ending(path := Path(path))
        if self.document is not None:
            document.to_file(self.document, path, title=f"{self.label} {self.probability:.2f}")
            return
        count = len(self.attention)
        queries = [self.label] if count == 1 else [f"hop {number}" for number in range(1, count + 1)]
        heatmap.to_file(
            self.attention, path, queries=queries, keys=self.words, title=f"{self.label} {self.probability:.2f}"
        )


def rank_terms(words: Sequence[str], weights: Sequence[float]) -> list[KeyTerm]:
    """Rank words with a letter or digit by their summed weights, whatever their case; ties as they stand in a text."""
    total: dict[str, float] = {}
    shown: dict[str, str] = {}
    for word, weight in zip(words, weights, strict=True):
        if any(map(str.isalnum, word)):
            key = word.casefold()
            shown.setdefault(key, word)
            total[key] = total.get(key, 0.0) + weight
    return [KeyTerm(shown[key], total[key]) for key in sorted(total, key=lambda key: -total[key])]
