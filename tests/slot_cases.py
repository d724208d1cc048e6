"""Small models and sentences to be written in slots."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from saccade.decoding import Hypothesis, Work
from saccade.models.transformer import BlockSizes, Transformer


def small_model(**sizes: Any) -> Transformer:
    model = Transformer(
        source=11,
        target_vocabulary=11,
        sizes=BlockSizes(16, 2, 32, **sizes),
        num_encoder_layers=1,
        num_decoder_layers=2,
        share_embeddings=True,
    ).eval()
    nn.init.normal_(model.target.weight, std=0.7)
    for name, parameter in model.named_parameters():
        if "feed_forward" in name or "bias.table" in name:
            nn.init.normal_(parameter, std=0.5)
    return model


def random_sources(count: int, longest: int = 20) -> list[Tensor]:
    return [torch.randint(4, 11, (random.randint(1, longest),)) for _ in range(count)]


def work_of(sources: list[Tensor], prefixes: Sequence[Sequence[int]] = ()) -> Work:
    def load(numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        rows = [sources[number] for number in numbers]
        return pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])

    return Work(load, [len(source) for source in sources], prefixes)


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert [(one.ids, one.ended) for one in mine] == [(one.ids, one.ended) for one in theirs]
        for one, other in zip(mine, theirs, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-4)
            assert one.log_probabilities == pytest.approx(other.log_probabilities, abs=1e-4)
