"""What attention asks: keys and values of a source, of a decoder's past, or of many sentences in slots of fixed size.

In slots nothing moves when a beam is reordered: keys and values stay where they were written, and a table says which
row of a sentence holds each step of a hypothesis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self, final

import torch
from torch import Tensor

from saccade.attention import masks
from saccade.attention.core import attend
from saccade.attention.masks import Mask


class Memory(Protocol):
    """Anything that multi-head attention can ask, [B, G, R, T, K] queries at a time, G key/value heads of R each."""

    def answer(self, query_BGRTK: Tensor, **how: Any) -> Tensor | tuple[Tensor, ...]:
        """What `attend` says of these keys and values."""


class Past(Memory, Protocol):
    """... and that can go on."""

    def append(self, later: KeyValue) -> Self:
        """This and the steps that follow it."""


class KeyValue(NamedTuple):
    """What a source (or the past of a decoder) is to its readers: score memory and values, split into heads.

    Both are [B, G, 1, S, .] with G key/value heads. It is made by `MultiHeadAttention.memory` and grows by `append`.
    """

    memory: Tensor
    value: Tensor

    @property
    def num_keys(self) -> int:
        """S."""
        return self.memory.shape[-2]

    def append(self, later: KeyValue) -> KeyValue:
        """This and the steps that follow it."""
        memory = torch.cat([self.memory, later.memory], -2)
        return KeyValue(memory, torch.cat([self.value, later.value], -2))

    def rows(self, index: Tensor) -> KeyValue:
        """Other rows of the batch: a beam that was reordered, or a batch that shrank."""
        return KeyValue(self.memory[index], self.value[index])

    def answer(self, query_BGRTK: Tensor, **how: Any) -> Tensor | tuple[Tensor, ...]:
        """What `attend` says of these keys and values."""
        return attend(query_BGRTK, None, self.value, memory=self.memory, **how)


@final
@dataclass
class Slots:
    """B sentences with N hypotheses each, at places of their own; a row is a hypothesis of a sentence, [B * N].

    `row_BNC` says which hypothesis wrote each step of one; None where there is only one. `reach` is how many of the C
    steps are looked at: all that were written lie below it, and that is known without asking the device.
    """

    place_B: Tensor
    width: int
    capacity: int
    reach: int
    row_BNC: Tensor | None = None

    def __len__(self) -> int:
        return len(self.place_B)

    def past(self, radius: int | None) -> Mask:
        """What each hypothesis sees of its sentence's past and present, in the order of `SlotMemory`: [B, N, S * N]."""
        step_S = torch.arange(self.reach, device=self.place_B.device)
        distance_BS = self.place_B[:, None] - step_S
        seen_BS = distance_BS >= 0
        if radius is not None:
            seen_BS &= distance_BS <= radius
        if self.row_BNC is None:
            return masks.dense(seen_BS[:, None])
        hypothesis_N = torch.arange(self.width, device=self.place_B.device)
        own_BNSN = self.row_BNC[:, :, : self.reach, None] == hypothesis_N
        return masks.dense((own_BNSN & seen_BS[:, None, :, None]).flatten(2))

    def spread(self, bias_BHTS: Tensor) -> Tensor:
        """A bias of the steps, [B, H, 1, S], for each hypothesis and what it may look at."""
        return bias_BHTS.repeat_interleave(self.width, -1).expand(-1, -1, self.width, -1)

    def folded(self, query_BGRTK: Tensor) -> Tensor:
        """Hypotheses [B * N, G, R, 1, K] as the steps of their sentence, [B, G, R, N, K]."""
        return query_BGRTK.unflatten(0, (-1, self.width)).squeeze(4).movedim(1, 3)

    @staticmethod
    def unfolded(answer_BGRNK: Tensor) -> Tensor:
        """[B, G, R, N, K] as rows again, [B * N, G, R, 1, K]."""
        return answer_BGRNK.movedim(3, 1).flatten(0, 1).unsqueeze(3)


@final
class SlotMemory:
    """The past of the sentences in slots, [B, G, C, N, K]: each row writes its steps in place."""

    def __init__(self, slots: Slots, like: KeyValue) -> None:
        self.slots = slots
        shape = (len(slots), like.memory.shape[1], slots.capacity, slots.width)
        self.memory_BGCNK = like.memory.new_zeros(*shape, like.memory.shape[-1])
        self.value_BGCNK = like.value.new_zeros(*shape, like.value.shape[-1])
        self._sentence_B = torch.arange(len(slots), device=like.value.device)

    def append(self, later: KeyValue) -> SlotMemory:
        """One step more of each row, at its sentence's place."""
        for kept_BGCNK, rows in ((self.memory_BGCNK, later.memory), (self.value_BGCNK, later.value)):
            kept_BGCNK[self._sentence_B, :, self.slots.place_B] = self.slots.folded(rows)[:, :, 0]
        return self

    def answer(self, query_BGRTK: Tensor, **how: Any) -> Tensor:
        """All that a sentence's rows wrote is asked at once; the mask (`Slots.past`) says what is whose."""
        reach = self.slots.reach
        memory, value = (kept[:, :, :reach].flatten(2, 3).unsqueeze(2) for kept in self.tensors)
        answer = attend(self.slots.folded(query_BGRTK), None, value, memory=memory, **how)
        assert isinstance(answer, Tensor)
        return self.slots.unfolded(answer)

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        """Keys and values; the first axis is the sentence's, the third the step's."""
        return self.memory_BGCNK, self.value_BGCNK


@final
class SharedMemory:
    """The sources of the sentences in slots, [B, G, 1, S, K], asked by all hypotheses of each."""

    def __init__(self, slots: Slots, like: KeyValue, capacity: int) -> None:
        self.slots, groups = slots, like.memory.shape[1]
        self.memory_BGSK = like.memory.new_zeros(len(slots), groups, 1, capacity, like.memory.shape[-1])
        self.value_BGSK = like.value.new_zeros(len(slots), groups, 1, capacity, like.value.shape[-1])

    def enter(self, index_E: Tensor, source: KeyValue) -> None:
        """Other sources in some slots."""
        for kept, entering in zip(self.tensors, source, strict=True):
            kept[index_E, :, :, : source.num_keys] = entering

    def answer(self, query_BGRTK: Tensor, **how: Any) -> Tensor:
        """The hypotheses are the steps of one query."""
        answer = attend(self.slots.folded(query_BGRTK), None, self.value_BGSK, memory=self.memory_BGSK, **how)
        assert isinstance(answer, Tensor)
        return self.slots.unfolded(answer)

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        """Keys and values; the first axis is the sentence's, the fourth the step's."""
        return self.memory_BGSK, self.value_BGSK


def refill(target: Tensor, source: Tensor, index_E: Tensor) -> None:
    """These rows of the source become the first of the target, which may have more room on every axis."""
    target[(slice(len(index_E)), *map(slice, source.shape[1:]))] = source[index_E]
