"""A translator's attention from target words to source words, for pairs of texts."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast, final

from torch import Tensor

from saccade.data.batches import decoder_input, pad_sources
from saccade.data.grouping import group_by_length
from saccade.data.sound.recordings import Sounds
from saccade.data.text.corpus import Pair
from saccade.data.text.tokenizer import END, SPACE, SPECIAL, Tokenizer, Vocabulary
from saccade.decoding import Ensemble
from saccade.errors import UserError
from saccade.inspection.align.aligner import Pick
from saccade.inspection.insight import TextSide, merge_pieces
from saccade.inspection.record import cross_weights
from saccade.tasks.base import NO_WORDS

if TYPE_CHECKING:
    from saccade.tasks.translate.predictor import Translator

WINDOW = 256  # pairs that are sorted by length together
CELLS = 1 << 17  # target steps times source steps of a batch


class _Encoded(NamedTuple):
    """A pair as a model reads it."""

    source_ids: list[int]
    target_ids: list[int]
    source: TextSide
    target: TextSide


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
        stream, number = iter(pairs), 1
        while window := list(itertools.islice(stream, WINDOW)):
            encoded = [_encode(self.translator, pair, row) for row, pair in enumerate(window, number)]
            found: dict[int, Tensor] = {}
            for rows in _batches(encoded):
                ids = ([encoded[row].source_ids for row in rows], [encoded[row].target_ids for row in rows])
                for row, weight_CTS in zip(rows, pick(_read(self.translator, *ids)).float().cpu(), strict=True):
                    target, source = encoded[row].target, encoded[row].source
                    steps = weight_CTS[:, : len(target.pieces), : len(source.pieces)]
                    found[row] = merge_pieces(steps, target, source)
            yield from (found[row] for row in range(len(window)))
            number += len(window)


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
    """White-space words, as gold alignments count them, whatever the script; </s> is the last."""
    words, pieces = text.split(), tokenizer.pieces(ids)
    is_word = isinstance(tokenizer, Vocabulary) and tokenizer.kind == "words"
    begins = (is_word or piece.startswith((SPACE, " ")) for piece in pieces[1:])
    of_piece = list(itertools.accumulate(begins, initial=0))[: len(pieces)]
    return TextSide(text, [*pieces, SPECIAL[END]], [*words, SPECIAL[END]], [*of_piece, len(words)])


def _batches(pairs: Sequence[_Encoded]) -> Iterator[list[int]]:
    """Yield rows of like lengths, within a budget of cells."""
    return group_by_length([(len(pair.source_ids) + 1, len(pair.target_ids) + 1) for pair in pairs], CELLS)


def _read(translator: Translator, source_ids: Sequence[list[int]], target_ids: Sequence[list[int]]) -> Tensor:
    """The weights while targets are read, [B, L, H, T, S]."""
    device = next(translator.model.parameters()).device
    source_BS, length_B = pad_sources(source_ids)
    read_BT = decoder_input(target_ids).to(device)
    weight_BLHTS = cross_weights(translator.model, source_BS.to(device), length_B.to(device), read_BT)
    if not weight_BLHTS.shape[1]:
        raise UserError("--align: this model has no attention; it reads the source into one vector")
    return weight_BLHTS
