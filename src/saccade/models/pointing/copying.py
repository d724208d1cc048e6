"""A model that writes words of its vocabulary or copies them from its source (See 2017, section 2.2).

p(y) = g p_word(y) + (1 - g) sum_{s: x_s = y} a_s: the attention of a last layer over the source is itself the
distribution of what is copied. Any encoder-decoder may be below it.

A word that the vocabulary doesn't have is copied too: ids from V on are those of the source's own unknown words
(`data.text.beside`). The network below reads such a word as <unk>.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, cast, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention import KeyValue, MultiHeadAttention, masks
from saccade.data.text.tokenizer import UNKNOWN
from saccade.ops.precision import widen

NEVER = -1e4  # the logarithm of what isn't there, whose gradient is a number still


class CopyInputs(NamedTuple):
    """Inputs of a copying output layer for some steps: vectors for the vocabulary, weights for the words of the source.

    `gate_BT` is the logit of g.
    """

    vectors_BTD: Tensor
    gate_BT: Tensor
    weight_BTS: Tensor


class CopyState(NamedTuple):
    """A copying model between two steps: the network below it, and the source as its pointer sees it."""

    below: Any
    memory: KeyValue
    source_BS: Tensor
    source_length_B: Tensor
    covered_BS: Tensor  # how much of each place was pointed at

    def rows(self, index_N: Tensor) -> CopyState:
        """Return the state of other rows: a beam that was reordered, or a batch that shrank."""
        tensors = (self.source_BS, self.source_length_B, self.covered_BS)
        return CopyState(self.below.rows(index_N), self.memory.rows(index_N), *(one[index_N] for one in tensors))


class EncoderDecoder(Protocol):
    """The network below: a `Stepper` that also tells its encoder's vectors."""

    source: nn.Embedding
    target: nn.Embedding

    def read_source(self, source_BS: Tensor, source_length_B: Tensor) -> tuple[Any, Tensor]:
        """Return the state before the first step, and the encoder's vectors, [B, S, D]."""

    def advance(self, state: Any, read_BT: Tensor) -> tuple[Tensor, Any]:
        """Read some ids and return a vector for each, and the state after the last."""

    def logits(self, vectors: Tensor) -> Tensor:
        """Return the unnormalised log-probabilities of the next id."""


@final
class CopyingModel(nn.Module):
    """An encoder-decoder with a pointer on top: one more attention to the source, with one head.

    What it reads joins the vector that writes the word; its weights are what would be copied. With `covers`, the score
    of a place changes by w times the weight that it had so far (See 2017, section 2.3).
    """

    def __init__(self, below: nn.Module, *, width: int, source_width: int, score: str, covers: bool = False) -> None:
        super().__init__()
        self.below = below
        self.pointer = MultiHeadAttention(width, 1, key_width=source_width, score=score, kind="copy")
        self.gate = nn.Linear(2 * width, 1)
        self.coverage = nn.Parameter(torch.zeros(())) if covers else None

    @property
    def source(self) -> nn.Embedding:
        return self._below.source

    @property
    def target(self) -> nn.Embedding:
        return self._below.target

    def start(self, source_BS: Tensor, source_length_B: Tensor) -> CopyState:
        """Read the source and return the state before the first step."""
        below, memory_BSD = self._below.read_source(self._replace_unknown(source_BS, self.source), source_length_B)
        covered_BS = memory_BSD.new_zeros(source_BS.shape, dtype=torch.float32)
        return CopyState(below, self.pointer.memory(memory_BSD), source_BS, source_length_B, covered_BS)

    def advance(self, state: CopyState, read_BT: Tensor) -> tuple[Tensor, CopyState]:
        """Read some ids and return the log-probabilities after each, [B, T, V + S], and the state."""
        found, state = self.point(state, read_BT)
        return mix(self._below.logits(found.vectors_BTD), found, state.source_BS), state

    def logits(self, vectors: Tensor) -> Tensor:
        return vectors  # they are log-probabilities already

    def forward(self, source_BS: Tensor, source_length_B: Tensor, read_BT: Tensor) -> CopyInputs:
        """Read a whole target (teacher forcing)."""
        return self.point(self.start(source_BS, source_length_B), read_BT)[0]

    def point(self, state: CopyState, read_BT: Tensor) -> tuple[CopyInputs, CopyState]:
        """Read some ids; return what writes the words after them, and the state."""
        vectors_BTD, below = self._below.advance(state.below, self._replace_unknown(read_BT, self.target))
        context_BTD, weight_BTS = self._point(vectors_BTD, state)
        gate_BT = self.gate(torch.cat([vectors_BTD, context_BTD], -1)).squeeze(-1)
        covered_BS = state.covered_BS + weight_BTS.sum(1)
        found = CopyInputs(vectors_BTD + context_BTD, gate_BT, weight_BTS)
        return found, state._replace(below=below, covered_BS=covered_BS)

    def _point(self, vectors_BTD: Tensor, state: CopyState) -> tuple[Tensor, Tensor]:
        """Return what is read of the source at each step, [B, T, D], and its weights, [B, T, S]."""
        if self.coverage is None:
            context_BTD, weight_BHTS = self._attend(vectors_BTD, state, None)
            return context_BTD, widen(weight_BHTS.squeeze(1))
        contexts, weights, covered_BS = list[Tensor](), list[Tensor](), state.covered_BS
        for vector_B1D in vectors_BTD.split(1, 1):  # a step depends on where the steps before have pointed
            bias_BHTS = (self.coverage * covered_BS)[:, None, None].to(vectors_BTD.dtype)
            context_B1D, weight_BHTS = self._attend(vector_B1D, state, bias_BHTS)
            contexts.append(context_B1D)
            weights.append(widen(weight_BHTS.squeeze(1)))
            covered_BS = covered_BS + weights[-1].squeeze(1)
        return torch.cat(contexts, 1), torch.cat(weights, 1)

    def _attend(self, vectors_BTD: Tensor, state: CopyState, bias_BHTS: Tensor | None) -> tuple[Tensor, Tensor]:
        mask = masks.padding(state.source_length_B)
        found = self.pointer(vectors_BTD, memory=state.memory, mask=mask, bias=bias_BHTS, return_weights=True)
        return cast(tuple[Tensor, Tensor], found)

    @staticmethod
    def _replace_unknown(ids: Tensor, table: nn.Embedding) -> Tensor:
        """Return ids as the network below reads them."""
        return ids.masked_fill(ids >= table.num_embeddings, UNKNOWN)

    @property
    def _below(self) -> EncoderDecoder:
        return cast(EncoderDecoder, self.below)


def mix(logits_BTV: Tensor, found: CopyInputs, source_BS: Tensor) -> Tensor:
    """Return log (g p_word + (1 - g) a) of every id, [B, T, V + S]: a source has no more unknown words than places."""
    size, more = logits_BTV.shape[-1], source_BS.shape[1]
    gate_BT1 = widen(found.gate_BT).unsqueeze(-1)
    word_BTV = F.logsigmoid(gate_BT1) + widen(logits_BTV).log_softmax(-1)
    word_BTV = F.pad(word_BTV, (0, more), value=NEVER)
    place_BTS = source_BS.unsqueeze(1).expand_as(found.weight_BTS)
    mass_BTV = torch.zeros_like(word_BTV).scatter_add(-1, place_BTS, found.weight_BTS.to(word_BTV.dtype))
    copied_BTV = F.logsigmoid(-gate_BT1) + log_or_never(mass_BTV)
    absent_BTV = (mass_BTV == 0) & (torch.arange(size + more, device=source_BS.device) >= size)
    return torch.logaddexp(word_BTV, copied_BTV).masked_fill(absent_BTV, -torch.inf)


def log_or_never(share: Tensor) -> Tensor:
    """Return log x, and a very small number for 0."""
    is_there = share > 0
    return share.where(is_there, 1.0).log().masked_fill(~is_there, NEVER)
