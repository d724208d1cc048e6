"""End-to-end memory network: a question reads the sentences of a story in hops (Sukhbaatar 2015)."""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from saccade.attention import NORMALIZERS, SCORES, attend, masks
from saccade.attention.normalizers import Hard
from saccade.data.stories import StoryBatch
from saccade.data.text.tokenizer import PAD
from saccade.models.text_encoder import RecurrentTextEncoder
from saccade.ops.dropout import dropout

SPREAD = 0.3  # of the first embeddings: with the paper's 0.1 the softmax is flat for long, which its linear start mends


class MemoryOutput(NamedTuple):
    """Unnormalised log-probabilities [B, V] of the answers, and each hop's weights [B, T, S], the last sentence first.

    T counts the hops.
    """

    logits_BV: Tensor
    weight_BTS: Tensor


@final
class Hop(nn.Module):
    """o = sum_i p_i c_i, p = normalise(score(u, m)): the state u reads the sentences (section 2.1, any score)."""

    kind = "pooling"

    def __init__(self, width: int, *, score: str, normalizer: str) -> None:
        super().__init__()
        self.score = SCORES[score](width, width)
        # the straight-through estimator gives the state a gradient
        self.normalizer = Hard("straight_through") if normalizer == "hard" else NORMALIZERS[normalizer]()

    def forward(self, state_BD: Tensor, key_BSD: Tensor, value_BSD: Tensor, length_B: Tensor) -> tuple[Tensor, Tensor]:
        output_B1D, weight_B1S = attend(
            state_BD.unsqueeze(1),
            key_BSD,
            value_BSD,
            score=self.score,
            normalizer=self.normalizer,
            mask=masks.padding(length_B),
            return_weights=True,
        )
        return output_B1D.squeeze(1), weight_B1S

    def value_norms(self, state_BD: Tensor, key_BSD: Tensor, value_BSD: Tensor, length_B: Tensor) -> Tensor:
        """Return the lengths of the vectors that are weighed, [B, 1, S]."""
        del state_BD, key_BSD, length_B
        return value_BSD.norm(dim=-1).unsqueeze(1)


@final
class MemoryNetwork(nn.Module):
    """p(answer) = softmax(W u_K), u_{k+1} = u_k + o_k: each hop has a memory of the sentences (sections 2 and 4.1).

    Hop k's keys and values are tables k and k + 1 (adjacent) or 0 and 1 (layerwise, u_{k+1} = H u_k + o_k). A sentence
    is sum_j l_j x_j with weights l for the places of words, and a vector of its own for how long ago it was told. In
    the bag, each table has embeddings of its own, and the question's are the first. A recurrent reader joins what was
    told before and behind a sentence to it (Xiong 2016, section 3.1), and the tables are projections of that.
    """

    def __init__(
        self,
        *,
        vocabulary: int,
        num_answers: int,
        width: int,
        num_hops: int,
        max_sentences: int,
        story: str = "bag",
        tying: str = "adjacent",
        score: str = "dot",
        normalizer: str = "softmax",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.width, self.share = width, dropout
        self.is_layerwise = tying == "layerwise"
        self.num_tables = 2 if self.is_layerwise else num_hops + 1
        is_bag = story == "bag"
        self.reader = None if is_bag else RecurrentTextEncoder(width, width)
        self.tables = None if is_bag else nn.Linear(width, self.num_tables * width, bias=False)
        own_width = self.num_tables * width if is_bag else width
        self.embedding = nn.Embedding(vocabulary, own_width, padding_idx=PAD)
        self.age = nn.Embedding(max_sentences, own_width)
        self.hops = nn.ModuleList(Hop(width, score=score, normalizer=normalizer) for _ in range(num_hops))
        self.state = nn.Linear(width, width, bias=False) if self.is_layerwise else None
        self.output = nn.Linear(width, num_answers, bias=False)
        for weight in (self.embedding.weight, self.age.weight, self.output.weight):
            nn.init.normal_(weight, std=SPREAD)
        with torch.no_grad():
            self.embedding.weight[PAD] = 0

    def forward(self, batch: StoryBatch) -> MemoryOutput:
        vector_UD = dropout(self._embed(batch.ids_UW), self.share, self.training)
        memories = self._remember(vector_UD[batch.sentence_BS], batch.length_B)
        state_BD, weights = vector_UD[batch.question_B, : self.width], list[Tensor]()
        for number, hop in enumerate(self.hops):
            first = 0 if self.is_layerwise else number
            output_BD, weight_B1S = hop(state_BD, memories[first], memories[first + 1], batch.length_B)
            state_BD = output_BD + (state_BD if self.state is None else self.state(state_BD))
            weights.append(weight_B1S)
        return MemoryOutput(self.output(state_BD), torch.cat(weights, 1))

    def _remember(self, vector_BSD: Tensor, length_B: Tensor) -> tuple[Tensor, ...]:
        """Return the memories [B, S, D] of the tables."""
        memory_BSD = vector_BSD + self.age(torch.arange(vector_BSD.shape[1], device=vector_BSD.device))
        if self.reader is not None and self.tables is not None:
            around_BSD, _ = self.reader(memory_BSD, length_B.clamp(min=1))
            memory_BSD = self.tables(memory_BSD + around_BSD)
        return memory_BSD.chunk(self.num_tables, -1)

    def _embed(self, ids_UW: Tensor) -> Tensor:
        """Return sum_j l_kj x_jk, with l_kj = (1 - j/J) - (k/d)(1 - 2j/J) for word j of J and dimension k of d."""
        real_UW, weight = ids_UW != PAD, self.embedding.weight
        count_U1 = real_UW.sum(1, keepdim=True).clamp(min=1)
        place_UW1 = (real_UW.cumsum(1).to(weight.dtype) / count_U1).unsqueeze(-1)
        dimension_D = torch.arange(weight.shape[1], device=weight.device, dtype=weight.dtype) % self.width + 1
        place_UWD = (1 - place_UW1) - dimension_D / self.width * (1 - 2 * place_UW1)
        vector_UD: Tensor = (self.embedding(ids_UW) * place_UWD).sum(1)
        return vector_UD
