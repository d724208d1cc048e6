"""Record the weights of every attention in any model, by hooks that are gone afterwards.

with recording(model) as record:
    model(...)
record.weights("cross")        # [L, B, H, T, S]

The model computes what it always computes; its attentions are asked for their weights as well, so the recorded weights
are those that were used. Outside of the block nothing is different.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol, cast, final

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from saccade.errors import UserError

KINDS = ("cross", "copy", "encoder", "decoder", "pooling")
Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class Recordable(Protocol):
    """An attention module that can be recorded: it has a `kind` and returns a tuple (output, weights, ...).

    A module that takes `return_weights` returns its weights only if that is True. They are [B, H, T, S]; where there
    is one head, [B, T, S]; in a pooling, which has one query, [B, H, S].
    """

    kind: str | None  # one of KINDS; None: it isn't recorded

    def value_norms(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the lengths of the vectors that a call with these arguments weighs, [B, H, S] or [B, 1, S]."""


class AttentionCall(NamedTuple):
    """One call of an attention: its weights [B, H, T, S] and, if asked for, ||a_ts f(x_s)|| (Kobayashi 2020)."""

    weight_BHTS: Tensor
    norm_BHTS: Tensor | None


@final
class Record:
    """The recorded calls of each attention, sorted by kind; attentions stand in the order of the layers."""

    def __init__(self) -> None:
        self._calls: dict[str, dict[str, list[AttentionCall]]] = {}

    def add(self, kind: str, name: str, call: AttentionCall) -> None:
        self._calls.setdefault(kind, {}).setdefault(name, []).append(call)

    @property
    def kinds(self) -> list[str]:
        """The kinds that were recorded, in the order of KINDS."""
        return [kind for kind in KINDS if kind in self._calls]

    def weights(self, kind: str) -> Tensor:
        """Return the weights of a kind, [L, B, H, T, S]; the steps of several calls follow each other."""
        return torch.stack([_join([one.weight_BHTS for one in calls]) for calls in self._calls[kind].values()])

    def norms(self, kind: str) -> Tensor:
        """Return ||a_ts f(x_s)||, [L, B, H, T, S]; `recording` must have been asked for them."""
        found = []
        for calls in self._calls[kind].values():
            parts = [one.norm_BHTS for one in calls if one.norm_BHTS is not None]
            if len(parts) < len(calls):
                raise ValueError(f"norms: not recorded for kind {kind!r}; ask with recording(model, norms=True)")
            found.append(_join(parts))
        return torch.stack(found)


@contextmanager
def recording(model: nn.Module, *, kinds: Collection[str] = KINDS, norms: bool = False) -> Iterator[Record]:
    """Record every attention of these kinds that is called inside the block; `norms` costs a little more."""
    if unknown := sorted(set(kinds) - set(KINDS)):
        raise UserError(f"kinds: {unknown[0]!r} given; allowed: {', '.join(KINDS)}")
    record = Record()
    with _hooks(find_attention(model, kinds), record, norms=norms):
        yield record


def find_attention(model: nn.Module, kinds: Collection[str] = KINDS) -> dict[str, nn.Module]:
    """Find the attention modules of these kinds, by name, in the order of the layers."""
    return {name: module for name, module in model.named_modules() if getattr(module, "kind", None) in kinds}


@torch.no_grad()
def cross_weights(model: nn.Module, source: Tensor, source_length_B: Tensor, read_BT: Tensor) -> Tensor:
    """Read an output with teacher forcing and return the weights on the source, [B, L, H, T, S].

    L is 0 for a model without attention.
    """
    with recording(model, kinds=("cross",)) as record:
        model(source, source_length_B, read_BT)
    if not record.kinds:
        return torch.zeros(len(read_BT), 0, 0, read_BT.shape[1], source.shape[1], device=source.device)
    return record.weights("cross").transpose(0, 1)


@torch.no_grad()
def cross_weights_of(layer: int, model: nn.Module, source: Tensor, source_length_B: Tensor, read_BT: Tensor) -> Tensor:
    """Return the weights on the source of one layer alone, [B, H, T, S]; what comes after it is not computed."""
    name, attention = list(find_attention(model, ("cross",)).items())[layer]
    record = Record()
    with suppress(_Enough), _hooks({name: attention}, record, most_steps=read_BT.shape[1]):
        model(source, source_length_B, read_BT)
    return record.weights("cross")[0]


class _Enough(Exception):
    """All steps that were wanted are recorded."""


@contextmanager
def _hooks(
    attentions: Mapping[str, nn.Module], record: Record, *, norms: bool = False, most_steps: int | None = None
) -> Iterator[None]:
    handles = list[RemovableHandle]()
    try:
        for name, module in attentions.items():
            recorder = _Recorder(module, name, record, norms=norms, left=most_steps)
            handles.append(module.register_forward_pre_hook(recorder.before, with_kwargs=True))
            handles.append(module.register_forward_hook(recorder.after, with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


@final
class _Recorder:
    """The hooks of one attention: they ask for its weights before a call, and store them after it."""

    def __init__(self, module: nn.Module, name: str, record: Record, *, norms: bool, left: int | None) -> None:
        self.name, self.record, self.norms = name, record, norms
        self.left = left  # steps to record; None: all that come
        self.takes_request = "return_weights" in inspect.signature(module.forward).parameters
        self.requests: list[bool] = []  # whether the caller wants weights, for each call under way

    def before(self, _module: nn.Module, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        if not self.takes_request:
            return args, kwargs
        self.requests.append(kwargs.get("return_weights", False))
        return args, {**kwargs, "return_weights": True}

    def after(self, module: nn.Module, args: Args, kwargs: Kwargs, found: Args) -> Any:
        """Store the weights and return what the caller expects."""
        output, weights, *more = found
        attention = cast(Recordable, module)
        weight_BHTS = weights if weights.dim() == 4 else weights.unsqueeze(2 if attention.kind == "pooling" else 1)
        norm_BHTS = weight_BHTS * attention.value_norms(*args, **kwargs).unsqueeze(-2) if self.norms else None
        self.record.add(str(attention.kind), self.name, AttentionCall(weight_BHTS.detach(), norm_BHTS))
        if self.left is not None:
            self.left -= weight_BHTS.shape[-2]  # a recurrent decoder calls once for each step
            if self.left <= 0:
                raise _Enough
        if not self.takes_request or self.requests.pop():
            return found
        return (output, *more) if more else output


def _join(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)
