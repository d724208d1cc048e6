"""Multi-head attention with any score: h attentions side by side, each d/h wide (Vaswani 2017, section 3.2.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast, final

import torch
from torch import Tensor, nn

from saccade.attention.attend import KeyValue, Memory, Past
from saccade.attention.call import (
    MaskLike,
    NormalizerLike,
    ScoreLike,
    check_tensor,
    find_mask,
    find_normalizer,
    find_score,
)
from saccade.attention.normalizers import NORMALIZERS
from saccade.attention.positions import Positions
from saccade.attention.scores import SCORES, Score
from saccade.attention.slots import SharedMemory, SlotMemory, Slots
from saccade.ops.lazy_norm import Rows, tensor_of
from saccade.ops.linear import Linear, linear, split

MANY_STEPS = 256
Rotate = Callable[[Tensor, Positions], Tensor]  # queries or keys [B, H, T, K] and where they stand


@final
class MultiHeadAttention(nn.Module):
    """concat_h(attend(W^Q_h q, W^K_h k, W^V_h v)) W^O.

    attention = MultiHeadAttention(512, 8)
    y = attention(x, mask=masks.causal())                  self-attention
    y = attention(x, source)                               cross-attention
    memory = attention.memory(source)                      ... its source projected once,
    y = attention(x, memory=memory)                        and asked many times
    y, past = attention(x, past=past, return_memory=True)  a decoder that goes on, step by step
    """

    def __init__(
        self,
        width: int,
        num_heads: int,
        *,
        key_width: int | None = None,
        value_width: int | None = None,
        num_key_value_heads: int | None = None,
        score: ScoreLike = "scaled_dot",
        normalizer: NormalizerLike = "softmax",
        dropout: float = 0.0,
        bias: bool = True,
        rotate: Rotate | None = None,
        kind: str | None = None,
    ) -> None:
        super().__init__()
        groups = num_heads if num_key_value_heads is None else num_key_value_heads
        if width < 1:
            raise ValueError(f"width: {width} given; it must be 1 or more")
        if num_heads < 1 or width % num_heads:
            raise ValueError(f"num_heads: {num_heads} given; it must divide the width, {width}")
        if groups < 1 or num_heads % groups:
            raise ValueError(f"num_key_value_heads: {groups} given; it must divide num_heads, {num_heads}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: {dropout} given; it must be at least 0 and below 1")
        head_width = width // num_heads
        key_width = width if key_width is None else key_width
        value_width = key_width if value_width is None else value_width
        self.num_heads, self.num_key_value_heads, self.dropout = num_heads, groups, dropout
        self.rotate = rotate
        self.kind = kind  # the name under which `inspection.record` records it; None: it isn't recorded
        self._joined: tuple[Tensor, Tensor] | None = None
        self.query = Linear(width, width, bias=bias)
        self.key = Linear(key_width, groups * head_width, bias=bias)
        self.value = Linear(value_width, groups * head_width, bias=bias)
        self.output = Linear(width, width, bias=bias)
        for projection in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(projection.weight)
            if bias:
                nn.init.zeros_(projection.bias)
        self.score = _score_for_heads(score, head_width, groups)
        named = isinstance(normalizer, str) and normalizer in NORMALIZERS
        self.normalizer = NORMALIZERS[str(normalizer)]() if named else find_normalizer(normalizer)

    def memory(self, key_BSD: Tensor, value_BSD: Tensor | None = None, *, place: Positions | None = None) -> KeyValue:
        """Do the work that a source needs once: keys and values projected, split into heads, and read by the score.

        `place` says where the keys stand, for rotary positions; otherwise they stand one behind the other from 0 on.
        """
        if value_BSD is None:
            key_BSD, value_BSD = self._project_together(key_BSD, "key", "value")
        else:
            key_BSD, value_BSD = _project("key", self.key, key_BSD), _project("value", self.value, value_BSD)
        return self._make_memory(key_BSD, value_BSD, place)

    @torch.no_grad()
    def join(self) -> None:
        """Copy the weights side by side, for self-attention from now on; for weights that no longer change."""
        parts = (self.query, self.key, self.value)
        if self.query.bias is None or len({part.in_features for part in parts}) > 1:
            return
        joined = torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts])
        if self._joined is None:
            self._joined = joined
        for kept, new in zip(self._joined, joined, strict=True):  # in place: a captured graph reads them there
            kept.copy_(new)

    def slot_memory(self, slots: Slots) -> SlotMemory:
        """Make an empty key/value cache for sentences in slots."""
        return SlotMemory(slots, self._empty_memory())

    def shared_memory(self, slots: Slots, length_R: Tensor, capacity: int) -> SharedMemory:
        """Make room for sources of up to `capacity` steps for sentences in slots; `length_R` has their lengths."""
        return SharedMemory(slots, self._empty_memory(), length_R, capacity)

    def forward(
        self,
        query_BTD: Rows,
        key_BSD: Tensor | None = None,
        value_BSD: Tensor | None = None,
        *,
        mask: MaskLike = None,
        memory: Memory | None = None,
        past: Past | None = None,
        bias: Tensor | None = None,
        place: Positions | None = None,
        backend: str = "auto",
        return_weights: bool = False,
        return_log_probability: bool = False,
        return_memory: bool = False,
    ) -> Any:
        """Attend, [B, T, D]; with `return_weights` also return the weights of every head, [B, H, T, S].

        `bias` [H, T, S] or [B, H, T, S] is added to the scores; `place` says where the queries stand, for rotary
        positions. With `return_log_probability` (hard attention) also that of each head's picked keys, [B, H, T].
        Without `key` the query attends to itself, after its `past` if that is given; `return_memory` adds what is the
        past of the steps that follow. Without `value` the keys are the values.
        """
        self._check(key_BSD, value_BSD, memory, past)
        if memory is not None:
            query_BTD = _project("query", self.query, query_BTD)
        elif key_BSD is not None:
            memory = self.memory(key_BSD, value_BSD)
            query_BTD = _project("query", self.query, query_BTD)
        else:
            query_BTD, own_key_BTD, own_value_BTD = self._project_together(query_BTD, "query", "key", "value")
            own = self._make_memory(own_key_BTD, own_value_BTD, place)
            memory = own if past is None else past.append(own)
        query_BGMTK = self._rotate(query_BTD, self.num_heads, place).unflatten(-3, (self.num_key_value_heads, -1))
        attended = memory.attend(
            query_BGMTK,
            score=self.score,
            normalizer=self.normalizer,
            mask=find_mask(mask).group_heads(self.num_heads // self.num_key_value_heads),
            bias=None if bias is None else bias.unflatten(-3, (self.num_key_value_heads, -1)),
            backend=backend,
            return_weights=return_weights,
            return_log_probability=return_log_probability,
            dropout=self.dropout if self.training else 0.0,
        )
        output_BGMTK, *evidence = attended if isinstance(attended, tuple) else (attended,)
        output_BTD: Tensor = self.output(output_BGMTK.flatten(-4, -3).transpose(-3, -2).flatten(-2))
        found = (output_BTD, *(part.flatten(1, 2) for part in evidence), *([memory] if return_memory else []))
        return found if len(found) > 1 else output_BTD

    def value_norms(
        self,
        query_BTD: Rows,
        key_BSD: Tensor | None = None,
        value_BSD: Tensor | None = None,
        *,
        memory: Memory | None = None,
        past: Past | None = None,
        **_: Any,
    ) -> Tensor:
        """Return ||f(x_s)|| for the arguments of a call, f(x) = (x W^V + b^V) W^O_h (Kobayashi 2020), [B, H, S].

        It is sqrt(v G v) with G = W^O_hᵀ W^O_h.
        """
        if memory is None:
            own = self.memory(cast(Tensor, query_BTD) if key_BSD is None else key_BSD, value_BSD)
            memory = own if past is None else past.append(own)
        assert isinstance(memory, KeyValue)
        value_BHSK = memory.value.squeeze(2).repeat_interleave(self.num_heads // self.num_key_value_heads, 1)
        output_HKD = self.output.weight.mT.unflatten(0, (self.num_heads, -1))
        square_BHS = ((value_BHSK @ (output_HKD @ output_HKD.mT)) * value_BHSK).sum(-1)
        return square_BHS.clamp(min=0).sqrt()

    @staticmethod
    def _check(key: Tensor | None, value: Tensor | None, memory: Memory | None, past: Past | None) -> None:
        if memory is not None and (key is not None or value is not None):
            raise ValueError("memory: given together with key or value; it stands for both")
        if key is None and value is not None:
            raise ValueError("value: given without key")
        if past is not None and (key is not None or memory is not None):
            raise ValueError("past: given together with key or memory; only self-attention goes on")

    def _project_together(self, x_BTD: Rows, *names: str) -> tuple[Tensor, ...]:
        """Project one tensor to queries, keys or values; many steps by one product, which is quicker than several."""
        parts = {name: cast(nn.Linear, self.get_submodule(name)) for name in names}
        if self._joined is not None and "query" in names:
            weight, bias = self._joined
            return linear(x_BTD, [weight], [bias]).split([part.out_features for part in parts.values()], -1)
        if tensor_of(x_BTD).shape[:-1].numel() < MANY_STEPS or self.query.bias is None:
            return tuple(_project(name, part, x_BTD) for name, part in parts.items())
        for name, part in parts.items():
            _check_width(name, part, x_BTD)
        joint_BTD = linear(x_BTD, [part.weight for part in parts.values()], [part.bias for part in parts.values()])
        return split(joint_BTD, tuple(part.out_features for part in parts.values()))

    def _empty_memory(self) -> KeyValue:
        """Make a one-step memory of zeros, used for its shapes and dtype."""
        key, value = (part.weight.new_zeros(1, 1, part.out_features) for part in (self.key, self.value))
        return self._make_memory(key, value, None)

    def _make_memory(self, key_BSD: Tensor, value_BSD: Tensor, place: Positions | None) -> KeyValue:
        key_BGSK = self._rotate(key_BSD, self.num_key_value_heads, place).unsqueeze(-3)
        value_BGSK = self._split_heads(value_BSD, self.num_key_value_heads).unsqueeze(-3)
        memory = self.score.memory(key_BGSK) if isinstance(self.score, Score) else key_BGSK
        if self.num_key_value_heads < self.num_heads:  # once, instead of at every reading
            return KeyValue(memory.contiguous(), value_BGSK.contiguous())
        return KeyValue(memory, value_BGSK)

    def _rotate(self, projected_BTD: Tensor, num_heads: int, place: Positions | None) -> Tensor:
        heads_BHTK = self._split_heads(projected_BTD, num_heads)
        if self.rotate is None:
            return heads_BHTK
        return self.rotate(heads_BHTK, place or Positions.following(0, heads_BHTK.shape[-2], heads_BHTK.device))

    @staticmethod
    def _split_heads(projected_BTD: Tensor, num_heads: int) -> Tensor:
        return projected_BTD.unflatten(-1, (num_heads, -1)).transpose(-3, -2)


def _score_for_heads(score: ScoreLike, head_width: int, groups: int) -> ScoreLike:
    """Build a named score with parameters for each key/value head; take a module or callable as it is."""
    if isinstance(score, str) and score in SCORES:
        return SCORES[score](head_width, head_width, heads=(groups, 1))
    if isinstance(score, Score) and score.heads not in ((), (groups, 1)):
        wanted = f"() or one set of parameters for each key/value head, {(groups, 1)}"
        raise ValueError(f"score: built for heads={score.heads}; allowed here: {wanted}")
    if isinstance(score, str):
        raise ValueError(f"score: {score!r} given; allowed: {', '.join(SCORES)}, a module or a callable")
    return find_score(score)


def _project(name: str, linear: nn.Linear, rows: Rows) -> Tensor:
    _check_width(name, linear, rows)
    projected: Tensor = linear(rows)
    return projected


def _check_width(name: str, linear: nn.Linear, rows: Rows) -> None:
    tensor = tensor_of(rows)
    check_tensor(name, tensor)
    if tensor.shape[-1] != linear.in_features:
        raise ValueError(f"{name}: width {tensor.shape[-1]} given; this attention was built for {linear.in_features}")
