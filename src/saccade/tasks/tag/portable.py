"""A tagger for other engines: what it reads, what it tells, and how its tags are scored."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from saccade.data.tags.columns import TaggedSentence
from saccade.data.tags.lexicon import LONGEST_SHAPE, LONGEST_WORD, Document, Lexicon, TaggerInput
from saccade.data.text.tokenizer import Tokenizer
from saccade.inspection.record import recording
from saccade.models.tagger import TagNetwork
from saccade.tasks.base import PortablePass

Score = Callable[[Sequence[Sequence[str]], Sequence[Sequence[str]]], Mapping[str, float]]
Tags = tuple[str, ...]


@final
@dataclass
class PortableTagger(PortablePass):
    """A tagger's network; its answers are the tags of a sentence, as the model spells them."""

    network: TagNetwork
    lexicon: Lexicon
    read_together: Callable[[Sequence[TaggedSentence]], Iterator[Document]]
    score_tags: Score  # of right tags and found ones

    @property
    def facts(self) -> Mapping[str, Any]:
        limits = {"longest_word": LONGEST_WORD, "longest_shape": LONGEST_SHAPE}
        reads = {"reads_documents": self.network.places is not None}
        return {"answers": "tags", **json.loads(self.lexicon.to_json()), **limits, **reads}

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        return {}

    def batches(self, examples: Sequence[TaggedSentence], size: int) -> Iterator[tuple[TaggerInput, list[int]]]:
        documents = list(self.read_together(examples))
        first = 0
        for start in range(0, len(documents), size):
            part = documents[start : start + size]
            count = sum(map(len, part))
            yield self.lexicon.tokens(part), list(range(first, first + count))
            first += count

    @torch.no_grad()
    def compute(self, batch: TaggerInput) -> Mapping[str, Tensor]:
        with recording(self.network, kinds=("encoder",)) as record:
            emission_BTV = self.network(batch)
        tag_BT, score_B = self.network.chain.best(emission_BTV, batch.length_B)
        log_probability_B = score_B - self.network.chain.log_partition(emission_BTV, batch.length_B)
        told = {"emission": emission_BTV, "tags": tag_BT, "log_probability": log_probability_B}
        return told | ({"encoder_attention": record.weights("encoder").transpose(0, 1)} if record.kinds else {})

    def answer(self, batch: TaggerInput, told: Mapping[str, Tensor]) -> list[Tags]:
        rows = zip(told["tags"].tolist(), batch.length_B.tolist(), strict=True)
        return [tuple(self.lexicon.tags[index] for index in row[:length]) for row, length in rows]

    @torch.no_grad()
    def weigh(self, batch: TaggerInput, told: Mapping[str, Tensor], answers: Sequence[Tags]) -> list[float]:
        tag_BT = self.lexicon.tag_ids(answers)
        found: list[float] = self.network.chain.log_probability(told["emission"], tag_BT, batch.length_B).tolist()
        return found

    def score(self, examples: Sequence[TaggedSentence], answers: Sequence[Tags]) -> Mapping[str, float]:
        return self.score_tags([one.tags for one in examples], answers)
