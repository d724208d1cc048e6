"""The weights of every attention in any model, while one looks: hooks that are gone afterwards.

with recording(model) as record:
    model(...)
record.weights("cross")        # [L, B, H, T, S]

The model computes what it always computes; its attentions are asked for their weights as well, so what is recorded is
what was used. Outside of the block nothing is different.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast, final

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from saccade.attention.attend import KeyValue
from saccade.attention.multihead import MultiHeadAttention
from saccade.errors import UserError
from saccade.layers.pooling import AttentionPooling, MaxPooling, MeanPooling, StructuredPooling
from saccade.models.seq2seq_attention import SourceAttention

POOLINGS = (AttentionPooling, MaxPooling, MeanPooling, StructuredPooling)
KINDS = ("cross", "encoder", "decoder", "pooling")
Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class AttentionCall(NamedTuple):
    """One call of an attention: its weights [B, H, T, S] and, if asked for, ||a_ts f(x_s)|| (Kobayashi 2020)."""

    weight_BHTS: Tensor
    norm_BHTS: Tensor | None


@final
class Record:
    """What was recorded: for each kind its attentions in the order of the layers, and of each the calls in theirs."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, list[AttentionCall]]] = {}

    def add(self, kind: str, name: str, seen: AttentionCall) -> None:
        """One call more."""
        self._seen.setdefault(kind, {}).setdefault(name, []).append(seen)

    @property
    def kinds(self) -> list[str]:
        """Those that there are."""
        return [kind for kind in KINDS if kind in self._seen]

    def weights(self, kind: str) -> Tensor:
        """[L, B, H, T, S]; the steps of several calls follow each other."""
        return torch.stack([torch.cat([one.weight_BHTS for one in calls], 2) for calls in self._seen[kind].values()])

    def norms(self, kind: str) -> Tensor:
        """||a_ts f(x_s)||, [L, B, H, T, S]; `recording` must have been asked for them."""
        found = []
        for calls in self._seen[kind].values():
            parts = [one.norm_BHTS for one in calls if one.norm_BHTS is not None]
            if len(parts) < len(calls):
                raise ValueError(f"norms: not recorded for kind {kind!r}; ask with recording(model, norms=True)")
            found.append(torch.cat(parts, 2))
        return torch.stack(found)


@contextmanager
def recording(model: nn.Module, *, kinds: Collection[str] = KINDS, norms: bool = False) -> Iterator[Record]:
    """Record every attention of these kinds that is called inside the block; `norms` costs a little more."""
    if unknown := sorted(set(kinds) - set(KINDS)):
        raise UserError(f"kinds: {unknown[0]!r} given; allowed: {', '.join(KINDS)}")
    record, handles = Record(), list[RemovableHandle]()
    try:
        for name, module in model.named_modules():
            if (ear := _ear(name, module, record, norms)) is not None and ear.kind in kinds:
                handles.append(module.register_forward_pre_hook(ear.before, with_kwargs=True))
                handles.append(module.register_forward_hook(ear.after, with_kwargs=True))
        yield record
    finally:
        for handle in handles:
            handle.remove()


def _ear(name: str, module: nn.Module, record: Record, norms: bool) -> _Ear | None:
    """What listens to a module, if it is an attention that people look at."""
    if isinstance(module, MultiHeadAttention):
        part = name.rpartition(".")[2]
        kind = {"own": "decoder", "cross": "cross"}.get(part, "encoder" if name.startswith("encoder") else "")
        return _HeadsEar(kind, name, record, norms) if kind else None
    if isinstance(module, SourceAttention):
        return _AlignerEar("cross", name, record, norms)
    if isinstance(module, POOLINGS):
        return _PoolingEar("pooling", name, record, norms)
    return None


class _Ear:
    """Asks a module for its weights before a call, and takes them from its answer."""

    def __init__(self, kind: str, name: str, record: Record, norms: bool) -> None:
        self.kind, self.name, self.record, self.norms = kind, name, record, norms
        self.asked: list[Any] = []  # by the caller, for each call under way

    def before(self, _module: nn.Module, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """The call as it was."""
        return args, kwargs

    def after(self, _module: nn.Module, _args: Args, _kwargs: Kwargs, _found: Any) -> Any:
        """The answer that the caller waits for."""
        raise NotImplementedError

    def keep(self, weight_BHTS: Tensor, length_BHS: Tensor | None) -> None:
        """Weights, and those times the length of what they weigh."""
        norm_BHTS = None if length_BHS is None else weight_BHTS * length_BHS.unsqueeze(-2)
        self.record.add(self.kind, self.name, AttentionCall(weight_BHTS.detach(), norm_BHTS))


@final
class _HeadsEar(_Ear):
    """Of a multi-head attention."""

    def before(self, _module: nn.Module, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        self.asked.append(kwargs.get("return_weights", False))
        return args, {**kwargs, "return_weights": True}

    def after(self, module: nn.Module, args: Args, kwargs: Kwargs, found: Any) -> Any:
        output, weight_BHTS, *more = found
        length_BHS = _transformed_lengths(module, args, kwargs) if self.norms else None
        self.keep(weight_BHTS, length_BHS)
        if self.asked.pop():
            return found
        return (output, *more) if more else output


@final
class _AlignerEar(_Ear):
    """Of an RNN decoder's attention, which is one head; what it weighs are the encoder's vectors."""

    def before(self, _module: nn.Module, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        *others, record = args
        self.asked.append(record)
        return (*others, []), kwargs

    def after(self, _module: nn.Module, args: Args, _kwargs: Kwargs, found: Any) -> Any:
        (weight_BTS,), asked = args[-1], self.asked.pop()
        self.keep(weight_BTS.unsqueeze(1), args[1].value_BSD.norm(dim=-1).unsqueeze(1) if self.norms else None)
        if asked is not None:
            asked.append(weight_BTS)
        return found


@final
class _PoolingEar(_Ear):
    """Of a pooling; its hops are heads, and its one query is the label's."""

    def after(self, _module: nn.Module, args: Args, _kwargs: Kwargs, found: Any) -> Any:
        self.keep(found.weight_BTS.unsqueeze(2), args[0].norm(dim=-1).unsqueeze(1) if self.norms else None)
        return found


def _transformed_lengths(module: nn.Module, args: Args, kwargs: Kwargs) -> Tensor:
    """||f(x_s)|| of each head, f(x) = (x W^V + b^V) W^O_h: sqrt(v G v), G = W^O_hᵀ W^O_h; [B, H, S]."""
    attention = cast(MultiHeadAttention, module)
    memory: KeyValue | None = kwargs.get("memory")
    if memory is None:
        memory = attention.memory(args[1] if len(args) > 1 else args[0])
        memory = memory if kwargs.get("past") is None else kwargs["past"].append(memory)
    repeats = attention.num_heads // attention.num_key_value_heads
    value_BHSK = memory.value.squeeze(2).repeat_interleave(repeats, 1)
    output_HKD = attention.output.weight.mT.unflatten(0, (attention.num_heads, -1))
    square_BHS = ((value_BHSK @ (output_HKD @ output_HKD.mT)) * value_BHSK).sum(-1)
    return square_BHS.clamp(min=0).sqrt()
