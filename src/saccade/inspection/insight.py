"""An input and an output of a model: their pieces and words, and the attention weights between them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.text.tokenizer import END, SPACE, SPECIAL
from saccade.errors import UserError

BYTES = re.compile(r"(?:<0x[0-9A-F]{2}>)+")
DECIMALS = 4  # of weights in JSON


class TextSide(NamedTuple):
    """A text as a model reads or writes it: its pieces, and the words that they make."""

    text: str
    pieces: list[str]
    words: list[str]
    word_of_piece: list[int]

    @classmethod
    def of(cls, text: str, pieces: Sequence[str], begins_word: Callable[[str], bool] = lambda piece: True) -> TextSide:
        """Join pieces into words; a special one (</s>) is a word of its own."""
        word_of_piece, parts = list[int](), list[list[str]]()
        for piece in pieces:
            if not parts or piece in SPECIAL or parts[-1][-1] in SPECIAL or begins_word(piece):
                parts.append([])
            parts[-1].append(piece)
            word_of_piece.append(len(parts) - 1)
        return cls(text, list(pieces), [_readable("".join(part)) for part in parts], word_of_piece)

    def plain(self) -> dict[str, Any]:
        return self._asdict()


def _readable(word: str) -> str:
    spelled = BYTES.sub(lambda found: bytes.fromhex(re.sub("<0x|>", "", found[0])).decode("utf-8", "replace"), word)
    return spelled.replace(SPACE, " ").strip() or SPACE


class Head(NamedTuple):
    """A head of the decoder's attention to the source (None: the mean of its layer) that aligns words.

    With `shift` 1 the step that reads a word aligns it, with 0 the step that writes it (Chen 2020, section 3.2).
    """

    layer: int
    head: int | None = None
    shift: int = 0

    def of(self, weight_LHTS: Tensor) -> Tensor:
        """Return [T, S], a row for each written piece; with a shift the last row, that of </s>, stays where it is."""
        return self.of_layer(weight_LHTS[self.layer])

    def of_layer(self, weight_HTS: Tensor) -> Tensor:
        """Return [..., T, S] of the weights of its layer, [..., H, T, S]."""
        weight_TS = weight_HTS.mean(-3) if self.head is None else weight_HTS[..., self.head, :, :]
        num_steps = weight_TS.shape[-2]
        return torch.cat([weight_TS[..., self.shift :, :], weight_TS[..., num_steps - self.shift :, :]], -2)


class Map(NamedTuple):
    """The weights [L, H, T, S] of one kind of attention between two sides, by their names.

    `norm_LHTS` are the lengths of the weighed vectors; `shape` counts the rows and columns of a picture's cells.
    """

    queries: str
    keys: str
    weight_LHTS: Tensor
    norm_LHTS: Tensor | None = None
    shape: tuple[int, int] | None = None

    def plain(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"queries": self.queries, "keys": self.keys, "weights": round_weights(self.weight_LHTS)}
        if self.norm_LHTS is not None:
            shown["norms"] = round_weights(self.norm_LHTS)
        return shown if self.shape is None else {**shown, "shape": list(self.shape)}


@final
@dataclass(frozen=True)
class Insight:
    """One input, the model's answer, and the weights of each kind of attention.

    `answer` is the task's own result, `others` are its next best outputs; `views` are derived weights [T, S].
    `picture` holds the pixels [C, Y, X] of a picture, and the answer then draws itself over them. `notes` are lines
    for people to read below the weights.
    """

    task: str
    answer: Any
    sides: Mapping[str, TextSide]
    maps: Mapping[str, Map]
    aligning: Head | None = None
    others: Sequence[Any] = ()
    views: Mapping[str, Map] = field(default_factory=dict)
    draws_itself: bool = False
    picture: NDArray[np.uint8] | None = None
    notes: Sequence[str] = ()

    def map(self, kind: str | None = None) -> Map:
        """Return the map of a kind; None: the first there is."""
        if not self.maps:
            message = "this model has no attention to look at"
            raise UserError(message if kind is None else f"kind: {kind!r} given, but this model has none of it")
        if kind is not None and kind not in self.maps:
            raise UserError(f"kind: {kind!r} given; allowed: {', '.join(self.maps)}")
        return self.maps[kind or next(iter(self.maps))]

    def alignment(self) -> Tensor:
        """Return the weights of each output word on the source words, [words, words], of the head that aligns best.

        If none is known, they are the mean of the last layer's heads.
        """
        cross = self.map("cross")
        weight_TS = (self.aligning or Head(layer=-1)).of(cross.weight_LHTS)
        return merge_pieces(weight_TS, self.sides[cross.queries], self.sides[cross.keys])

    def plain(self) -> dict[str, Any]:
        answer = {name: value for name, value in self.answer.plain().items() if name != "attention"}
        shown: dict[str, Any] = {"task": self.task, "line": self.answer.line(), "answer": answer}
        shown["sides"] = {name: side.plain() for name, side in self.sides.items()}
        shown["attention"] = {kind: weights.plain() for kind, weights in self.maps.items()}
        shown["aligning"] = None if self.aligning is None else self.aligning._asdict()
        if self.views:
            shown["views"] = {
                name: {**view.plain(), "weights": round_weights(view.weight_LHTS[0, 0])}
                for name, view in self.views.items()
            }
        if self.others:
            shown["others"] = [{"text": other.text, "score": other.score} for other in self.others]
        return shown


def merge_pieces(weight_TS: Tensor, queries: TextSide, keys: TextSide) -> Tensor:
    """Turn weights between pieces into weights between words: sum those of a key's pieces, average a query's."""
    by_key = weight_TS.new_zeros(*weight_TS.shape[:-1], len(keys.words))
    by_key = by_key.index_add(-1, torch.tensor(keys.word_of_piece), weight_TS)
    number_T = torch.tensor(queries.word_of_piece)
    total = by_key.new_zeros(*by_key.shape[:-2], len(queries.words), by_key.shape[-1]).index_add(-2, number_T, by_key)
    return total / torch.bincount(number_T, minlength=len(queries.words))[:, None]


def round_weights(weights: Tensor) -> Any:
    """Turn weights into nested lists of short numbers."""
    return _nest(weights.detach().double().cpu().round(decimals=DECIMALS))


def _nest(numbers: Tensor) -> Any:
    """Turn numbers into lists matrix by matrix: other threads of Python wait while one is turned."""
    return [_nest(part) for part in numbers] if numbers.dim() > 2 else numbers.tolist()


def add_end(pieces: Sequence[str], *, has_end: bool = True) -> list[str]:
    """Add </s> behind pieces, if it was written."""
    return [*pieces, SPECIAL[END]] if has_end else list(pieces)
