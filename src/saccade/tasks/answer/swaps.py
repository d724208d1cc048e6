"""Words that could stand in each other's place: in training they change places, in stories and answers alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

from saccade.data.labels.labelled import Spelling
from saccade.data.stories import NO_ANSWER, StoryBatch
from saccade.data.text.tokenizer import Tokenizer
from saccade.errors import UserError

FIELD = "training.swap"


class Group(NamedTuple):
    """Words that change places: their ids, and the numbers of the answers that they are; none: they answer nothing."""

    ids_N: Tensor
    answer_N: Tensor | None


@final
class Swaps:
    """Draws other places for the words of each group, by torch's generator, for each story anew."""

    def __init__(
        self, groups: Sequence[Sequence[str]], tokenizer: Tokenizer, spelling: Spelling, answers: Sequence[str]
    ) -> None:
        self.num_words, self.num_answers = tokenizer.size, len(answers)
        known = {spelling(answer): number for number, answer in enumerate(answers)}
        spelled = [[spelling(word) for word in group] for group in groups]
        self.groups = [_make_group(group, tokenizer, known) for group in spelled]
        _check_answers(known, {word for group in spelled for word in group})

    def __call__(self, batch: StoryBatch) -> StoryBatch:
        """Change the words of each story, its question and its answer; then let each sentence stand once."""
        device, count = batch.ids_UW.device, batch.num_items
        word_BV = torch.arange(self.num_words).repeat(count, 1)
        answer_BV = torch.arange(self.num_answers).repeat(count, 1)
        for ids_N, answer_N in self.groups:
            order_BN = torch.rand(count, len(ids_N)).argsort(1)
            word_BV[:, ids_N] = ids_N[order_BN]
            if answer_N is not None:
                answer_BV[:, answer_N] = answer_N[order_BN]
        word_BV, answer_BV = word_BV.to(device), answer_BV.to(device)
        row_BS = torch.cat([batch.sentence_BS, batch.question_B[:, None]], 1)
        told_BSW = batch.ids_UW[row_BS]
        changed_BSW = word_BV.gather(1, told_BSW.flatten(1)).view_as(told_BSW)
        ids_UW, row_N = torch.unique(changed_BSW.flatten(0, 1), dim=0, return_inverse=True)
        row_BS = row_N.view_as(row_BS)
        answer_B = answer_BV.gather(1, batch.answer_B.clamp(min=0)[:, None]).squeeze(1)
        answer_B = torch.where(batch.answer_B == NO_ANSWER, NO_ANSWER, answer_B)
        return StoryBatch(ids_UW, row_BS[:, :-1], batch.length_B, row_BS[:, -1], answer_B)


def _make_group(words: Sequence[str], tokenizer: Tokenizer, known: dict[str, int]) -> Group:
    ids = list[int]()
    for word in words:
        own = tokenizer.encode(word)
        if len(own) != 1 or tokenizer.pieces(own) != [word]:
            raise UserError(f"{FIELD}: {word!r} given; allowed: single words of the stories that are learned from")
        ids += own
    named = [word for word in words if word in known]
    if named and len(named) < len(words):
        missing = next(word for word in words if word not in known)
        said = f"{named[0]!r} is an answer and {missing!r} is not"
        raise UserError(f"{FIELD}: {said}; allowed: groups whose words are all answers, or none of them")
    return Group(torch.tensor(ids), torch.tensor([known[word] for word in words]) if named else None)


def _check_answers(known: dict[str, int], swapped: set[str]) -> None:
    """Refuse answers of several words of which one changes places: what they become is no answer that is known."""
    for answer in known:
        if " " in answer and (inside := swapped & set(answer.split())):
            raise UserError(f"{FIELD}: {min(inside)!r} given, but it is a part of the answer {answer!r}")
