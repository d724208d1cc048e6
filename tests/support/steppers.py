"""Models small enough to enumerate, and others to decode them by."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from saccade.data.text.tokenizer import END, PAD, START
from saccade.decoding import DecodingOptions, Stepper
from saccade.models.transformer import BlockSizes, Transformer

VOCABULARY = 7
LETTERS = [index for index in range(VOCABULARY) if index not in (PAD, START, END)]


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

    def steps(self, source: int, ids: list[int]) -> list[float]:
        """The log-probability of each id and of </s> behind them."""
        last, now, found = 0, START, []
        for index in [*ids, END]:
            found.append(float(self.table[source, last, now].log_softmax(-1)[index]))
            last, now = now, index
        return found

    def score(self, source: int, ids: list[int]) -> float:
        return sum(self.steps(source, ids))


class Counted(TableModel):
    """It counts its steps."""

    num_steps = 0

    def advance(self, state: TableState, read_BT: Tensor) -> tuple[Tensor, TableState]:
        self.num_steps += 1
        return super().advance(state, read_BT)


class UncachedState(NamedTuple):
    source_BS: Tensor
    source_length_B: Tensor
    read_BT: Tensor

    def rows(self, index_N: Tensor) -> UncachedState:
        return UncachedState(*(tensor[index_N] for tensor in self))


class Uncached:
    """A model that reads everything again at every step."""

    def __init__(self, model: Stepper) -> None:
        self.model = model

    def start(self, source_BS: Tensor, source_length_B: Tensor) -> UncachedState:
        return UncachedState(source_BS, source_length_B, torch.zeros(len(source_BS), 0, dtype=torch.long))

    def advance(self, state: UncachedState, read_BT: Tensor) -> tuple[Tensor, UncachedState]:
        later = state._replace(read_BT=torch.cat([state.read_BT, read_BT], 1))
        start = self.model.start(state.source_BS, state.source_length_B)
        return self.model.advance(start, later.read_BT)[0][:, -read_BT.shape[1] :], later

    def logits(self, vectors: Tensor) -> Tensor:
        return self.model.logits(vectors)


def sources(*first: int) -> tuple[Tensor, Tensor]:
    return torch.tensor([[index, END] for index in first]), torch.full((len(first),), 2)


def outputs(options: DecodingOptions) -> Iterator[list[int]]:
    """Every output a search over letters may end with."""
    for length in range(options.min_length, options.max_length):
        for ids in itertools.product(LETTERS, repeat=length):
            grams = [ids[at : at + options.no_repeat_ngram] for at in range(length - options.no_repeat_ngram + 1)]
            if not options.no_repeat_ngram or len(set(grams)) == len(grams):
                yield list(ids)


def small_transformer() -> Transformer:
    model = Transformer(
        source=11,
        target_vocabulary=11,
        sizes=BlockSizes(16, 2, 32),
        num_encoder_layers=2,
        num_decoder_layers=3,
        share_embeddings=True,
    ).eval()
    torch.nn.init.normal_(model.target.weight, std=1.0)
    return model
