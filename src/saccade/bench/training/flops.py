"""The operations that a training step needs at least, and the operations a second that the machine can do.

A matrix product takes two operations a weight and token forward, and twice that backward: 6 in all. Attention takes
4 D operations a pair of query and key forward (scores and sums), 12 D in all; a target token sees itself and those
before it. Only real tokens count. Norms, softmax, dropout, embeddings and the optimiser are not counted.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from saccade.bench.measure import medians_side_by_side
from saccade.bench.training.sentences import TrainingText
from saccade.tasks.translate.networks import TRANSFORMER_SIZES


class ModelSizes(NamedTuple):
    """The sizes of the model that all train: a Transformer, or an RNN with additive attention (`embedding_width`)."""

    width: int
    num_layers: int
    vocabulary: int
    num_heads: int = 1
    hidden_width: int = 0
    embedding_width: int = 0
    dropout: float = 0.1

    @property
    def is_recurrent(self) -> bool:
        return self.embedding_width > 0


def sizes_of(name: str, vocabulary: int) -> ModelSizes:
    """Return the sizes by name: base and big of Vaswani 2017, rnn of Bahdanau 2015."""
    if name == "rnn":
        return ModelSizes(width=1000, num_layers=1, vocabulary=vocabulary, embedding_width=620)
    given = {key: int(value) for key, value in TRANSFORMER_SIZES[name].items() if key != "dropout"}
    return ModelSizes(vocabulary=vocabulary, **given)


def count_operations(sizes: ModelSizes, work: TrainingText) -> float:
    """Count the operations of one pass over all sentences, forward and backward."""
    source, target = float(work.source_N.sum()), float(work.target_N.sum())
    cross = float((work.source_N * work.target_N).sum())
    if sizes.is_recurrent:
        return _count_recurrent(sizes, source, target, cross) + 6 * len(work.source_N) * sizes.width**2  # the bridge
    D, F, L = sizes.width, sizes.hidden_width, sizes.num_layers
    own = float((work.source_N**2).sum() + (work.target_N * (work.target_N + 1)).sum() / 2)
    encoder, decoder = 4 * D * D + 2 * D * F, 6 * D * D + 2 * D * F
    products = source * L * (encoder + 2 * D * D) + target * (L * decoder + D * sizes.vocabulary)
    return 6 * products + 12 * L * D * (own + cross)


def _count_recurrent(sizes: ModelSizes, source: float, target: float, cross: float) -> float:
    """Count a bidirectional GRU and the keys by source token; query, GRU, maxout and output by target token."""
    D, E, half = sizes.width, sizes.embedding_width, sizes.width // 2
    encoder = 2 * 3 * half * (E + half) + D * D
    decoder = D * D + 3 * D * (E + 2 * D) + 2 * E * (2 * D + E) + E * sizes.vocabulary
    return 6 * (source * encoder + target * decoder) + 12 * D * cross


def measure_ceiling(device: torch.device) -> float:
    """Measure the operations a second of a large matrix product on this device."""
    size, dtype = (8192, torch.bfloat16) if device.type == "cuda" else (1024, torch.float32)
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    seconds = medians_side_by_side({"product": lambda: left @ right}, device, at_least=0.2)["product"]
    return 2 * size**3 / seconds
