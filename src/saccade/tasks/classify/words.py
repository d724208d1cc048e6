"""The weight of each word of a text, and of each sentence of a document, from what a classifier's poolings weighed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from saccade.data.labels.documents import split_document
from saccade.data.labels.labelled import Spelling
from saccade.data.labels.windows import TextBatch
from saccade.data.text.tokenizer import Tokenizer
from saccade.errors import UserError
from saccade.inspection.draw.document import SentenceWeight
from saccade.models.classifier import ClassifierOutput


class WordWeights(NamedTuple):
    """Words with their weights [r, words]; where the text is a document, its sentences, too.

    A word's weight is then its weight in its sentence times that of the sentence; all still sum to 1.
    """

    words: list[str]
    weight_TW: Tensor
    sentences: list[SentenceWeight] | None = None


def average_weights(found: Sequence[WordWeights]) -> WordWeights:
    """Return the mean weights of several models that read the same words, over their hops where these differ."""
    if len(found) == 1:
        return found[0]
    weight_1W = torch.stack([one.weight_TW.mean(0) for one in found]).mean(0, keepdim=True)
    if found[0].sentences is None:
        return found[0]._replace(weight_TW=weight_1W)
    marked = zip(*(one.sentences or [] for one in found), strict=True)
    means = [same[0]._replace(weight=sum(one.weight for one in same) / len(same)) for same in marked]
    return found[0]._replace(weight_TW=weight_1W, sentences=means)


def weigh_words(
    text: str, batch: TextBatch, judged: ClassifierOutput, index: int, *, spelling: Spelling, tokenizer: Tokenizer
) -> WordWeights:
    """Sum the pieces' weights of one text of a batch into those of words; words behind a cut are left out."""
    is_document = judged.sentence_weight_BTW is not None
    parts = split_document(text) if is_document else [text]
    words = list[str]()
    of_piece = [torch.zeros(0, dtype=torch.long)]
    for part in parts:
        own = spelling.words(part)
        of_piece.append(number_words(own, spelling, tokenizer) + len(words))
        words += own
    weight_TS, ends = _weights_of(batch, judged, index)
    number_S = torch.cat(of_piece)[: weight_TS.shape[1]]
    if not len(number_S):
        return WordWeights([], weight_TS[:, :0], [] if is_document else None)
    words = words[: int(number_S[-1]) + 1]
    weight_TW = weight_TS.new_zeros(len(weight_TS), len(words)).index_add(1, number_S, weight_TS)
    return WordWeights(words, weight_TW, _sentences(judged, index, number_S, ends) if is_document else None)


def _sentences(judged: ClassifierOutput, index: int, number_S: Tensor, ends: Sequence[int]) -> list[SentenceWeight]:
    """Return each sentence that was read; a word that goes on in the next part of a long one is in the first."""
    assert judged.sentence_weight_BTW is not None
    weights = judged.sentence_weight_BTW[index].float().mean(0).tolist()
    bounds = [0, *(int(number_S[end - 1]) + 1 for end in ends)]
    return [SentenceWeight(weight, *bound) for weight, bound in zip(weights, itertools.pairwise(bounds), strict=False)]


def _weights_of(batch: TextBatch, judged: ClassifierOutput, index: int) -> tuple[Tensor, list[int]]:
    """Return the weights [r, S] of one text's pieces, without padding, and where each of its sentences ends."""
    if judged.weight_BTS is None:
        raise UserError("attention: this model pools by its last state, in which no word has a weight (model.pooling)")
    count = int(batch.window_length_B[index])
    rows = batch.window_BW[index, :count].tolist()
    if judged.sentence_weight_BTW is None:
        length = int(batch.length_U[rows[-1]])
        return judged.weight_BTS[index, :, :length].float().cpu(), [length]
    lengths = batch.length_U[rows].tolist()
    sentence_TW = judged.sentence_weight_BTW[index].float().cpu()
    parts = [
        sentence_TW[:, place, None] * judged.weight_BTS[row, :, :length].float().cpu().mean(0)
        for place, (row, length) in enumerate(zip(rows, lengths, strict=True))
    ]
    return torch.cat(parts, 1), list(itertools.accumulate(lengths))


def number_words(words: Sequence[str], spelling: Spelling, tokenizer: Tokenizer) -> Tensor:
    """Return which word each piece belongs to; no piece of any tokenizer reaches over a space."""
    spelled = (word.lower() if spelling.lowercase else word for word in words)
    counts = [len(tokenizer.encode(f" {word}" if number else word)) for number, word in enumerate(spelled)]
    return torch.repeat_interleave(torch.arange(len(words)), torch.tensor(counts, dtype=torch.long))
