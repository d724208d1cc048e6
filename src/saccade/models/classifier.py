"""Text classification: embed, encode and pool the words of a text, and of the texts before it if there is a context.

The words of a document are pooled into sentences, and these into one vector.
"""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from saccade.attention import masks
from saccade.data.labels.windows import TextBatch
from saccade.data.text.tokenizer import UNKNOWN
from saccade.layers.dialogue import Context
from saccade.layers.pooling import Pooling, PoolingResult, WeighedPooling
from saccade.models.text_encoder import TextEncoder
from saccade.ops.dropout import dropout

EMBEDDING_SPREAD = 0.1  # small, so that what a word has learned soon outweighs where it began
NUM_SPEAKERS = 3  # another, the same, not known


class ClassifierDropouts(NamedTuple):
    """The shares of words replaced by <unk>, of embeddings set to 0 and of pooled vectors set to 0."""

    words: float = 0.0
    embeddings: float = 0.0
    vectors: float = 0.0


NO_DROPOUT = ClassifierDropouts()


class ClassifierOutput(NamedTuple):
    """Unnormalised log-probabilities [B, V] of the labels; the pooling's weights [B, r, S] and penalty [B], if any.

    Where texts are documents, the weights are those of the words in each sentence, [U, r, S], and `sentence_weight_BTW`
    are those of the sentences.
    """

    logits_BV: Tensor
    weight_BTS: Tensor | None
    penalty_B: Tensor | None
    sentence_weight_BTW: Tensor | None = None


@final
class DocumentReader(nn.Module):
    """Reads the vectors of a document's sentences and pools them into one (Yang 2016, section 2.2)."""

    def __init__(self, encoder: TextEncoder, pooling: Pooling) -> None:
        super().__init__()
        self.encoder, self.pooling = encoder, pooling
        if isinstance(pooling, WeighedPooling):
            pooling.kind = None  # it weighs sentences: among those of words a recorder would have no place for it

    def forward(self, vector_BWD: Tensor, length_B: Tensor) -> PoolingResult:
        memory_BWD, last_BD = self.encoder(vector_BWD, length_B)
        pooled: PoolingResult = self.pooling(memory_BWD, last_BD, length_B)
        return pooled


@final
class TextClassifier(nn.Module):
    """p(label) = softmax(W [c; u] + b): u is the pooled text, c a vector of it and the texts before it.

    The context never reads a text that comes later. With a `document` reader, a window is a document, its texts are the
    sentences, and p(label) = softmax(W d + b) with the document's vector d (Yang 2016, section 2.2).
    """

    def __init__(
        self,
        *,
        vocabulary: int,
        embedding_width: int,
        num_labels: int,
        encoder: TextEncoder,
        pooling: Pooling,
        context: Context | None = None,
        document: DocumentReader | None = None,
        dropouts: ClassifierDropouts = NO_DROPOUT,
    ) -> None:
        super().__init__()
        assert context is None or document is None
        self.embedding = nn.Embedding(vocabulary, embedding_width)
        nn.init.normal_(self.embedding.weight, std=EMBEDDING_SPREAD)
        self.encoder, self.pooling, self.context, self.dropouts = encoder, pooling, context, dropouts
        self.document = document
        width = pooling.width if document is None else document.pooling.width
        self.speaker = None if context is None else nn.Embedding(NUM_SPEAKERS, width)
        if self.speaker is not None:
            nn.init.zeros_(self.speaker.weight)  # a speaker that is never known adds nothing
        self.output = nn.Linear(width + (0 if context is None else context.width), num_labels)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, batch: TextBatch) -> ClassifierOutput:
        """Encode every text once, then gather the vectors of every window."""
        vector_UD, weight_UTS, penalty_U = self.read(batch.ids_US, batch.length_U)
        if self.document is not None:
            return self._read_documents(self.document, batch, PoolingResult(vector_UD, weight_UTS, penalty_U))
        own_B = batch.window_BW.take_along_dim(batch.window_length_B[:, None] - 1, 1).squeeze(1)
        vector_BD = vector_UD[own_B]
        if self.context is not None and self.speaker is not None:
            dropped_UD = self._drop(vector_UD, self.dropouts.vectors)
            window_BWD = dropped_UD[batch.window_BW] + self.speaker(batch.speaker_BW)
            vector_BD = torch.cat([self.context(window_BWD, batch.window_length_B), vector_BD], -1)
        logits_BV = self.output(self._drop(vector_BD, self.dropouts.vectors))
        return ClassifierOutput(logits_BV, _rows(weight_UTS, own_B), _rows(penalty_U, own_B))

    def _read_documents(self, reader: DocumentReader, batch: TextBatch, sentences: PoolingResult) -> ClassifierOutput:
        vector_BWD = self._drop(sentences.vector_BD, self.dropouts.vectors)[batch.window_BW]
        vector_BD, weight_BTW, penalty_B = reader(vector_BWD, batch.window_length_B)
        if sentences.penalty_B is not None:
            real_BW = masks.padding(batch.window_length_B).dense(1, vector_BWD.shape[1], device=vector_BWD.device)[:, 0]
            each_BW = torch.where(real_BW, sentences.penalty_B[batch.window_BW], 0)
            mean_B = each_BW.sum(1) / batch.window_length_B
            penalty_B = mean_B if penalty_B is None else penalty_B + mean_B
        logits_BV = self.output(self._drop(vector_BD, self.dropouts.vectors))
        return ClassifierOutput(logits_BV, sentences.weight_BTS, penalty_B, weight_BTW)

    def read(self, ids_US: Tensor, length_U: Tensor) -> PoolingResult:
        """Pool each text by itself into a vector."""
        if self.training and self.dropouts.words:
            dropped_US = torch.rand(ids_US.shape, device=ids_US.device) < self.dropouts.words
            ids_US = ids_US.masked_fill(dropped_US, UNKNOWN)
        x_USD = self._drop(self.embedding(ids_US), self.dropouts.embeddings)
        memory_USD, last_UD = self.encoder(x_USD, length_U)
        return self.pooling(memory_USD, last_UD, length_U)

    def _drop(self, x: Tensor, share: float) -> Tensor:
        return dropout(x, share, self.training)


def _rows(tensor: Tensor | None, index_B: Tensor) -> Tensor | None:
    return None if tensor is None else tensor[index_B]
