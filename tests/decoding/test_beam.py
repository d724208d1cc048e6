"""Beam search against brute force and greedy decoding, on models small enough to enumerate."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from saccade.data.tokenizer import END, PAD, START
from saccade.decoding import BeamOptions, beam_search
from saccade.models.transformer import BlockSizes, Transformer

VOCABULARY = 7


class TableState(NamedTuple):
    source_B: Tensor
    last_B: Tensor

    def rows(self, index_N: Tensor) -> TableState:
        return TableState(self.source_B[index_N], self.last_B[index_N])


class TableModel:
    """The next id depends on the source's first id and the last two ids, by a random table."""

    def __init__(self) -> None:
        self.table = torch.randn(VOCABULARY, VOCABULARY, VOCABULARY, VOCABULARY) * 1.5

    def start(self, source_BS: Tensor, source_length_B: Tensor) -> TableState:
        assert len(source_length_B) == len(source_BS)
        return TableState(source_BS[:, 0], torch.zeros(len(source_BS), dtype=torch.long))

    def advance(self, state: TableState, read_BT: Tensor) -> tuple[Tensor, TableState]:
        now = read_BT[:, -1]
        return self.table[state.source_B, state.last_B, now][:, None], TableState(state.source_B, now)

    def logits(self, vectors: Tensor) -> Tensor:
        return vectors

    def score(self, source: int, ids: list[int]) -> float:
        last, now, total = 0, START, 0.0
        for index in [*ids, END]:
            total += float(self.table[source, last, now].log_softmax(-1)[index])
            last, now = now, index
        return total


def sources(*first: int) -> tuple[Tensor, Tensor]:
    return torch.tensor([[index, END] for index in first]), torch.full((len(first),), 2)


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0])
def test_a_beam_as_wide_as_the_space_is_brute_force(length_penalty: float) -> None:
    model = TableModel()
    options = BeamOptions(width=400, num_best=5, length_penalty=length_penalty, max_length_factor=-3.0)
    limit = options.limit(2)  # four ids, </s> included
    assert limit == 4
    letters = [index for index in range(VOCABULARY) if index not in (PAD, START, END)]
    found = beam_search(model, *sources(3, 5), options)
    for source, hypotheses in zip((3, 5), found, strict=True):
        every = [list(ids) for n in range(limit) for ids in itertools.product(letters, repeat=n)]
        ranked = sorted(
            ((options.normalised(model.score(source, ids), len(ids) + 1), ids) for ids in every), reverse=True
        )
        assert [hypothesis.ids for hypothesis in hypotheses] == [ids for _, ids in ranked[:5]]
        for hypothesis, (score, ids) in zip(hypotheses, ranked, strict=False):
            assert hypothesis.score == pytest.approx(score, abs=1e-5)
            assert sum(hypothesis.log_probabilities) == pytest.approx(model.score(source, ids), abs=1e-5)


def test_a_beam_of_one_is_greedy() -> None:
    model = TableModel()
    for source, (hypothesis,) in zip(
        (3, 4, 5, 6), beam_search(model, *sources(3, 4, 5, 6), BeamOptions()), strict=True
    ):
        ids: list[int] = []
        last, now = 0, START
        while len(ids) < BeamOptions().limit(2):
            row = model.table[source, last, now].clone()
            row[[PAD, START]] = -math.inf
            last, now = now, int(row.argmax())
            if now == END:
                break
            ids.append(now)
        assert hypothesis.ids == ids


def test_batch_mates_change_nothing() -> None:
    model = TableModel()
    options = BeamOptions(width=4, num_best=2)
    together = beam_search(model, *sources(3, 4, 5, 6), options)
    for source, hypotheses in zip((3, 4, 5, 6), together, strict=True):
        (alone,) = beam_search(model, *sources(source), options)
        assert [h.ids for h in alone] == [h.ids for h in hypotheses]


def test_minimum_length() -> None:
    model = TableModel()
    for (hypothesis,) in beam_search(model, *sources(3, 4, 5), BeamOptions(width=3, min_length=6)):
        assert len(hypothesis.ids) >= 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, r"width: 0 given; it must be 1 or more"),
        ({"num_best": 3, "width": 2}, r"num_best: 3 given; a beam of 2"),
        ({"length_penalty": -1.0}, r"length_penalty: -1.0 given"),
    ],
)
def test_mistakes_are_named(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BeamOptions(**options)  # type: ignore[arg-type]


def test_a_transformer_decodes_the_same_with_and_without_batch_mates() -> None:
    model = Transformer(
        source_vocabulary=11,
        target_vocabulary=11,
        sizes=BlockSizes(16, 2, 32),
        num_encoder_layers=2,
        num_decoder_layers=2,
        share_embeddings=True,
    ).eval()
    torch.nn.init.normal_(model.target.weight, std=1.0)
    source, length = torch.randint(4, 11, (3, 7)), torch.tensor([7, 3, 5])
    options = BeamOptions(width=3, num_best=3)
    together = beam_search(model, source, length, options)
    for row, size in enumerate(length.tolist()):
        (alone,) = beam_search(model, source[row : row + 1, :size], length[row : row + 1], options)
        assert [h.ids for h in alone] == [h.ids for h in together[row]]
        for hypothesis in alone:  # scores are those of teacher forcing
            read = torch.tensor([[START, *hypothesis.ids]])
            vectors = model(source[row : row + 1, :size], length[row : row + 1], read)
            steps = model.logits(vectors).log_softmax(-1)[0]
            written = torch.tensor([*hypothesis.ids, END])[: len(hypothesis.log_probabilities)]
            expected = steps[: len(written)].gather(1, written[:, None])[:, 0]
            torch.testing.assert_close(torch.tensor(hypothesis.log_probabilities), expected, atol=1e-4, rtol=1e-4)
