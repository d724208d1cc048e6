"""Models whose attention is tested, behind one protocol: it gives p(answer | text) and the attention weights.

A subject's answers are ids [N, T]: the output that a model wrote, </s> included, or a label (T = 1).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, cast, final

import torch
from torch import Tensor, nn

from saccade.data.labels.windows import NO_LABEL, UNKNOWN_SPEAKER, TextBatch
from saccade.data.text.tokenizer import END, START, UNKNOWN
from saccade.errors import UserError
from saccade.inspection.record import cross_weights, find_attention, recording


class Subject(Protocol):
    """A model that can be tested."""

    attention: list[nn.Module]  # the modules that weigh the text
    num_outputs: int  # V
    device: torch.device
    unknown: int | None  # the id that stands for an erased word, if there is one
    end: int  # what is read where nothing is left

    def logits(
        self, source_NS: Tensor, length_N: Tensor, answer_NT: Tensor, leaves: list[Tensor] | None = None
    ) -> Tensor:
        """Return unnormalised log-probabilities [N, T, V] at each step of the answer.

        The embeddings [N, S, D] are appended to `leaves`; a gradient can be taken with respect to them.
        """

    def weights(self, source_NS: Tensor, length_N: Tensor, answer_NT: Tensor) -> Tensor:
        """Return the weights of each layer and head at each step, [N, L, H, T, S]."""


class TextToText(Protocol):
    """A model that reads ids and writes ids, such as a Transformer."""

    source: nn.Embedding
    target: nn.Embedding

    def start(self, source_BS: Tensor, source_length_B: Tensor) -> Any:
        """Read the source and return the state before the first step."""

    def advance(self, state: Any, read_BT: Tensor) -> tuple[Tensor, Any]:
        """Read some ids of an output and return a vector for each."""

    def logits(self, vectors: Tensor) -> Tensor:
        """Return the unnormalised log-probabilities of the next id."""


class TextToLabel(Protocol):
    """A model that reads ids, pools their vectors and gives each label a logit."""

    embedding: nn.Embedding
    pooling: nn.Module
    output: nn.Linear

    def __call__(self, batch: TextBatch) -> Any:
        """Return a tuple with `logits_BV`."""


@final
class WriterSubject:
    """A model that writes, its outputs given: p(y_t | y_<t, x), and its attention to the source."""

    unknown: int | None = UNKNOWN
    end = END

    def __init__(self, model: nn.Module) -> None:
        if not isinstance(getattr(model, "source", None), nn.Embedding):
            raise UserError("trust: this model doesn't read words; allowed: text to text (one model), classifiers")
        self.attention = list(find_attention(model, ("cross",)).values())
        if not self.attention:
            raise UserError("trust: this model has no attention; it reads the source into one vector")
        self._module, self._model = model, cast(TextToText, model)
        self.num_outputs = self._model.target.num_embeddings
        self.device = self._model.target.weight.device

    def logits(
        self, source_NS: Tensor, length_N: Tensor, answer_NT: Tensor, leaves: list[Tensor] | None = None
    ) -> Tensor:
        with keep_embeddings(self._model.source, leaves):
            state = self._model.start(source_NS, length_N)  # one table may embed both sides: only the source is kept
        vectors_NTD, _ = self._model.advance(state, _shift_right(answer_NT))
        return self._model.logits(vectors_NTD)

    def weights(self, source_NS: Tensor, length_N: Tensor, answer_NT: Tensor) -> Tensor:
        return cross_weights(self._module, source_NS, length_N, _shift_right(answer_NT))


@final
class ClassifierSubject:
    """A classifier: p(label | text), each text by itself, and the weights of its pooling (r hops are heads)."""

    unknown: int | None = UNKNOWN
    end = END

    def __init__(self, network: nn.Module) -> None:
        self._module, self._network = network, cast(TextToLabel, network)
        pooling = self._network.pooling
        self.attention = [part for part in pooling.modules() if hasattr(part, "normalizer")]
        if not self.attention:
            kind = type(pooling).__name__.removesuffix("Pooling").lower()
            raise UserError(
                f"trust: this model pools by {kind}, which learns no weights; allowed: attention, structured"
            )
        self.num_outputs = self._network.output.out_features
        self.device = self._network.embedding.weight.device

    def logits(
        self, source_NS: Tensor, length_N: Tensor, answer_NT: Tensor, leaves: list[Tensor] | None = None
    ) -> Tensor:
        del answer_NT  # the logits are those of every label
        with keep_embeddings(self._network.embedding, leaves):
            logits_NV: Tensor = self._network(_make_batch(source_NS, length_N)).logits_BV
        return logits_NV.unsqueeze(1)

    def weights(self, source_NS: Tensor, length_N: Tensor, answer_NT: Tensor) -> Tensor:
        del answer_NT
        with recording(self._module, kinds=("pooling",)) as record:
            self._network(_make_batch(source_NS, length_N))
        return record.weights("pooling").transpose(0, 1)


def _shift_right(answer_NT: Tensor) -> Tensor:
    """Return the ids that the decoder has read when it writes each id."""
    return torch.cat([torch.full_like(answer_NT[:, :1], START), answer_NT[:, :-1]], 1)


def _make_batch(ids_NS: Tensor, length_N: Tensor) -> TextBatch:
    """Make a batch of texts without context."""
    row_N = torch.arange(len(ids_NS), device=ids_NS.device)
    speaker_N1 = torch.full_like(row_N, UNKNOWN_SPEAKER)[:, None]
    label_N = torch.full_like(row_N, NO_LABEL)
    return TextBatch(ids_NS, length_N, row_N[:, None], torch.ones_like(row_N), speaker_N1, label_N)


@contextmanager
def keep_embeddings(embedding: nn.Module, leaves: list[Tensor] | None) -> Iterator[None]:
    """Append the vectors of the embedding's first call to `leaves` inside the block, and remove the hook after it."""

    def keep(module: nn.Module, arguments: object, found: Tensor) -> Tensor | None:
        del module, arguments
        if leaves is None or leaves:
            return None
        leaves.append(found.detach().requires_grad_())
        return leaves[-1]

    handle = embedding.register_forward_hook(keep)
    try:
        yield
    finally:
        handle.remove()
