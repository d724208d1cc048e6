"""The attention of an RNN decoder: any score, normaliser and scope over the vectors of its source."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar, final

import torch
from torch import Tensor, nn

from saccade.attention import NORMALIZERS, SCORES, attend, masks
from saccade.attention.scores import Score
from saccade.ops.precision import compute_dtype
from saccade.ops.shared_gradients import Gradients, Note, NotedIdentity, anchor

SCOPES = ("global", "local_m", "local_p")
Module = TypeVar("Module", bound=nn.Module)


class Source(NamedTuple):
    """The memory of a decoder's attention: the encoder's vectors, and what the score computed from them."""

    value_BSD: Tensor
    memory_BSD: Tensor
    length_B: Tensor

    def rows(self, index_N: Tensor) -> Source:
        return Source(*(tensor[index_N] for tensor in self))


class AttentionOptions(NamedTuple):
    """Settings of a decoder's attention to its source."""

    score: str = "additive"
    normalizer: str = "softmax"
    scope: str = "global"
    radius: int = 10  # of the local scopes (Luong 2015, section 4.1)


ADDITIVE = AttentionOptions()


@final
class SourceAttention(nn.Module):
    """c_t = sum_s a_ts h_s with any score, normaliser and scope; local scopes as in Luong 2015, section 3.2."""

    def __init__(self, width: int, options: AttentionOptions, *, kind: str | None = "cross") -> None:
        super().__init__()
        self.kind = kind
        if options.scope not in SCOPES:
            raise ValueError(f"scope: {options.scope!r} given; allowed: {', '.join(SCOPES)}")
        self.score: Score = SCORES[options.score](width, width)
        self.normalizer = NORMALIZERS[options.normalizer]()
        self.radius = options.radius if options.scope == "local_m" else None
        self.local = masks.LocalP(width, radius=options.radius) if options.scope == "local_p" else None

    def forward(
        self, query_BTD: Tensor, source: Source, first: int, *, return_weights: bool = False
    ) -> Tensor | tuple[Tensor, ...]:
        """Return contexts [B, T, D] of the queries from step `first` on; with `return_weights` also [B, T, S]."""
        mask = masks.padding(source.length_B)
        if self.radius is not None:
            mask = mask & masks.local_m(self.radius, step=first)
        if self.local is not None:
            mask = mask & self.local(query_BTD, source.length_B)
        return attend(
            query_BTD,
            None,
            source.value_BSD,
            memory=source.memory_BSD,
            score=self.score,
            normalizer=self.normalizer,
            mask=mask,
            return_weights=return_weights,
        )

    def value_norms(self, _query_BTD: Tensor, source: Source, *_: Any, **__: Any) -> Tensor:
        """Return the lengths of the encoder's vectors, [B, 1, S]."""
        return source.value_BSD.norm(dim=-1).unsqueeze(1)


@final
class _Steps:
    """The steps of a loop: the query of each, and the gradients of its context and its weights."""

    def __init__(self, aligner: SourceAttention, source: Source, first: int) -> None:
        self.aligner, self.source, self.first = aligner, source, first
        self.notes: list[Note] = []
        kind = source.value_BSD.device.type
        self.autocast = partial(torch.autocast, kind, source.value_BSD.dtype, torch.is_autocast_enabled(kind))

    def settle(self) -> Gradients:
        """Attend for all queries at once and return the gradients of values, memory and the aligner's parameters."""
        value, memory = (tensor.detach().requires_grad_() for tensor in self.source[:2])
        leaves = [value, memory, *self.aligner.parameters()]
        context_grad, weight_grad = (_join_gradients([note.flowed[place] for note in self.notes]) for place in range(2))
        with torch.enable_grad(), self.autocast():
            found = self.aligner.forward(  # not by a call: hooks have recorded these steps already
                torch.cat([note.read for note in self.notes], 1),
                Source(value, memory, self.source.length_B),
                self.first,
                return_weights=weight_grad is not None,
            )
        for note in self.notes:
            note.flowed[:] = None, None
        pairs = zip(found if isinstance(found, tuple) else (found,), (context_grad, weight_grad), strict=False)
        answers, flowed = zip(*((answer, grad) for answer, grad in pairs if grad is not None), strict=True)
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        grads = dict(zip(wanted, torch.autograd.grad(answers, wanted, flowed, allow_unused=True), strict=True))
        return tuple(grads.get(leaf) for leaf in leaves)


@final
class StepwiseAttention:
    """An attention for a loop in which each step needs the context of the step before.

    The backward pass of a step computes the gradient of its query alone. The gradients of the source and of the
    aligner's parameters are computed when all steps are done, in one pass over all queries.
    """

    def __init__(self, aligner: SourceAttention, source: Source, first: int) -> None:
        dtype = compute_dtype(source.value_BSD)
        value_BSD, memory_BSD = source.value_BSD.to(dtype), source.memory_BSD.to(dtype)
        self._frozen, self._num_steps = _freeze(aligner), first
        self._source = Source(value_BSD.detach(), memory_BSD.detach(), source.length_B)
        self._ledger = _Steps(aligner, self._source, first)
        self._token = anchor(self._ledger, value_BSD, memory_BSD, *aligner.parameters())

    def __call__(self, query_BD: Tensor) -> Tensor:
        """Return the context of the next step, [B, D]."""
        (context_B1D,) = self._step(query_BD.unsqueeze(1), return_weights=False)
        return context_B1D.squeeze(1)

    def with_weights(self, query_BD: Tensor) -> tuple[Tensor, Tensor]:
        """Return the context of the next step, [B, D], and its weights, [B, 1, S]."""
        context_B1D, weight_B1S = self._step(query_BD.unsqueeze(1), return_weights=True)
        return context_B1D.squeeze(1), weight_B1S

    def _step(self, query_B1D: Tensor, *, return_weights: bool) -> Sequence[Tensor]:
        found = self._frozen(query_B1D, self._source, self._num_steps, return_weights=return_weights)
        answers = found if return_weights else (found,)
        self._num_steps += 1
        if self._token is None:
            return answers
        note = Note(query_B1D.detach(), [None, None])
        self._ledger.notes.append(note)
        return [NotedIdentity.apply(note, place, self._token, answer) for place, answer in enumerate(answers)]


def _join_gradients(grads: list[Tensor | None]) -> Tensor | None:
    """Join the gradients [B, 1, D] of steps; a step without one gets zeros."""
    known = [grad for grad in grads if grad is not None]
    return torch.cat([torch.zeros_like(known[0]) if grad is None else grad for grad in grads], 1) if known else None


def _freeze(module: Module) -> Module:
    """Copy a module with its hooks; the parameters are constants, in the precision that autocast would choose."""
    twin = copy.copy(module)
    parts = {name: part if part is None else _freeze(part) for name, part in module._modules.items()}
    kept = {name: None if p is None else p.detach() for name, p in module._parameters.items()}
    if isinstance(module, Score):
        kept = {name: p.to(compute_dtype(p)) if p is not None and p.dim() else p for name, p in kept.items()}
    twin.__dict__ |= {"_modules": parts, "_parameters": kept}
    return twin
