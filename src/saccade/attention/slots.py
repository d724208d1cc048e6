"""Keys and values of many sentences in slots of fixed size, for decoders that write them together.

R: rows, B * N, a hypothesis of a sentence each. C: steps that a slot has room for. G: key/value heads, M queries each.
Nothing moves when a beam is reordered: keys and values stay where they were written, and a table says which
row of a sentence holds each step of a hypothesis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from saccade.attention import masks
from saccade.attention.attend import KeyValue, attend
from saccade.attention.kernels.decode.step import attend_step
from saccade.attention.masks import Mask
from saccade.attention.normalizers import Softmax
from saccade.attention.scores import Score
from saccade.ops.kernels.availability import runs_on


@final
@dataclass
class Slots:
    """B sentences with N hypotheses each, at places of their own; a row is a hypothesis of a sentence, [B * N].

    `row_BNC` says which hypothesis wrote each of the C steps of one; None where there is only one. `is_fused`: the
    attention is one that the kernel for steps computes, and there is a device for it.
    """

    place_B: Tensor
    width: int
    capacity: int
    row_BNC: Tensor | None = None
    is_fused: bool = False

    def __post_init__(self) -> None:
        device = self.place_B.device
        self._step_C, self._own_N = torch.arange(self.capacity, device=device), torch.arange(self.width, device=device)
        self.sentence_R = torch.arange(len(self), device=device, dtype=torch.int32).repeat_interleave(self.width)
        self._first_R1 = (self.sentence_R * self.width)[:, None]
        self.place_R = self.place_B if self.width == 1 else self.place_B.repeat_interleave(self.width)
        self.holder_RC = None if self.row_BNC is None else self._first_R1 + self.row_BNC.flatten(0, 1)

    def __len__(self) -> int:
        return len(self.place_B)

    def renew(self) -> None:
        """Refresh row positions and beam ancestry after a step or after new sentences enter."""
        if self.width > 1:
            self.place_R.view(-1, self.width).copy_(self.place_B[:, None])
        if self.row_BNC is not None and self.holder_RC is not None:
            torch.add(self._first_R1, self.row_BNC.flatten(0, 1), out=self.holder_RC)

    def past(self, radius: int | None) -> Mask:
        """Return what each hypothesis sees of its sentence's past, in the order of `SlotMemory`, [B, N, N * C]."""
        if self.is_fused:
            return masks.full()  # the kernel counts the steps itself
        distance_BC = self.place_B[:, None] - self._step_C
        seen_BC = distance_BC >= 0
        if radius is not None:
            seen_BC &= distance_BC <= radius
        if self.row_BNC is None:
            return masks.dense(seen_BC[:, None])
        own_BNNC = self.row_BNC[:, :, None] == self._own_N[:, None]
        return masks.dense((own_BNNC & seen_BC[:, None, None]).flatten(2))

    def spread(self, bias_BHTC: Tensor) -> Tensor:
        """Repeat a bias of the steps, [B, H, 1, C], for each hypothesis and the keys that it may attend to."""
        return bias_BHTC.repeat(1, 1, 1, self.width).expand(-1, -1, self.width, -1)

    def attend(self, query_RGMTK: Tensor, memory_BSGK: Tensor, value_BSGK: Tensor, how: dict[str, Any]) -> Tensor:
        """Attend with the hypotheses of a sentence as the steps of its query."""
        query_BGMNK = query_RGMTK.unflatten(0, (-1, self.width)).squeeze(4).movedim(1, 3)
        memory, value = (tensor.transpose(1, 2).unsqueeze(2) for tensor in (memory_BSGK, value_BSGK))
        answer_BGMNK = attend(query_BGMNK, None, value, memory=memory, **how)
        assert isinstance(answer_BGMNK, Tensor)
        return answer_BGMNK.movedim(3, 1).flatten(0, 1).unsqueeze(3)


@final
class SlotMemory:
    """The past of the sentences in slots, [B, N, C, G, K]: each row writes its steps in place."""

    def __init__(self, slots: Slots, like: KeyValue) -> None:
        self.slots = slots
        shape = (len(slots), slots.width, slots.capacity, like.memory.shape[1])
        self.memory_BNCGK = like.memory.new_zeros(*shape, like.memory.shape[-1])
        self.value_BNCGK = like.value.new_zeros(*shape, like.value.shape[-1])
        self.row_R = torch.arange(len(slots) * slots.width, device=like.value.device)

    def append(self, later: KeyValue) -> SlotStep:
        """Return the past and one more step of each row, at its sentence's place."""
        return SlotStep(self, later)

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        """Keys and values; the first axis is the sentence's."""
        return self.memory_BNCGK, self.value_BNCGK


class SlotStep(NamedTuple):
    """The past of sentences in slots and their next step, which is written into the slots as it attends."""

    past: SlotMemory
    later: KeyValue

    def attend(self, query_RGMTK: Tensor, /, **how: Any) -> Tensor:
        """Attend to everything that a sentence's rows wrote; the mask (`Slots.past`) says which row owns which step."""
        slots, tensors = self.past.slots, self.past.tensors
        memory_RCGK, value_RCGK = (tensor.flatten(0, 1) for tensor in tensors)
        new = self.later.memory[:, :, 0, 0], self.later.value[:, :, 0, 0]
        if slots.is_fused:
            return _attend_step(query_RGMTK, memory_RCGK, value_RCGK, slots.place_R, how["score"], slots.holder_RC, new)
        for cache_RCGK, new_RGK in zip((memory_RCGK, value_RCGK), new, strict=True):
            cache_RCGK[self.past.row_R, slots.place_R] = new_RGK
        memory_BSGK, value_BSGK = (tensor.flatten(1, 2) for tensor in tensors)
        return slots.attend(query_RGMTK, memory_BSGK, value_BSGK, how)


@final
class SharedMemory:
    """The sources of the sentences in slots, [B, S, G, K], shared by all hypotheses of each."""

    def __init__(self, slots: Slots, like: KeyValue, length_R: Tensor, capacity: int) -> None:
        self.slots, self.length_R = slots, length_R
        shape = (len(slots), capacity, like.memory.shape[1])
        self.memory_BSGK = like.memory.new_zeros(*shape, like.memory.shape[-1])
        self.value_BSGK = like.value.new_zeros(*shape, like.value.shape[-1])

    def enter(self, index_E: Tensor, source: KeyValue) -> None:
        """Write other sources into some slots."""
        memory_ESGK, value_ESGK = (entering_EGTSK[:, :, 0].transpose(1, 2) for entering_EGTSK in source)
        if self.slots.is_fused:
            from saccade.attention.kernels.decode.enter import enter

            return enter(self.tensors, index_E, (memory_ESGK, value_ESGK))
        self.memory_BSGK[index_E, : source.num_keys] = memory_ESGK
        self.value_BSGK[index_E, : source.num_keys] = value_ESGK
        return None

    def attend(self, query_RGMTK: Tensor, /, **how: Any) -> Tensor:
        """Attend with each row to its sentence's source."""
        if not self.slots.is_fused:
            return self.slots.attend(query_RGMTK, *self.tensors, how)
        return _attend_step(query_RGMTK, *self.tensors, self.length_R, how["score"], self.slots.sentence_R)

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        """Keys and values; the first axis is the sentence's."""
        return self.memory_BSGK, self.value_BSGK


def _attend_step(
    query_RGMTK: Tensor,
    memory: Tensor,
    value: Tensor,
    length_R: Tensor,
    score: Score,
    holder: Tensor | None,
    new: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Attend with one query a row to the first steps of its cache, by the kernel for decoder steps."""
    form = score.as_dot(query_RGMTK, memory)
    assert form is not None
    assert form.key is memory
    query_RHK = form.query.flatten(1, 3)
    answer_RHK = attend_step(query_RHK, memory, value, length_R, scale=form.scale, ancestor=holder, new=new)
    return answer_RHK.view(query_RGMTK.shape)


def can_step(score: Score, normalizer: object, device: torch.device) -> bool:
    """Return True if the kernel for decoder steps computes this attention on the device."""
    is_dot = isinstance(score, Score) and score.dots_memory
    return is_dot and isinstance(normalizer, Softmax) and device.type == "cuda" and runs_on(device)


def refill(target: Tensor, source: Tensor, index_E: Tensor) -> None:
    """Copy these rows of the source to the first of the target, which may have more room on every axis."""
    target[(slice(len(index_E)), *map(slice, source.shape[1:]))] = source[index_E]
