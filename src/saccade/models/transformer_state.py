"""A Transformer's decoder between two steps: a batch whose rows all stand at one step, or sentences in slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast, final

import torch
from torch import Tensor

from saccade.attention import KeyValue, masks
from saccade.attention.attend import Memory, Past
from saccade.attention.masks import Mask
from saccade.attention.positions import Positions, Relative
from saccade.attention.slots import SharedMemory, SlotMemory, Slots, refill


class BlockMemory(NamedTuple):
    """The keys and values of a decoder block: of the steps before, and of the source."""

    past: Past | None
    source: Memory


class StepScope(NamedTuple):
    """The positions of the steps that a decoder reads, and the masks of what they attend to."""

    place: Positions
    own: Mask
    source: Mask
    bias: Tensor | None


class TransformerState(NamedTuple):
    """A batch: all rows have read the same number of steps."""

    blocks: tuple[BlockMemory, ...]
    source_length_B: Tensor
    num_steps: int

    def scope(self, count: int, window: int | None, bias: Relative | None) -> StepScope:
        """Return the scope of the next `count` steps, which attend to at most `window` steps before them."""
        last = self.num_steps + count
        place = Positions.following(self.num_steps, count, self.source_length_B.device)
        own = masks.causal(offset=self.num_steps)
        if window is not None:
            own = own & masks.window(window, offset=self.num_steps)
        return StepScope(place, own, masks.padding(self.source_length_B), None if bias is None else bias(place, last))

    def after(self, blocks: tuple[BlockMemory, ...], count: int) -> TransformerState:
        """Return the state `count` steps later."""
        return TransformerState(blocks, self.source_length_B, self.num_steps + count)

    def rows(self, index_N: Tensor) -> TransformerState:
        """Return the state of other rows: a beam that was reordered, or a batch that shrank."""
        blocks = ((cast(KeyValue | None, past), cast(KeyValue, source)) for past, source in self.blocks)
        return TransformerState(
            tuple(
                BlockMemory(None if past is None else past.rows(index_N), source.rows(index_N))
                for past, source in blocks
            ),
            self.source_length_B[index_N],
            self.num_steps,
        )

    @property
    def num_source_steps(self) -> int:
        """The number of steps of the longest source."""
        return cast(KeyValue, self.blocks[0].source).num_keys


@final
@dataclass(frozen=True)
class SlotState:
    """Sentences in slots: tensors of fixed sizes, written in place. The slots know where each stands."""

    slots: Slots
    blocks: tuple[BlockMemory, ...]
    source_length_BN: Tensor  # 1 of a free slot: its outputs are ignored, but must stay finite
    num_source_steps: int  # that a source may have
    max_places: int | None = None  # that an output may have

    def scope(self, count: int, window: int | None, bias: Relative | None) -> StepScope:
        """Return the scope of the next step of each row."""
        assert count == 1
        slots = self.slots
        spread = None
        if bias is not None:
            spread = slots.spread(bias(Positions(slots.place_B[:, None], slots.capacity), slots.capacity))
        place_R, end = slots.place_R, slots.capacity
        if self.max_places is not None:  # one that is done stands behind its last place
            end = min(end, self.max_places)
            place_R = place_R.clamp(max=end - 1)
        return StepScope(Positions(place_R[:, None], end), slots.past(window), self._sources(), spread)

    def _sources(self) -> Mask:
        if self.slots.is_fused:
            return masks.full()  # the kernel counts the steps itself
        step_S = torch.arange(self.num_source_steps, device=self.source_length_BN.device)
        return masks.dense((step_S < self.source_length_BN[:, :1]).unsqueeze(1))

    def after(self, blocks: tuple[BlockMemory, ...], count: int) -> SlotState:
        del blocks, count  # all was written in place
        return self

    def enter(self, index_E: Tensor, started: TransformerState) -> None:
        """Put other sentences into some slots."""
        for block, entering in zip(self.blocks, started.blocks, strict=True):
            cast(SharedMemory, block.source).enter(index_E, cast(KeyValue, entering.source))
        self.source_length_BN[index_E] = started.source_length_B[:, None]

    def refill(self, other: SlotState, index_E: Tensor) -> None:
        """Copy some sentences of another state into the first slots."""
        for mine, theirs in zip(self._tensors(), other._tensors(), strict=True):
            refill(mine, theirs, index_E)

    def reorder(self, parent_BN: Tensor) -> None:
        """Do nothing: the slots' table says whose past is whose."""

    def _tensors(self) -> list[Tensor]:
        memories = [memory for block in self.blocks for memory in (block.past, block.source)]
        pairs = [cast(SlotMemory | SharedMemory, memory).tensors for memory in memories]
        return [self.source_length_BN, *(tensor for pair in pairs for tensor in pair)]
