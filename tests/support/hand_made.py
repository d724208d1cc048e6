"""Models whose answers are known by hand, for tests of what is said about them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from saccade.data.labels.labelled import LabelColumns, Spelling
from saccade.data.text.tokenizer import SPECIAL, Vocabulary
from saccade.inspection.trust.evidence import TrustCase
from saccade.layers.pooling import AttentionPooling, Pooling
from saccade.models.classifier import TextClassifier
from saccade.models.text_encoder import BagEncoder
from saccade.tasks.classify.predictor import Classifier

WORDS = ["the", "cat", "sat", "on", "a", "mat", "happy"]
KEY = len(SPECIAL) + WORDS.index("happy")
WIDTH = 3


class GivenAttention(nn.Module):
    """An attention of a kind whose weights are given: what it is called with is what is recorded."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, weights: Tensor) -> tuple[None, Tensor]:
        return None, weights


def bag(*, sharpness: float, pooling: Pooling | None = None) -> TextClassifier:
    """v = sum_s a_s x_s and p(1) = sigmoid(4 v_0): only "happy" has a vector, (1, 0, 0), and scores `sharpness`."""
    pooling = AttentionPooling(WIDTH, score="dot") if pooling is None else pooling
    vocabulary = len(SPECIAL) + len(WORDS)
    network = TextClassifier(
        vocabulary=vocabulary, embedding_width=WIDTH, num_labels=2, encoder=BagEncoder(WIDTH), pooling=pooling
    )
    for parameter in network.parameters():
        nn.init.zeros_(parameter)
    with torch.no_grad():
        network.embedding.weight[KEY, 0] = 1.0
        network.output.weight[1, 0] = 4.0
        if isinstance(pooling, AttentionPooling):
            pooling.query_1D[0, 0] = sharpness
    return network.eval()


def case(text: str, answer: int = 1) -> TrustCase:
    words = text.split()
    return TrustCase(words, [len(SPECIAL) + WORDS.index(word) for word in words], list(range(len(words))), [answer])


def classifier(network: TextClassifier) -> Classifier:
    tokenizer = Vocabulary([*SPECIAL, *WORDS], "words")
    return Classifier(network, tokenizer, ["no", "yes"], Spelling(), LabelColumns())
