"""One call of `attend`, its parts resolved and checked: what `select` reads and every implementation runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar, cast, final

import torch
from torch import Tensor, nn

from saccade.attention import masks
from saccade.attention.masks import Index, Mask
from saccade.attention.normalizers import NORMALIZERS, Hard
from saccade.attention.scores import SCORES, LearnedScore, Score

ScoreLike = str | Score | Callable[[Tensor, Tensor], Tensor]
NormalizerLike = str | Callable[[Tensor, Tensor | None], Tensor]
MaskLike = Mask | Tensor | None
Part = TypeVar("Part", bound=nn.Module)
_INSTANCES: dict[type[nn.Module], nn.Module] = {}
_FULL = masks.full()


class Attended(NamedTuple):
    """The result of an implementation; a part that nobody asked for may be None."""

    output: Tensor
    weights: Tensor | None = None
    log_probability: Tensor | None = None


@final
@dataclass(frozen=True)
class Call:
    """Checked arguments. `memory` is what the score made of the keys; leading axes broadcast."""

    query: Tensor
    memory: Tensor
    value: Tensor
    score: Callable[[Tensor, Tensor], Tensor]
    normalizer: Callable[[Tensor, Tensor | None], Tensor]
    mask: Mask
    bias: Tensor | None = None  # added to the scores
    dropout: float = 0.0
    wants_weights: bool = False
    wants_log_probability: bool = False

    @property
    def leading(self) -> tuple[int, ...]:
        """The axes before [T, D], broadcast over query, keys and values."""
        query, memory, value = self.query.shape[:-2], self.memory.shape[:-2], self.value.shape[:-2]
        if query == memory == value:
            return tuple(query)
        return tuple(torch.broadcast_shapes(query, memory, value))

    @property
    def num_queries(self) -> int:
        return self.query.shape[-2]

    @property
    def num_keys(self) -> int:
        return self.memory.shape[-2]

    @property
    def is_random(self) -> bool:
        """True if two equal rows may get different weights."""
        return self.dropout > 0 or (isinstance(self.normalizer, Hard) and self.normalizer.training)

    def dense_mask(self) -> Tensor | None:
        """Return the mask as booleans that broadcast to [*leading, T, S]; None if every key is allowed."""
        if self.mask.table is not None:
            *batch, num_queries, num_keys = self.mask.table.shape
            return self.mask.table.view(*batch, *(1,) * (len(self.leading) - len(batch)), num_queries, num_keys)
        return None if self.mask.is_full else self.mask.allows(self.grid())

    def grid(self) -> Index:
        """Return every pair of query and key, as the mask's predicate takes them."""
        axes, device = len(self.leading), self.query.device
        return self.mask.grid(self.num_queries, self.num_keys, num_axes=axes, device=device)


def resolve(
    query: Tensor,
    key: Tensor | None,
    value: Tensor,
    *,
    score: ScoreLike,
    normalizer: NormalizerLike,
    mask: MaskLike,
    bias: Tensor | None,
    memory: Tensor | None,
    dropout: float,
    return_weights: bool,
    return_log_probability: bool,
) -> Call:
    """Check the arguments of `attend` and make a call of them; a mistake raises ValueError with the argument's name."""
    scorer = find_score(score)
    if query is None or value is None:
        raise ValueError(
            f"{'query' if query is None else 'value'}: None given; it must be a tensor [..., steps, width]"
        )
    if (key is None) == (memory is None):
        raise ValueError("key: give either the keys or memory=score.memory(key)")
    for name, tensor in (("query", query), ("key", key), ("memory", memory), ("value", value)):
        check_tensor(name, tensor)
    _check_dtypes(query, {"key": key, "memory": memory, "value": value})
    _check_widths(scorer, query, key, memory)
    if memory is None:
        assert key is not None
        memory = scorer.memory(key) if isinstance(scorer, Score) else key
    if memory.shape[-2] != value.shape[-2]:
        raise ValueError(f"value: {value.shape[-2]} steps given for {memory.shape[-2]} keys")
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise ValueError(f"dropout: {dropout} given; it must be at least 0 and below 1")
    call = Call(
        query,
        memory,
        value,
        scorer,
        find_normalizer(normalizer),
        find_mask(mask),
        bias,
        dropout,
        wants_weights=return_weights or return_log_probability,
        wants_log_probability=return_log_probability,
    )
    _check_leading(call)
    if return_log_probability and not isinstance(call.normalizer, Hard):
        raise ValueError(f"return_log_probability: only the normalizer 'hard' picks a key, not {normalizer!r}")
    return call


def find_score(score: ScoreLike) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the score of this name, or the given one."""
    if not isinstance(score, str):
        _need_callable("score", score)
        return score
    kind = _look_up("score", score, SCORES)
    if issubclass(kind, LearnedScore):
        build = f"saccade.SCORES[{score!r}](query_width, key_width)"
        raise ValueError(f"score: {score!r} has parameters to learn; build it once and pass it: {build}")
    return _share(kind)


def find_normalizer(normalizer: NormalizerLike) -> Callable[[Tensor, Tensor | None], Tensor]:
    """Return the normaliser of this name (in evaluation: 'hard' takes the best key), or the given one."""
    if isinstance(normalizer, str):
        return _share(_look_up("normalizer", normalizer, NORMALIZERS))
    _need_callable("normalizer", normalizer)
    return normalizer


def find_mask(mask: MaskLike) -> Mask:
    """Return a mask; None allows every key, and a boolean tensor becomes a mask."""
    if mask is None:
        return masks.full() if torch.compiler.is_compiling() else _FULL
    if isinstance(mask, Tensor):
        return masks.dense(mask)
    if not isinstance(mask, Mask):
        allowed = "None, a saccade.masks mask or a boolean tensor [..., T, S]"
        raise ValueError(f"mask: {type(mask).__name__} given; allowed: {allowed}")
    return mask


def _need_callable(what: str, part: object) -> None:
    if isinstance(part, type):
        raise ValueError(f"{what}: the class {part.__name__} given; build one of it: {part.__name__}(...)")
    if not callable(part):
        raise ValueError(f"{what}: {part!r} given; it must be a name, a module or a callable")


def _share(kind: type[Part]) -> Part:
    """Make a part without parameters or state once, in evaluation: making it costs more than a call."""
    if torch.compiler.is_compiling():
        return kind().eval()
    if kind not in _INSTANCES:
        _INSTANCES[kind] = kind().eval()
    return cast(Part, _INSTANCES[kind])


def _look_up(what: str, name: str, table: dict[str, type[Part]]) -> type[Part]:
    if name not in table:
        raise ValueError(f"{what}: {name!r} given; allowed: {', '.join(table)}")
    return table[name]


def check_tensor(name: str, tensor: Tensor | None) -> None:
    """Raise ValueError with the argument's name unless this is None or floating point [..., steps, width]."""
    if tensor is None:
        return
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name}: {type(tensor).__name__} given; it must be a tensor [..., steps, width]")
    if tensor.dim() < 2 or not tensor.is_floating_point():
        what = f"{tensor.dtype} of shape {list(tensor.shape)}"
        raise ValueError(f"{name}: {what} given; it must be floating point [..., steps, width]")
    if name != "query" and tensor.shape[-2] == 0:
        raise ValueError(f"{name}: no steps given; there must be at least one key")


def _check_dtypes(query: Tensor, others: dict[str, Tensor | None]) -> None:
    for name, tensor in others.items():
        if tensor is None or tensor.dtype == query.dtype or torch.is_autocast_enabled(query.device.type):
            continue
        raise ValueError(f"{name}: {tensor.dtype} given; query is {query.dtype}, and both must be alike")


def _check_widths(
    score: Callable[[Tensor, Tensor], Tensor], query: Tensor, key: Tensor | None, memory: Tensor | None
) -> None:
    if not isinstance(score, Score):
        return
    for weight in score._parameters.values():  # those that multiply a vector
        if weight is None or weight.dim() <= len(score.heads) or weight.dtype == query.dtype:
            continue
        if not torch.is_autocast_enabled(query.device.type):
            name = type(score).__name__
            raise ValueError(f"query: {query.dtype} given; {name}'s parameters are {weight.dtype}: both must be alike")
    if heads := score.heads:
        leading, count = list(query.shape[:-2]), len(heads)
        if count > len(leading) or any(a != 1 and a != b for a, b in zip(heads, leading[-count:], strict=False)):
            raise ValueError(f"score: built for heads={heads}; the query's leading axes are {leading}")
    name, width = type(score).__name__, query.shape[-1]
    memory_width = None if memory is None else score.memory_width
    if memory_width is None and score.equal_widths:
        memory_width = width
    wanted = (("query", query, score.query_width), ("key", key, score.key_width), ("memory", memory, memory_width))
    for argument, tensor, built_for in wanted:
        if tensor is not None and built_for is not None and tensor.shape[-1] != built_for:
            raise ValueError(f"{argument}: width {tensor.shape[-1]} given; {name} needs {built_for}")
    if key is not None and score.equal_widths and key.shape[-1] != width:
        raise ValueError(f"key: width {key.shape[-1]} given; {name} needs the query's width, {width}")


def _check_leading(call: Call) -> None:
    try:
        leading = call.leading
    except RuntimeError:
        axes = {name: list(getattr(call, name).shape[:-2]) for name in ("query", "memory", "value")}
        found = f"query {axes['query']}, key {axes['memory']}, value {axes['value']}"
        raise ValueError(f"query, key, value: leading axes {found} don't broadcast") from None
    if call.bias is not None:
        _check_bias(call.bias, (*leading, call.num_queries, call.num_keys))
    if (problem := call.mask.fits(leading, call.num_queries, call.num_keys)) is not None:
        raise ValueError(f"mask: {problem}")


def _check_bias(bias: Tensor, shape: tuple[int, ...]) -> None:
    own = tuple(bias.shape)
    fits = len(own) >= 2 and own[-2:] == shape[-2:] and bias.is_floating_point()
    if not fits or len(own) > len(shape) or any(a not in (1, b) for a, b in zip(own[::-1], shape[::-1], strict=False)):
        wanted = f"floating point that broadcasts to {list(shape)}, with its last two axes as they are"
        raise ValueError(f"bias: {bias.dtype} of shape {list(own)} given; it must be {wanted}")
