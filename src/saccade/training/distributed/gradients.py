"""Sums gradients over a team of processes, while the backward pass still computes others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, distributed, nn

from saccade.training.distributed.shards import is_shard
from saccade.training.distributed.team import Team

BUCKET = 1 << 23  # gradients that are summed at once


@final
class GradientSums:
    """Sums in buckets, from the last parameters to the first; each is sent as soon as it is full.

    All processes send their buckets in the same order, whichever is ready first: so they meet, and a sum doesn't depend
    on timing. The gradients of a sharded model are summed by its shards.
    """

    def __init__(self, model: nn.Module, team: Team) -> None:
        self.team = team
        self.buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()] if team.size > 1 else []
        own = [p for p in model.parameters() if p.requires_grad and not is_shard(p)]
        self.buckets = _buckets(own[::-1]) if team.size > 1 else []
        self._place = {parameter: number for number, bucket in enumerate(self.buckets) for parameter in bucket}
        self._missing: list[int] = []
        self._sent: list[tuple[Tensor, distributed.Work]] = []
        for parameter in self._place:
            parameter.register_post_accumulate_grad_hook(self._on_gradient)

    def expect(self, *, last: bool) -> None:
        """Begin a backward pass; in the `last` one of a step, gradients are sent as they come."""
        self._missing = [len(bucket) for bucket in self.buckets] if last else []

    def finish(self) -> None:
        """Put the sums in place of this process's gradients; buffers that training changes become their mean."""
        self._missing = []
        while len(self._sent) < len(self.buckets):
            self._send()
        for bucket, (flat, work) in zip(self.buckets, self._sent, strict=True):
            work.wait()
            own = [_gradient(parameter) for parameter in bucket]
            parts = flat.split([gradient.numel() for gradient in own])
            torch._foreach_copy_(own, [part.view_as(gradient) for part, gradient in zip(parts, own, strict=True)])
        self._sent = []
        for buffer in self.buffers:
            self.team.sum_tensor(buffer).div_(self.team.size)

    def _on_gradient(self, parameter: Tensor) -> None:
        if not self._missing:
            return
        self._missing[self._place[parameter]] -= 1  # type: ignore[index]
        while len(self._sent) < len(self.buckets) and not self._missing[len(self._sent)]:
            self._send()

    def _send(self) -> None:
        """Send the next bucket; a process without a gradient adds zeros."""
        flat = torch.cat([_gradient(parameter).flatten() for parameter in self.buckets[len(self._sent)]])
        work = distributed.all_reduce(flat, async_op=True)
        assert work is not None
        self._sent.append((flat, work))


def _gradient(parameter: nn.Parameter) -> Tensor:
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _buckets(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Group neighbouring parameters until a bucket has enough."""
    buckets: list[list[nn.Parameter]] = []
    size = BUCKET
    for parameter in parameters:
        if size >= BUCKET:
            buckets.append([])
            size = 0
        buckets[-1].append(parameter)
        size += parameter.numel()
    return buckets
