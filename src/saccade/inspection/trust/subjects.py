"""Models whose attention is put to the test, all asked in the same way: what is p(answer | text), and who weighed what.

A subject's answers are ids [N, T]: the output that a model wrote, </s> included, or a label (T = 1).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, cast, final

import torch
from torch import Tensor, nn

from saccade.data.labels.windows import NO_LABEL, UNKNOWN_SPEAKER, TextBatch
from saccade.data.text.tokenizer import START
from saccade.errors import UserError
from saccade.layers.pooling import AttentionPooling, StructuredPooling
from saccade.models.classifier import TextClassifier
from saccade.models.seq2seq import PlainDecoder, Seq2Seq
from saccade.models.transformer import DecoderBlock, Transformer


class Subject(Protocol):
    """What the tests ask of a model."""

    attention: list[nn.Module]  # the modules that weigh the text
    num_outputs: int  # V
    device: torch.device

    def logits(
        self, source_NS: Tensor, length_N: Tensor, answer_NT: Tensor, leaves: list[Tensor] | None = None
    ) -> Tensor:
        """Unnormalised log-probabilities [N, T, V] at each step of the answer; `leaves` gets the embeddings [N, S, D].

        A gradient can be taken with respect to these.
        """

    def weights(self, source_NS: Tensor, length_N: Tensor, answer_NT: Tensor) -> Tensor:
        """What each layer and head weighed at each step, [N, L, H, T, S]."""


@final
class WriterSubject:
    """A model that writes, its outputs given: p(y_t | y_<t, x), and its attention to the source."""

    def __init__(self, model: nn.Module) -> None:
        if not isinstance(model, Transformer | Seq2Seq) or not isinstance(model.source, nn.Embedding):
            raise UserError("trust: this model doesn't read words; allowed: text to text (one model), classifiers")
        self._model = model
        self.attention = _cross_attention(model)
        self.num_outputs = model.target.num_embeddings
        self.device = model.target.weight.device

    def logits(
        self, source_NS: Tensor, length_N: Tensor, answer_NT: Tensor, leaves: list[Tensor] | None = None
    ) -> Tensor:
        """With teacher forcing. One table may embed both sides: only the source's vectors are leaves."""
        with _kept(self._model.source, leaves):
            state: Any = self._model.start(source_NS, length_N)
        vectors_NTD, _ = self._model.advance(state, _read(answer_NT))
        return self._model.logits(vectors_NTD)

    def weights(self, source_NS: Tensor, length_N: Tensor, answer_NT: Tensor) -> Tensor:
        """Of the decoder's layers and heads."""
        return self._model.cross_attention(source_NS, length_N, _read(answer_NT))


@final
class ClassifierSubject:
    """A classifier: p(label | text), each text by itself, and what its pooling weighed (r hops are heads)."""

    def __init__(self, network: TextClassifier) -> None:
        pooling = network.pooling
        if not isinstance(pooling, AttentionPooling | StructuredPooling):
            kind = type(pooling).__name__.removesuffix("Pooling").lower()
            raise UserError(
                f"trust: this model pools by {kind}, which learns no weights; allowed: attention, structured"
            )
        self._network = network
        self.attention: list[nn.Module] = [pooling if isinstance(pooling, AttentionPooling) else pooling.attention]
        self.num_outputs = network.output.out_features
        self.device = network.embedding.weight.device

    def logits(
        self, source_NS: Tensor, length_N: Tensor, answer_NT: Tensor, leaves: list[Tensor] | None = None
    ) -> Tensor:
        """Of every label; the answer changes nothing."""
        del answer_NT
        with _kept(self._network.embedding, leaves):
            return self._network(_alone(source_NS, length_N)).logits_BV.unsqueeze(1)

    def weights(self, source_NS: Tensor, length_N: Tensor, answer_NT: Tensor) -> Tensor:
        """[N, 1, r, 1, S]."""
        del answer_NT
        weight_NrS = self._network(_alone(source_NS, length_N)).weight_BTS
        return weight_NrS[:, None, :, None]


def _cross_attention(model: Transformer | Seq2Seq) -> list[nn.Module]:
    if isinstance(model, Transformer):
        return [cast(DecoderBlock, block).cross for block in model.decoder]
    if isinstance(model.decoder, PlainDecoder):
        raise UserError("trust: this model has no attention; it reads the source into one vector")
    return [model.decoder.aligner]


def _read(answer_NT: Tensor) -> Tensor:
    """What the decoder has read when it writes each id."""
    return torch.cat([torch.full_like(answer_NT[:, :1], START), answer_NT[:, :-1]], 1)


def _alone(ids_NS: Tensor, length_N: Tensor) -> TextBatch:
    """Texts without anything said before them."""
    row_N = torch.arange(len(ids_NS), device=ids_NS.device)
    speaker_N1 = torch.full_like(row_N, UNKNOWN_SPEAKER)[:, None]
    label_N = torch.full_like(row_N, NO_LABEL)
    return TextBatch(ids_NS, length_N, row_N[:, None], torch.ones_like(row_N), speaker_N1, label_N)


@contextmanager
def _kept(embedding: nn.Module, leaves: list[Tensor] | None) -> Iterator[None]:
    """Inside the block the vectors that the embedding gives are leaves, and are kept; no hook stays."""

    def keep(module: nn.Module, arguments: object, found: Tensor) -> Tensor | None:
        del module, arguments
        if leaves is None:
            return None
        leaves.append(found.detach().requires_grad_())
        return leaves[-1]

    handle = embedding.register_forward_hook(keep)
    try:
        yield
    finally:
        handle.remove()
