"""Shortlists: the ids that an output may have, chosen by the ids of its source.

They are learned by the model's own aligning head: what it wrote a target token for, over pairs of texts.
"""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast, final

import numpy as np
import torch
from numpy.typing import NDArray

from saccade.data.batches import decoder_input
from saccade.data.text.corpus import Pair, clean
from saccade.data.text.tokenizer import END, SPECIAL
from saccade.errors import UserError
from saccade.export.proof import TOKENS, find_aligning
from saccade.files import replace_file
from saccade.inspection.record import cross_weights
from saccade.tasks.base import Portable
from saccade.tasks.texts import batch_by_length
from saccade.tasks.translate.corpora import fingerprint

VERSION = 1
LEAST = 0.1  # of a target token's weight: what weighs less is not what it was written for
MOST_WAITING = 1 << 22  # links that are not yet added up
Integers = NDArray[np.int32]


@final
class Shortlist:
    """For each source id the target ids that stand for it, and the ids that every output may have."""

    def __init__(self, offset_N: Integers, target: Integers, common: Integers, names: Sequence[str]) -> None:
        self.offset_N, self.target, self.common, self.names = offset_N, target, common, list(names)

    def allow(self, source: Sequence[int], prefix: Sequence[int]) -> Integers:
        """Return the ids that the output of a source may have, in order, with those that it begins with."""
        parts = [self.target[self.offset_N[number] : self.offset_N[number + 1]] for number in dict.fromkeys(source)]
        return np.unique(np.concatenate([self.common, np.array(prefix, np.int32), *parts]))

    def save(self, path: Path) -> None:
        with replace_file(path) as draft, draft.open("wb") as file:
            np.savez_compressed(
                file,
                version=np.array(VERSION),
                offset=self.offset_N,
                target=self.target,
                common=self.common,
                names=np.array(self.names),
            )

    @classmethod
    def load(cls, path: Path, portable: Portable) -> Shortlist:
        """Read a file that was learned for the same tokenizers."""
        try:
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                found = cls(file["offset"], file["target"], file["common"], file["names"].tolist())
                is_known = int(file["version"]) == VERSION
        except FileNotFoundError:
            raise UserError(
                f"shortlist: {path}: there is no such file; `saccade shortlist RUN OUT` makes one"
            ) from None
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            raise UserError(f"shortlist: {path}: this is no shortlist, or it is damaged") from None
        if not is_known or found.names != name_tokenizers(portable):
            raise UserError(f"shortlist: {path}: it was learned for other tokenizers than the run's")
        if not found._is_sound(portable.source.size, portable.target.size):
            raise UserError(f"shortlist: {path}: this is no shortlist, or it is damaged")
        return found

    def _is_sound(self, num_source: int, num_target: int) -> bool:
        offset_N, special = self.offset_N, np.arange(len(SPECIAL))
        return (
            all(array.dtype == np.int32 and array.ndim == 1 for array in (offset_N, self.target, self.common))
            and len(offset_N) == num_source + 1
            and offset_N[0] == 0
            and offset_N[-1] == len(self.target)
            and bool((np.diff(offset_N) >= 0).all())
            and all(len(ids) == 0 or 0 <= ids.min() <= ids.max() < num_target for ids in (self.target, self.common))
            and bool(np.isin(special, self.common).all())
        )


def name_tokenizers(portable: Portable) -> list[str]:
    """Return what tells the tokenizers of a model from any others."""
    return [fingerprint(cast(Any, tokenizer)) for tokenizer in (portable.source, portable.target)]


@torch.inference_mode()
def learn(
    portable: Portable,
    pairs: Sequence[Pair],
    *,
    most: int,
    common: int,
    watch: Callable[[Iterable[Any]], Iterable[Any]],
) -> Shortlist:
    """Align pairs, and keep for each source id the `most` target ids that were aligned with it with the most weight.

    A target token is aligned with the source tokens that weigh most for it, and with those that weigh at least LEAST;
    a source token also with the target token for which it weighs most. </s> of the source has ids, too: those of words
    that nothing in the source says. A piece that is in both vocabularies stands for itself. The `common` most frequent
    target ids are always allowed.
    """
    head, longest = find_aligning(portable), portable.longest
    sources = [portable.source.encode(clean(pair.source))[:longest] for pair in pairs]
    targets = [portable.target.encode(clean(pair.target))[:longest] for pair in pairs]
    tally, frequent = _Tally(portable.target.size), Counter[int]()
    lengths = [
        max(len(source), len(target)) if source and target else 0
        for source, target in zip(sources, targets, strict=True)
    ]
    for rows in watch(list(batch_by_length(lengths, TOKENS))):
        given, wanted = [sources[row] for row in rows], [targets[row] for row in rows]
        weight_BLHTS = cross_weights(portable.network, *portable.join(given), decoder_input(wanted))
        for source, target, weight_LHTS in zip(given, wanted, weight_BLHTS, strict=True):
            frequent.update(target)
            weight_TS = head.of(weight_LHTS[:, :, : len(target) + 1])[: len(target), : len(source) + 1]
            tally.add([*source, END], target, weight_TS.numpy())
    chosen = tally.choose(portable.source.size, most)
    for number, same in _find_same(portable):
        chosen[number] = np.union1d(chosen[number], [same])
    always = {*range(len(SPECIAL)), *(number for number, _ in frequent.most_common(common))}
    return Shortlist(
        np.cumsum([0, *map(len, chosen)], dtype=np.int32),
        np.concatenate(chosen).astype(np.int32),
        np.array(sorted(always), np.int32),
        name_tokenizers(portable),
    )


@final
class _Tally:
    """The sum of the weights of each pair of a source id and a target id."""

    def __init__(self, num_target: int) -> None:
        self._num_target, self._waiting = num_target, 0
        self._keys: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        self._weights: list[NDArray[np.float64]] = [np.zeros(0)]

    def add(self, source: Sequence[int], target: Sequence[int], weight_TS: NDArray[np.float32]) -> None:
        is_linked_TS = weight_TS >= LEAST
        is_linked_TS[np.arange(len(target)), weight_TS.argmax(1)] = True
        is_linked_TS[weight_TS.argmax(0), np.arange(len(source))] = True
        written, read = is_linked_TS.nonzero()
        self._keys.append(np.array(source)[read] * self._num_target + np.array(target)[written])
        self._weights.append(weight_TS[written, read].astype(np.float64))
        self._waiting += len(read)
        if self._waiting > MOST_WAITING:
            self._merge()

    def _merge(self) -> None:
        keys, place = np.unique(np.concatenate(self._keys), return_inverse=True)
        sums = np.bincount(place, np.concatenate(self._weights), len(keys)).astype(np.float64)
        self._keys, self._weights, self._waiting = [keys], [sums], 0

    def choose(self, num_source: int, most: int) -> list[NDArray[np.int64]]:
        """Return for each source id its target ids of most weight, in order."""
        self._merge()
        source, target = np.divmod(self._keys[0], self._num_target)
        order = np.lexsort((target, -self._weights[0], source))  # equal weights: the smaller id first
        rows = np.split(target[order], np.searchsorted(source, np.arange(1, num_source)))
        return [np.sort(row[:most]) for row in rows]


def _find_same(portable: Portable) -> Iterator[tuple[int, int]]:
    """Yield the ids that one piece of text has in both vocabularies."""
    here, there = (
        {tokenizer.pieces([number])[0]: number for number in range(len(SPECIAL), tokenizer.size)}
        for tokenizer in (portable.source, portable.target)
    )
    return ((number, there[piece]) for piece, number in here.items() if piece in there)
