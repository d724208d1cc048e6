"""Batches of tagged sentences, and their loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from saccade.data.tags.lexicon import Document, Lexicon, TaggerInput
from saccade.models.tagger import TagNetwork


class TagBatch(NamedTuple):
    """Documents as tokens, and the tags of their sentences."""

    tokens: TaggerInput
    tag_BT: Tensor
    num_items: int  # tokens

    def to(self, device: torch.device) -> TagBatch:
        return TagBatch(self.tokens.to(device), self.tag_BT.to(device, non_blocking=True), self.num_items)


def collate(lexicon: Lexicon, batch: Sequence[Document]) -> TagBatch:
    """Make one batch of documents, whose tags are spelled as the lexicon's."""
    tags = [sentence.tags for document in batch for sentence in document]
    return TagBatch(lexicon.tokens(batch), lexicon.tag_ids(tags), sum(map(len, tags)))


def tag_loss(network: TagNetwork, batch: TagBatch) -> tuple[Tensor, Tensor]:
    """-log p of the tags, summed over all sentences; it is both what is learned from and what is shown."""
    emission_BTV = network(batch.tokens)
    loss = -network.chain.log_probability(emission_BTV, batch.tag_BT, batch.tokens.length_B).sum()
    return loss, loss.detach()
