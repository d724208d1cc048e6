"""Small translators of the phrasebook: their training, and how well they know held-out pairs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from saccade.data.batches import PairBatch
from saccade.lab.claims.phrases.pairs import Phrases, collate
from saccade.lab.fit import fit
from saccade.models.seq2seq import RecurrentSizes, Seq2Seq
from saccade.models.transformer import BlockSizes, Dropouts, Transformer
from saccade.training.losses import sequence_loss

WIDTH, HEADS, LAYERS, HIDDEN = 64, 4, 2, 128
TRAIN, TESTED, BATCH, RATE, CLIP = 12_000, 256, 48, 0.003, 1.0
WARMUP_STEPS = 50


class NextWordScores(NamedTuple):
    """Scores of a translator on the next words of right translations: the share it would write, and nats a word."""

    right: float
    nats: float


def make_transformer(phrases: Phrases, *, norm: str = "pre", num_layers: int = LAYERS) -> Transformer:
    """Make a small Transformer for these pairs."""
    sizes = BlockSizes(WIDTH, HEADS, HIDDEN, norm=norm, dropouts=Dropouts(residual=0.0))
    return Transformer(
        source=phrases.num_source,
        target_vocabulary=phrases.num_target,
        sizes=sizes,
        num_encoder_layers=num_layers,
        num_decoder_layers=num_layers,
    )


def make_recurrent(phrases: Phrases, attention: str) -> Seq2Seq:
    """Make a small encoder-decoder of GRUs with attention, which reads in both directions."""
    return Seq2Seq(
        source=phrases.num_source,
        target_vocabulary=phrases.num_target,
        sizes=RecurrentSizes(WIDTH, WIDTH),
        attention=attention,
        feeds_input=False,
    )


def train(
    network: nn.Module,
    phrases: Phrases,
    seed: int,
    *,
    num_steps: int,
    smoothing: float = 0.0,
    warmup_steps: int = WARMUP_STEPS,
    most_norm: float = CLIP,
) -> list[float]:
    """Train on batches that are drawn with the seed; return the losses, in nats a word, and leave it for use."""
    random = np.random.default_rng(seed)

    def draw_loss() -> Tensor:
        batch = phrases.draw(BATCH, random)
        return sequence_loss(network, batch, smoothing=smoothing)[0] / batch.num_items

    schedule = {"rate": RATE, "falls": True, "warmup_steps": warmup_steps, "most_norm": most_norm}
    losses = fit(network.parameters(), draw_loss, num_steps=num_steps, **schedule)  # type: ignore[arg-type]
    network.eval()
    return losses


def batch_tests(phrases: Phrases, size: int = 64) -> Iterable[PairBatch]:
    """Yield the held-out pairs in batches."""
    for start in range(0, len(phrases.test), size):
        yield collate(phrases.test[start : start + size])


@torch.no_grad()
def examine(network: nn.Module, phrases: Phrases) -> NextWordScores:
    """Ask for every next word of the held-out translations, the right ones before it being read."""
    right, nats, total = 0.0, 0.0, 0
    for batch in batch_tests(phrases):
        vectors_BTD = network(batch.source_BS, batch.source_length_B, batch.read_BT)
        told_BTV = network.logits(vectors_BTD).log_softmax(-1)  # type: ignore[operator]
        real_BT = torch.arange(batch.write_BT.shape[1]) < batch.target_length_B[:, None]
        nats -= float(told_BTV.gather(-1, batch.write_BT[..., None]).squeeze(-1)[real_BT].sum())
        right += float((told_BTV.argmax(-1) == batch.write_BT)[real_BT].sum())
        total += int(real_BT.sum())
    return NextWordScores(right / total, nats / total)
