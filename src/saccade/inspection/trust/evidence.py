"""Compares the attention to each word with what happens when the word is changed or erased.

For every word: its weight; gradient x input, the change of log p(answer) that a small change of the word would make;
and erasing it, the change that leaving it out does make (Jain & Wallace 2019, section 4.1). For the whole text: log p
as more and more words are erased, in the order of each of these (DeYoung 2020, section 4), and how far the answer moves
when the model has other weights (Jain & Wallace 2019, section 4.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice
from typing import NamedTuple, cast, final

import numpy as np
import torch
from torch import Tensor

from saccade.data.grouping import group_by_length
from saccade.data.tags.lexicon import pad_ids
from saccade.errors import UserError
from saccade.inspection.insight import Head
from saccade.inspection.trust.counterfactual import WEIGHTS, make_uniform_weights, replace_weights
from saccade.inspection.trust.subjects import Subject
from saccade.ops.precision import widen

ERASURES = ("delete", "unknown")
ORDERS = ("attention", "gradient", "erasure", "random")
SHARES = tuple(tenth / 10 for tenth in range(11))  # of the words, erased
NO_WORD = -1
MEAN = Head(layer=-1)  # of the last layer's heads
DRAWS = 5  # of everything that is random; their mean is kept
CHUNK = 32  # texts that are examined together
MOST_TOKENS = 1 << 12  # of a batch
MOST_LOGITS = 1 << 24


class TrustCase(NamedTuple):
    """A text as a model reads it, and an answer. Pieces of NO_WORD (</s>) are never erased and never ranked."""

    words: list[str]
    source: list[int]
    word_of_piece: list[int]
    answer: list[int]


class AnswerChange(NamedTuple):
    """The change of an answer under other weights, as means over its steps.

    The total variation distance of p, the change of log p(answer), and the share of steps whose likeliest id stays.
    """

    distance: float
    log_probability: float
    same: float


class Evidence(NamedTuple):
    """The attention, gradient and erasure of each of T steps and W words of a text; the latter two are signed.

    `share_W` is the weight that each word would have if all pieces had the same weight. `curves` are the mean log p
    of a step when the SHARES of words are erased, in each of the ORDERS.
    """

    words: list[str]
    weight_LHTW: Tensor
    weight_TW: Tensor
    gradient_TW: Tensor
    erasure_TW: Tensor
    share_W: Tensor
    curves: dict[str, list[float]]
    moved: dict[str, AnswerChange]


def examine(
    subject: Subject, cases: Iterable[TrustCase], head: Head = MEAN, *, erase: str = "delete", seed: int = 0
) -> Iterator[Evidence]:
    """Yield the evidence of each case in order, with the weights of `head`; memory doesn't grow with the cases."""
    if erase not in ERASURES:
        raise UserError(f"erase: {erase!r} given; allowed: {', '.join(ERASURES)}")
    rest = iter(cases)
    for number in count(seed):
        if not (chunk := list(islice(rest, CHUNK))):
            return
        yield from _examine_chunk(subject, chunk, head, Eraser(subject, chunk, erase), number)


def _examine_chunk(
    subject: Subject, cases: Sequence[TrustCase], head: Head, eraser: Eraser, seed: int
) -> Iterator[Evidence]:
    weights, gradients = _read_weights(subject, cases), compute_gradients(subject, cases)
    moved = _measure_changes(subject, cases, seed)
    erasures, chance = eraser.erase_one_by_one(), np.random.default_rng(seed)
    chosen = [_pick_head(head, weight_LHTW) for weight_LHTW in weights]
    orders = [
        _rank_words({"attention": weight, "gradient": gradient, "erasure": erasure}, chance)
        for weight, gradient, erasure in zip(chosen, gradients, erasures, strict=True)
    ]
    curves = eraser.erase_in_orders(orders)
    for row, case in enumerate(cases):
        share_W = _sum_into_words(case, torch.full((len(case.source),), 1 / len(case.source)))
        found = weights[row], chosen[row], gradients[row], erasures[row]
        yield Evidence(case.words, *found, share_W, curves[row], moved[row])


def _pick_head(head: Head, weight_LHTW: Tensor) -> Tensor:
    for name, value, most in zip(("layer", "head"), (head.layer, head.head or 0), weight_LHTW.shape[:2], strict=True):
        if not -most <= value < most:
            raise UserError(f"{name}: {value} given; allowed: 0 to {most - 1}, or -1 for the last")
    return head.of(weight_LHTW)


def _sum_into_words(case: TrustCase, value_S: Tensor) -> Tensor:
    """Sum values of pieces [..., S] into values of words [..., W]."""
    number_S = torch.tensor(case.word_of_piece)
    kept_S = number_S != NO_WORD
    sums = value_S.new_zeros(*value_S.shape[:-1], len(case.words))
    return sums.index_add(-1, number_S[kept_S], value_S[..., kept_S])


class SourceAndAnswer(NamedTuple):
    """A source and an answer to be read together."""

    source: Sequence[int]
    answer: Sequence[int]


@torch.no_grad()
def compute_log_probabilities(subject: Subject, rows: Sequence[SourceAndAnswer]) -> list[Tensor]:
    """Return log p of every step of each row's answer, [T]."""
    found = [torch.empty(0)] * len(rows)
    for batch in _batches(subject, rows):
        source_NS, length_N, answer_NT = _pad_rows(subject, [rows[row] for row in batch])
        told_NT = _pick_answers(subject.logits(source_NS, length_N, answer_NT), answer_NT).cpu()
        for row, told_T in zip(batch, told_NT, strict=True):
            found[row] = told_T[: len(rows[row].answer)]
    return found


def compute_gradients(subject: Subject, cases: Sequence[TrustCase]) -> list[Tensor]:
    """Return x_w · d log p(y_t) / d x_w for each step and word, [T, W]; each row of a batch is one step."""
    places = [(number, step) for number, case in enumerate(cases) for step in range(len(case.answer))]
    rows = [SourceAndAnswer(cases[number].source, cases[number].answer) for number, _ in places]
    found = [torch.zeros(len(case.answer), len(case.source)) for case in cases]
    for batch in _batches(subject, rows):
        source_NS, length_N, answer_NT = _pad_rows(subject, [rows[row] for row in batch])
        step_N1 = torch.tensor([[places[row][1]] for row in batch], device=subject.device)
        # cuDNN has no backward pass for recurrent layers that are not in training
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            leaves: list[Tensor] = []
            told_NT = _pick_answers(subject.logits(source_NS, length_N, answer_NT, leaves), answer_NT)
            (gradient_NSD,) = torch.autograd.grad(told_NT.gather(1, step_N1).sum(), leaves)
        product_NS = (gradient_NSD * leaves[0].detach()).sum(-1).cpu()
        for row, product_S in zip(batch, product_NS, strict=True):
            number, step = places[row]
            found[number][step] = product_S[: len(cases[number].source)]
    return [_sum_into_words(case, product_TS) for case, product_TS in zip(cases, found, strict=True)]


@torch.no_grad()
def _read_weights(subject: Subject, cases: Sequence[TrustCase]) -> list[Tensor]:
    """Return the weights of each case, [L, H, T, W]."""
    found = [torch.empty(0)] * len(cases)
    rows = [SourceAndAnswer(case.source, case.answer) for case in cases]
    for batch in _batches(subject, rows):
        weight_NLHTS = subject.weights(*_pad_rows(subject, [rows[row] for row in batch])).float().cpu()
        for row, weight_LHTS in zip(batch, weight_NLHTS, strict=True):
            steps, pieces = len(rows[row].answer), len(rows[row].source)
            found[row] = _sum_into_words(cases[row], weight_LHTS[:, :, :steps, :pieces])
    return found


@torch.no_grad()
def _measure_changes(subject: Subject, cases: Sequence[TrustCase], seed: int) -> list[dict[str, AnswerChange]]:
    """Measure how far each case's answer moves under each of the WEIGHTS."""
    found = [dict[str, AnswerChange]() for _ in cases]
    rows = [SourceAndAnswer(case.source, case.answer) for case in cases]
    for batch in _batches(subject, rows):
        given = _pad_rows(subject, [rows[row] for row in batch])
        own_NTV = widen(subject.logits(*given)).log_softmax(-1)
        for name, make in WEIGHTS.items():
            draws = 1 if make is make_uniform_weights else DRAWS
            moved_KNT = torch.zeros(len(AnswerChange._fields), *given[2].shape)
            for draw in range(draws):
                with replace_weights(subject.attention, make, seed=seed + draw):
                    other_NTV = widen(subject.logits(*given)).log_softmax(-1)
                moved_KNT += _compare(own_NTV, other_NTV, given[2]).cpu() / draws
            for index, row in enumerate(batch):
                found[row][name] = AnswerChange(*moved_KNT[:, index, : len(rows[row].answer)].mean(-1).tolist())
    return found


def _compare(own_NTV: Tensor, other_NTV: Tensor, answer_NT: Tensor) -> Tensor:
    """Return the fields of AnswerChange at each step, [3, N, T], from two tables of log-probabilities."""
    distance_NT = (own_NTV.exp() - other_NTV.exp()).abs().sum(-1) / 2
    change_NT = (other_NTV - own_NTV).gather(-1, answer_NT.unsqueeze(-1)).squeeze(-1)
    return torch.stack([distance_NT, change_NT, (own_NTV.argmax(-1) == other_NTV.argmax(-1)).float()])


@final
class Eraser:
    """Reads the answers of some cases with words erased; no set of words is read twice."""

    def __init__(self, subject: Subject, cases: Sequence[TrustCase], way: str) -> None:
        if way == "unknown" and subject.unknown is None:
            raise UserError("erase: unknown given, but this model knows no piece of that kind; allowed: delete")
        self._subject, self._cases, self._way = subject, cases, way
        self._told: dict[tuple[int, frozenset[int]], Tensor] = {}

    def erase_one_by_one(self) -> list[Tensor]:
        """Return log p(y_t | x) - log p(y_t | x without w) for each case's steps and words, [T, W]."""
        alone = [[frozenset({word}) for word in range(len(case.words))] for case in self._cases]
        self._read([(number, words) for number, sets in enumerate(alone) for words in (frozenset[int](), *sets)])
        return [
            torch.stack([self._told[number, frozenset()] - self._told[number, words] for words in sets], -1)
            for number, sets in enumerate(alone)
        ]

    def erase_in_orders(self, orders: Sequence[dict[str, list[list[int]]]]) -> list[dict[str, list[float]]]:
        """Return the mean log p of a step as the SHARES of words are erased, as means over the orders of each name."""
        erased = [
            {name: [_take_shares(order) for order in several] for name, several in named.items()} for named in orders
        ]
        self._read([(number, words) for number, words in _flatten(erased)])
        return [
            {
                name: torch.tensor([[float(self._told[number, words].mean()) for words in sets] for sets in several])
                .mean(0)
                .tolist()
                for name, several in named.items()
            }
            for number, named in enumerate(erased)
        ]

    def _read(self, wanted: Iterable[tuple[int, frozenset[int]]]) -> None:
        new = [key for key in dict.fromkeys(wanted) if key not in self._told]
        rows = [
            SourceAndAnswer(self._erase(self._cases[number], words), self._cases[number].answer)
            for number, words in new
        ]
        self._told |= zip(new, compute_log_probabilities(self._subject, rows), strict=True)

    def _erase(self, case: TrustCase, words: frozenset[int]) -> list[int]:
        """Leave words out of the text, or put <unk> in their places; </s> stays if nothing else does."""
        pieces = zip(case.source, case.word_of_piece, strict=True)
        if self._way == "unknown":
            return [cast(int, self._subject.unknown) if word in words else piece for piece, word in pieces]
        return [piece for piece, word in pieces if word not in words] or [self._subject.end]


def _flatten(erased: Sequence[dict[str, list[list[frozenset[int]]]]]) -> Iterator[tuple[int, frozenset[int]]]:
    for number, named in enumerate(erased):
        yield from ((number, words) for several in named.values() for sets in several for words in sets)


def _rank_words(say: dict[str, Tensor], chance: np.random.Generator) -> dict[str, list[list[int]]]:
    """Sort the words from the one that matters most to the whole answer, ties by chance; add random orders."""
    num_words = next(iter(say.values())).shape[-1]
    found = {
        name: [np.lexsort((chance.random(num_words), -value_TW.sum(0).numpy())).tolist()]
        for name, value_TW in say.items()
    }
    return found | {"random": [chance.permutation(num_words).tolist() for _ in range(DRAWS)]}


def _take_shares(order: Sequence[int]) -> list[frozenset[int]]:
    return [frozenset(order[: round(share * len(order))]) for share in SHARES]


def _batches(subject: Subject, rows: Sequence[SourceAndAnswer]) -> Iterator[list[int]]:
    """Yield rows of like lengths, within the tokens and the logits that a batch may hold."""

    def cost(count: int, answer: int, source: int) -> float:
        return max(count * (source + answer) / MOST_TOKENS, count * answer * subject.num_outputs / MOST_LOGITS)

    return group_by_length([(len(row.answer), len(row.source)) for row in rows], 1, cost=cost)


def _pad_rows(subject: Subject, rows: Sequence[SourceAndAnswer]) -> tuple[Tensor, Tensor, Tensor]:
    """Pad sources to [N, S] and answers to [N, T], and return both with the lengths of the sources."""
    length_N = torch.tensor([len(row.source) for row in rows])
    source_NS, answer_NT = (torch.from_numpy(pad_ids(side)) for side in zip(*rows, strict=True))
    return source_NS.to(subject.device), length_N.to(subject.device), answer_NT.to(subject.device)


def _pick_answers(logits_NTV: Tensor, answer_NT: Tensor) -> Tensor:
    """Return log p of the answers, [N, T]."""
    return widen(logits_NTV).log_softmax(-1).gather(-1, answer_NT.unsqueeze(-1)).squeeze(-1)
