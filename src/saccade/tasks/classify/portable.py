"""A classifier for other engines: what it reads, what it tells, and how its answers are scored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.data.labels.documents import ReadingLimits, encode_inputs
from saccade.data.labels.labelled import LabelColumns, Spelling, Text, split_labels
from saccade.data.labels.windows import TextBatch
from saccade.data.text.tokenizer import Tokenizer
from saccade.inspection.draw.confusion import Confusion, LabelCounts
from saccade.inspection.record import recording
from saccade.models.classifier import TextClassifier
from saccade.tasks.base import PortablePass

Labels = tuple[str, ...]  # one, or those of several that are given


@final
@dataclass
class PortableClassifier(PortablePass):
    """A classifier's network; its answers are tuples of labels, of one unless there are several at once."""

    network: TextClassifier
    tokenizer: Tokenizer
    labels: list[str]
    spelling: Spelling
    columns: LabelColumns
    limits: ReadingLimits
    threshold: float

    @property
    def facts(self) -> Mapping[str, Any]:
        several = {} if self.columns.separator is None else {"threshold": self.threshold}
        return {
            "answers": "labels",
            "labels": self.labels,
            **several,
            "context": self.limits.context,
            "max_length": self.limits.max_length,
            **({} if self.limits.max_sentences is None else {"max_sentences": self.limits.max_sentences}),
            **self.spelling._asdict(),
        }

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        return {"source": self.tokenizer}

    def batches(self, examples: Sequence[Text], size: int) -> Iterator[tuple[TextBatch, list[int]]]:
        encoded = encode_inputs(
            examples,
            lambda text: self.tokenizer.encode(self.spelling(text)),
            self.labels,
            self.limits,
            self.columns.separator,
        )
        return encoded.batches(size)

    @torch.no_grad()
    def compute(self, batch: TextBatch) -> Mapping[str, Tensor]:
        with recording(self.network, kinds=("encoder",)) as record:
            judged = self.network(batch)
        told = {"logits": judged.logits_BV}
        if judged.weight_BTS is not None:
            told["attention"] = judged.weight_BTS
        if judged.sentence_weight_BTW is not None:
            told["sentence_attention"] = judged.sentence_weight_BTW
        if "encoder" in record.kinds:
            told["encoder_attention"] = record.weights("encoder").transpose(0, 1)
        return told

    def answer(self, batch: TextBatch, told: Mapping[str, Tensor]) -> list[Labels]:
        del batch
        if self.columns.separator is None:
            return [(self.labels[index],) for index in told["logits"].argmax(-1).tolist()]
        rows = (told["logits"].sigmoid() >= self.threshold).tolist()
        return [tuple(label for label, has in zip(self.labels, row, strict=True) if has) for row in rows]

    def weigh(self, batch: TextBatch, told: Mapping[str, Tensor], answers: Sequence[Labels]) -> list[float]:
        del batch
        chosen_BV = torch.tensor([[label in answer for label in self.labels] for answer in answers])
        if self.columns.separator is None:
            shares: list[float] = told["logits"].log_softmax(-1)[chosen_BV].tolist()
            return shares
        sign_BV = chosen_BV.float() * 2 - 1
        return F.logsigmoid(told["logits"] * sign_BV).sum(-1).tolist()

    def score(self, examples: Sequence[Text], answers: Sequence[Labels]) -> Mapping[str, float]:
        true = [split_labels(text.label, self.columns.separator) for text in examples]
        if self.columns.separator is None:
            counted = Confusion.of([label for (label,) in true], [label for (label,) in answers])
            return {"accuracy": counted.accuracy, "macro_f1": counted.macro_f1}
        several = LabelCounts.of(true, answers)
        return {"micro_f1": several.micro_f1, "macro_f1": several.macro_f1, "accuracy": several.accuracy}
