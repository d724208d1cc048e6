"""A translator's attention from target words to source words, for pairs of texts."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast, final

import torch
from torch import Tensor

from saccade.data.batches import decoder_input, pad_sources
from saccade.data.grouping import group_by_length
from saccade.data.sound.recordings import Sounds
from saccade.data.text.corpus import Pair
from saccade.data.text.tokenizer import END, SPACE, SPECIAL, Tokenizer, Vocabulary
from saccade.decoding import Ensemble
from saccade.errors import UserError
from saccade.inspection.align.aligner import Pick
from saccade.inspection.insight import Head, TextSide
from saccade.inspection.record import cross_weights, cross_weights_of, find_attention
from saccade.tasks.base import NO_WORDS

if TYPE_CHECKING:
    from saccade.tasks.translate.predictor import Translator

WINDOW = 256  # pairs that are sorted by length together, where all heads are kept of each
HEAD_WINDOW = 4096  # the same, where one head is kept
CELLS = 1 << 15  # target steps times source steps of a batch: those of a CPU's cache
DEVICE_CELLS = 1 << 17  # of one on an accelerator
MOST_CELLS = 1 << 22  # of a window
NO_ATTENTION = "--align: this model has no attention; it reads the source into one vector"


class _Encoded(NamedTuple):
    """A pair as a model reads it."""

    source_ids: list[int]
    target_ids: list[int]
    source: TextSide
    target: TextSide

    @property
    def lengths(self) -> tuple[int, int]:
        """Count the pieces of both sides, </s> among them."""
        return len(self.source_ids) + 1, len(self.target_ids) + 1


@final
@dataclass(frozen=True)
class TranslatorAttention:
    """The `WordAttention` of a translator: in the order of the pairs, in memory that doesn't grow with their number.

    A word that the model doesn't read, as its text is too long, weighs nothing.
    """

    translator: Translator

    def __post_init__(self) -> None:
        if isinstance(self.translator.source, Sounds):
            raise UserError(NO_WORDS)
        if isinstance(self.translator.model, Ensemble):
            raise UserError("--align: an ensemble has no heads of its own; align with one run")

    def num_layers_and_heads(self) -> tuple[int, int]:
        num_layers, num_heads = _read(self.translator, [[]], [[]]).shape[1:3]
        return num_layers, num_heads

    def weights(self, pairs: Iterable[Pair], pick: Pick) -> Iterator[Tensor]:
        return self._stream(pairs, WINDOW, lambda *ids: pick(_read(self.translator, *ids)))

    def head_weights(self, pairs: Iterable[Pair], head: Head) -> Iterator[Tensor]:
        """Read the model as far as the head's layer; with little to keep of a pair, many are sorted together."""

        def read(*ids: Sequence[list[int]]) -> Tensor:
            return head.of_layer(_read_layer(self.translator, head.layer, *ids))[:, None]

        return (weight_1TS[0] for weight_1TS in self._stream(pairs, HEAD_WINDOW, read))

    def _stream(self, pairs: Iterable[Pair], num_pairs: int, read: Callable[..., Tensor]) -> Iterator[Tensor]:
        """Yield [C, T, S] by words for each pair, where `read` turns ids into [B, C, T, S] by pieces."""
        encoded = (_encode(self.translator, pair, row) for row, pair in enumerate(pairs, 1))
        most = CELLS if _device(self.translator).type == "cpu" else DEVICE_CELLS
        for window in _windows(encoded, num_pairs):
            found: dict[int, Tensor] = {}
            for rows in group_by_length([pair.lengths for pair in window], most):
                batch = [window[row] for row in rows]
                weight_BCTS = read([pair.source_ids for pair in batch], [pair.target_ids for pair in batch])
                found.update(zip(rows, _merge(weight_BCTS.float().cpu(), batch), strict=True))
            yield from (found[row] for row in range(len(window)))


def _windows(pairs: Iterator[_Encoded], num_pairs: int) -> Iterator[list[_Encoded]]:
    """Yield so many pairs at once, or fewer where they are long."""
    window, cells = list[_Encoded](), 0
    for pair in pairs:
        window.append(pair)
        cells += math.prod(pair.lengths)
        if len(window) == num_pairs or cells >= MOST_CELLS:
            yield window
            window, cells = [], 0
    if window:
        yield window


def _merge(weight_BCTS: Tensor, pairs: Sequence[_Encoded]) -> Iterator[Tensor]:
    """Turn weights between pieces into weights between words: sum those of a key's pieces, average a query's."""
    word_BT, num_T = _pad_words([pair.target.word_of_piece for pair in pairs], weight_BCTS.shape[2])
    word_BS, num_S = _pad_words([pair.source.word_of_piece for pair in pairs], weight_BCTS.shape[3])
    by_key = weight_BCTS.new_zeros(*weight_BCTS.shape[:3], num_S)
    by_key.scatter_add_(3, word_BS[:, None, None].expand_as(weight_BCTS), weight_BCTS)
    total = by_key.new_zeros(*by_key.shape[:2], num_T, num_S)
    total.scatter_add_(2, word_BT[:, None, :, None].expand_as(by_key), by_key)
    count_BT = total.new_zeros(len(pairs), num_T).scatter_add_(1, word_BT, torch.ones_like(word_BT, dtype=total.dtype))
    mean_BCTS = total / count_BT[:, None, :, None]
    for pair, mean_CTS in zip(pairs, mean_BCTS, strict=True):
        yield mean_CTS[:, : len(pair.target.words), : len(pair.source.words)]


def _pad_words(rows: Sequence[Sequence[int]], width: int) -> tuple[Tensor, int]:
    """Return the word of each piece, [B, T], and the number of words; padding is a word of its own, the last."""
    most = max(map(max, rows)) + 1
    return torch.tensor([[*row, *[most] * (width - len(row))] for row in rows]), most + 1


def _encode(translator: Translator, pair: Pair, number: int) -> _Encoded:
    source, target = (text.replace(SPACE, "_") for text in pair)  # SentencePiece would read a space
    tokenizer, limit = cast(Tokenizer, translator.source), translator.max_source_length
    ids = (tokenizer.encode(source), translator.target.encode(target))
    if (longest := max(map(len, ids))) > limit:
        what = f"line {number:,} has {longest:,} tokens; only the first {limit:,} are aligned"
        warnings.warn(f"{what} (max_source_length)", stacklevel=2)
    source_ids, target_ids = (some[:limit] for some in ids)
    sides = (_side(source, tokenizer, source_ids), _side(target, translator.target, target_ids))
    return _Encoded(source_ids, target_ids, *sides)


def _side(text: str, tokenizer: Tokenizer, ids: Sequence[int]) -> TextSide:
    """Split a text into white-space words, as gold alignments count them, whatever the script; </s> is the last."""
    words, pieces = text.split(), tokenizer.pieces(ids)
    is_word = isinstance(tokenizer, Vocabulary) and tokenizer.kind == "words"
    begins = (is_word or piece.startswith((SPACE, " ")) for piece in pieces[1:])
    of_piece = list(itertools.accumulate(begins, initial=0))[: len(pieces)]
    return TextSide(text, [*pieces, SPECIAL[END]], [*words, SPECIAL[END]], [*of_piece, len(words)])


def _read(translator: Translator, source_ids: Sequence[list[int]], target_ids: Sequence[list[int]]) -> Tensor:
    """Return the weights while targets are read, [B, L, H, T, S]."""
    weight_BLHTS = cross_weights(translator.model, *_pad(translator, source_ids, target_ids))
    if not weight_BLHTS.shape[1]:
        raise UserError(NO_ATTENTION)
    return weight_BLHTS


def _read_layer(translator: Translator, layer: int, *ids: Sequence[list[int]]) -> Tensor:
    """Return the weights of one layer while targets are read, [B, H, T, S]."""
    if not find_attention(translator.model, ("cross",)):
        raise UserError(NO_ATTENTION)
    return cross_weights_of(layer, translator.model, *_pad(translator, *ids))


def _pad(
    translator: Translator, source_ids: Sequence[list[int]], target_ids: Sequence[list[int]]
) -> tuple[Tensor, Tensor, Tensor]:
    device = _device(translator)
    source_BS, length_B = pad_sources(source_ids)
    return source_BS.to(device), length_B.to(device), decoder_input(target_ids).to(device)


def _device(translator: Translator) -> torch.device:
    return next(translator.model.parameters()).device
