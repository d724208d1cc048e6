"""`attend`: score, normalise, average. One function for every attention; `reference` has its equation."""

from __future__ import annotations

import inspect
from typing import Any, Literal, NamedTuple, Protocol, TypedDict, Unpack, overload

import torch
from torch import Tensor

from saccade.attention.call import MaskLike, NormalizerLike, ScoreLike, resolve
from saccade.attention.kernels.select import Choice, select


class AttendOptions(TypedDict, total=False):
    """Keyword arguments of `attend`, without those that change what it returns."""

    score: ScoreLike
    normalizer: NormalizerLike
    mask: MaskLike
    bias: Tensor | None
    memory: Tensor | None
    dropout: float
    backend: str


class ReturnOptions(AttendOptions, total=False):
    """All keyword arguments of `attend`."""

    return_weights: bool
    return_log_probability: bool


@overload
def attend(query: Tensor, key: Tensor | None, value: Tensor, **options: Unpack[AttendOptions]) -> Tensor: ...


@overload
def attend(
    query: Tensor,
    key: Tensor | None,
    value: Tensor,
    *,
    return_weights: Literal[True],
    **options: Unpack[AttendOptions],
) -> tuple[Tensor, Tensor]: ...


@overload
def attend(
    query: Tensor, key: Tensor | None, value: Tensor, **options: Unpack[ReturnOptions]
) -> Tensor | tuple[Tensor, ...]: ...


def attend(
    query: Tensor,
    key: Tensor | None,
    value: Tensor,
    *,
    score: ScoreLike = "scaled_dot",
    normalizer: NormalizerLike = "softmax",
    mask: MaskLike = None,
    backend: str = "auto",
    return_weights: bool = False,
    return_log_probability: bool = False,
    bias: Tensor | None = None,
    memory: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor | tuple[Tensor, ...]:
    """c_t = sum_s a_ts v_s, with a_t = normalise(e_t) over the allowed keys and e_ts = score(q_t, k_s).

    query [..., T, D_q], key [..., S, D_k], value [..., S, D_v] -> [..., T, D_v]; leading axes broadcast.

    score: a name (mean, dot, scaled_dot), a module from `saccade.SCORES`, or any callable (query, key) -> [..., T, S].
    normalizer: a name from `saccade.NORMALIZERS`, a module, or any callable (score, mask) -> weights.
    mask: None, a mask from `saccade.masks`, or a boolean tensor [..., T, S]; True = may attend.
    backend: "auto", or one of `BACKENDS`, which then runs or raises with the reason; see `explain`.
    bias: a tensor added to the scores, [..., T, S]: what a pair's positions alone are worth (Raffel 2020, section 2.1).
    memory: `score.memory(key)` made once by a caller who asks step by step; `key` is then None.
    dropout: the share of weights dropped from the sum, always; pass 0 when evaluating.

    Returns the output; with `return_weights` also the weights [..., T, S], as they were before dropout; with
    `return_log_probability` (hard attention) also the log-probability of each picked key [..., T].
    """
    call = resolve(
        query,
        key,
        value,
        score=score,
        normalizer=normalizer,
        mask=mask,
        bias=bias,
        memory=memory,
        dropout=dropout,
        return_weights=return_weights,
        return_log_probability=return_log_probability,
    )
    attended = select(call, backend).run(call)
    if not (return_weights or return_log_probability):
        return attended.output
    asked = (True, return_weights, return_log_probability)
    results = tuple(part for part, wanted in zip(attended, asked, strict=True) if wanted and part is not None)
    return results if len(results) > 1 else results[0]


def explain(query: Tensor, key: Tensor | None, value: Tensor, **options: Unpack[ReturnOptions]) -> Choice:
    """Tell which implementation `attend` would take for the same arguments, and why; print it."""
    arguments = inspect.signature(attend).bind(query, key, value, **options)
    arguments.apply_defaults()
    backend = arguments.arguments.pop("backend")
    return select(resolve(**arguments.arguments), backend)


def self_attend(x: Tensor, *, mask: MaskLike = None) -> Tensor:
    """y_i = sum_j softmax_j(x_i·x_j) x_j: self-attention with no weights to learn, order-free and shape-free."""
    return attend(x, x, x, score="dot", mask=mask)


class Memory(Protocol):
    """Keys and values that multi-head attention can attend to; queries are [B, G, M, T, K], M to a key/value head."""

    def attend(self, query_BGMTK: Tensor, /, **options: Any) -> Tensor | tuple[Tensor, ...]:
        """Return what `attend` returns for these keys and values."""


class Past(Protocol):
    """A decoder's key/value cache."""

    def append(self, later: KeyValue) -> Memory:
        """Return the past and the steps that follow it, for these steps to attend to."""


class KeyValue(NamedTuple):
    """The keys (as their score reads them) and values of a source, or of a decoder's past, split into heads.

    Both are [B, G, 1, S, .] with G key/value heads. `MultiHeadAttention.memory` makes one; it grows by `append`.
    """

    memory: Tensor
    value: Tensor

    @property
    def num_keys(self) -> int:
        return self.memory.shape[-2]

    def append(self, later: KeyValue) -> KeyValue:
        """Add the steps that follow."""
        memory = torch.cat([self.memory, later.memory], -2)
        return KeyValue(memory, torch.cat([self.value, later.value], -2))

    def rows(self, index: Tensor) -> KeyValue:
        """Select rows of the batch: of a beam that was reordered, or of a batch that shrank."""
        return KeyValue(self.memory[index], self.value[index])

    def attend(self, query_BGMTK: Tensor, /, **options: Any) -> Tensor | tuple[Tensor, ...]:
        """Attend to these keys and values."""
        return attend(query_BGMTK, None, self.value, memory=self.memory, **options)
