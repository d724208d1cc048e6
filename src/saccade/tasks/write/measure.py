"""Measures of a language model on a text: the loss, the perplexity, and what they are per word and character."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from saccade.data.packing import IGNORED
from saccade.data.stream import Stream, TextWindow, cut_window, overlap_rows
from saccade.models.recurrent_writer import RecurrentWriter
from saccade.models.transformer_writer import TransformerWriter
from saccade.tasks.write.config import Network
from saccade.training.losses import read_output, smoothed_cross_entropy

READERS = 16  # of an RNN's validation set, each with its part
TOKENS = 8192  # in a batch of rows


class Penalties(NamedTuple):
    """Penalties on the size of an RNN's outputs, and on their change from step to step (Merity 2018, section 4.6)."""

    size: float = 0.0
    change: float = 0.0

    def __call__(self, h_BTD: Tensor) -> Tensor:
        """Return α mean(h²) + β mean((h_t - h_t-1)²)."""
        wide_BTD = h_BTD.float()
        return self.size * wide_BTD.square().mean() + self.change * wide_BTD.diff(dim=1).square().mean()


FREE = Penalties()


def write_loss(
    network: Network, window: TextWindow, *, smoothing: float = 0.0, penalties: Penalties = FREE
) -> tuple[Tensor, Tensor]:
    """Return the summed loss and negative log-likelihood of all tokens of a window."""
    h_BTD = network(window)
    vectors_BTD, matrix_VD = read_output(network, h_BTD)
    target_N = window.write_BT.flatten()
    loss, likelihood = smoothed_cross_entropy(vectors_BTD.flatten(0, 1), matrix_VD, target_N, smoothing=smoothing)
    return (loss if penalties == FREE else loss + len(target_N) * penalties(h_BTD)), likelihood


class Rows(NamedTuple):
    """Reading a stream in batches: its length, the steps and overlap of a row, and readers side by side."""

    steps: int
    overlap: float
    num_readers: int = READERS


class Scores(NamedTuple):
    """A model's figures on a text: the sum of -log p of its tokens, and what there is of them."""

    nats: float
    num_tokens: int
    num_words: int
    num_characters: int

    @property
    def loss(self) -> float:
        return self.nats / self.num_tokens

    def plain(self) -> dict[str, float]:
        """Return all figures; each document's end counts as a token, a word and a character."""
        per_character = self.nats / self.num_characters
        return {
            "perplexity": math.exp(min(50.0, self.loss)),
            "word_perplexity": math.exp(min(50.0, self.nats / self.num_words)),
            "nats_per_character": per_character,
            "bits_per_character": per_character / math.log(2),
            "loss": self.loss,
        }


@torch.inference_mode()
def score_stream(
    network: Network, stream: Stream, rows: Rows, watch: Callable[[Iterator[float], int], Iterable[Any]] | None = None
) -> Scores:
    """Score every token of a stream once; `watch` sees the sums of the batches go by."""
    parts = (
        _score_rows(network, stream, rows)
        if isinstance(network, TransformerWriter)
        else _score_parts(network, stream, rows)
    )
    total = len(stream.ids) if watch is None else count_batches(network, stream, rows)
    nats = sum(parts if watch is None else watch(parts, total))
    return Scores(nats, len(stream.ids), stream.num_words, stream.num_characters)


def count_batches(network: Network, stream: Stream, rows: Rows) -> int:
    """Count the batches that scoring takes."""
    if isinstance(network, RecurrentWriter):
        return -(-_part_length(stream, rows) // rows.steps)
    per_batch = max(1, TOKENS // rows.steps)
    return -(-sum(1 for _ in overlap_rows(len(stream.ids), rows.steps, rows.overlap)) // per_batch)


def _score_rows(network: TransformerWriter, stream: Stream, rows: Rows) -> Iterator[float]:
    """Score rows that overlap: all have the same length, unless there is only one."""
    found = np.array(list(overlap_rows(len(stream.ids), rows.steps, rows.overlap)))
    for first_R, last_R, scored_R in (part.T for part in np.array_split(found, count_batches(network, stream, rows))):
        window = cut_window(stream.ids, first_R, int(last_R[0] - first_R[0]))
        at_BT = first_R[:, None] + np.arange(window.write_BT.shape[1])
        device = network.embedding.weight.device
        yield _sum(network, network(window.to(device)), window, at_BT >= scored_R[:, None])


def _score_parts(network: RecurrentWriter, stream: Stream, rows: Rows) -> Iterator[float]:
    """Score parts side by side, each from an empty state, which is carried to the part's end."""
    part = _part_length(stream, rows)
    first_R = np.arange(0, len(stream.ids), part)
    end_R = np.minimum(first_R + part, len(stream.ids))
    device, state = network.embedding.weight.device, network.begin(len(first_R))
    for at in range(0, part, rows.steps):
        window = cut_window(stream.ids, first_R + at, min(rows.steps, part - at))
        at_BT = (first_R + at)[:, None] + np.arange(window.write_BT.shape[1])
        vectors_BTD, state = network.advance(state, window.read_BT.to(device))
        yield _sum(network, vectors_BTD, window, at_BT < end_R[:, None])


def _part_length(stream: Stream, rows: Rows) -> int:
    num_readers = max(1, min(rows.num_readers, len(stream.ids) // (4 * rows.steps)))
    return -(-len(stream.ids) // num_readers)


def _sum(network: Network, vectors_BTD: Tensor, window: TextWindow, scored_BT: Any) -> float:
    """Sum -log p of the scored tokens."""
    vectors_BTD, matrix_VD = read_output(network, vectors_BTD)
    target_BT = window.write_BT.masked_fill(~torch.from_numpy(scored_BT), IGNORED).to(vectors_BTD.device)
    _, nats = smoothed_cross_entropy(vectors_BTD.flatten(0, 1), matrix_VD, target_BT.flatten(), smoothing=0.0)
    return float(nats)
