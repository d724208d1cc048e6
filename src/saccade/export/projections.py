"""Multi-head attention as other engines have it: scaled dot products of projections, into which other scores fold."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from saccade.attention import MultiHeadAttention, Score
from saccade.attention.scores import SCORES, Concat, Dot, General, Mean, ReducedRank, ScaledDot
from saccade.models.transformer import BlockSizes


class Affine(NamedTuple):
    """y = W x + b; W: [out, in]."""

    weight: Tensor
    bias: Tensor

    def pick(self, row: Tensor) -> Affine:
        """Return these outputs, in this order."""
        return Affine(self.weight[row], self.bias[row])


class Projections(NamedTuple):
    """The four projections of an attention whose score is q·k / sqrt(head width)."""

    query: Affine
    key: Affine
    value: Affine
    output: Affine
    num_heads: int

    def put_first(self, head: int) -> Projections:
        """Return the same attention with another order of heads."""
        width = len(self.query.bias)
        order = [head, *(other for other in range(self.num_heads) if other != head)]
        row = torch.arange(width).view(self.num_heads, -1)[order].flatten()
        query, key, value = (part.pick(row) for part in (self.query, self.key, self.value))
        return Projections(query, key, value, Affine(self.output.weight[:, row], self.output.bias), self.num_heads)


Heads = tuple[Tensor, Tensor]  # weight [H, K, D] and bias [H, K] of queries or keys
Fold = Callable[[nn.Module, Heads, Heads], tuple[Heads, Heads]]


def _unscale(query: Heads) -> Heads:
    """Multiply by sqrt(K), by which the engine divides."""
    scale = math.sqrt(query[1].shape[-1])
    return query[0] * scale, query[1] * scale


def _fold_dot(score: nn.Module, query: Heads, key: Heads) -> tuple[Heads, Heads]:
    del score
    return _unscale(query), key


def _fold_matrix(matrix: Tensor, query: Heads, key: Heads) -> tuple[Heads, Heads]:
    """Put M into the keys' projection: qᵀ M k = q·(M k)."""
    return _unscale(query), (matrix @ key[0], (matrix @ key[1][..., None])[..., 0])


def _fold_general(score: nn.Module, query: Heads, key: Heads) -> tuple[Heads, Heads]:
    return _fold_matrix(cast(General, score).W.double().squeeze(1), query, key)


def _fold_reduced_rank(score: nn.Module, query: Heads, key: Heads) -> tuple[Heads, Heads]:
    low = cast(ReducedRank, score)
    return _fold_matrix((low.U.mT.double() @ low.V.double()).squeeze(1), query, key)


def _fold_mean(score: nn.Module, query: Heads, key: Heads) -> tuple[Heads, Heads]:
    """Return zeros for the query, so that all scores are 0."""
    del score
    return (torch.zeros_like(query[0]), torch.zeros_like(query[1])), key


def _fold_concat(score: nn.Module, query: Heads, key: Heads) -> tuple[Heads, Heads]:
    """Return w for the query, whose own part cancels in the softmax."""
    w_HK = cast(Concat, score).w.double().squeeze(1)[:, query[1].shape[-1] :]
    return _unscale((torch.zeros_like(query[0]), w_HK)), key


FOLDS: dict[type[Score], Fold] = {
    ScaledDot: lambda _, query, key: (query, key),
    Dot: _fold_dot,
    General: _fold_general,
    ReducedRank: _fold_reduced_rank,
    Mean: _fold_mean,
    Concat: _fold_concat,
}
TURNED = (ScaledDot, Dot, Mean)  # they fold although queries and keys are turned after their projection (rotary)


def refuse_sizes(sizes: BlockSizes) -> str | None:
    """Say what of these attentions is no softmax of scaled dot products; None if nothing is."""
    score = SCORES[sizes.score]
    if score not in FOLDS:
        return f"model.score: {sizes.score} is no dot product"
    if sizes.positions == "rotary" and score not in TURNED:
        return f"model.score: {sizes.score} with rotary positions is no dot product of projections"
    if sizes.normalizer != "softmax":
        return f"model.normalizer: {sizes.normalizer} is no softmax"
    if sizes.window is not None:
        return f"model.window: {sizes.window} (it attends to all steps)"
    return None


@torch.no_grad()
def read_projections(attention: MultiHeadAttention) -> Projections:
    """Return an attention's projections, its score folded into them (in float64)."""
    heads = attention.num_heads
    query, key = (_split(part, heads) for part in (attention.query, attention.key))
    query, key = FOLDS[type(cast(Score, attention.score))](cast(nn.Module, attention.score), query, key)
    return Projections(_join(query), _join(key), read_affine(attention.value), read_affine(attention.output), heads)


def read_affine(linear: nn.Linear) -> Affine:
    """Return the weights of a linear layer; a missing bias is 0."""
    weight = linear.weight.detach().float()
    bias = cast(Tensor | None, linear.bias)
    return Affine(weight, weight.new_zeros(len(weight)) if bias is None else bias.detach().float())


def _split(linear: nn.Linear, heads: int) -> Heads:
    return linear.weight.double().unflatten(0, (heads, -1)), linear.bias.double().unflatten(0, (heads, -1))


def _join(part: Heads) -> Affine:
    weight, bias = part
    return Affine(weight.flatten(0, 1).float(), bias.flatten().float())
