"""Adam and AdamW (Kingma 2014; Loshchilov 2017): torch's, and after a pass that was replayed one kernel for a step."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, cast, final

import torch
from torch import Tensor

from saccade.attention.kernels.triton_here import runs_on
from saccade.training.captured import Captured


class _Updates(NamedTuple):
    """A step for gradients that lie at these addresses: one update or two for each group, which has the rate."""

    addresses: list[int]
    parts: list[tuple[dict[str, Any], Any]]
    weights: list[Tensor]
    steps: list[Tensor]
    copies: frozenset[int]


@final
class Adam(torch.optim.Adam):
    """torch's fused Adam. Where passes are captured, a step is one kernel that writes weights in half precision, too.

    State and equations are the same. torch writes clipped gradients back, which nobody reads; and it takes the first
    step, in which it makes the moments.
    """

    found_inf: Tensor | None = None  # not zero: the step changes nothing
    grad_scale: Tensor | None = None  # what gradients are divided by

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.captured: Captured | None = None
        self._known: dict[Hashable, _Updates] = {}

    def follow(self, captured: Captured) -> None:
        """Gradients will be those of these passes, and their weights in half precision will be kept up to date."""
        self.captured, captured.narrowing.lasts = captured, True

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update of all weights."""
        found = None if closure is not None or self.captured is None else self._updates(self.captured)
        if found is None or self.captured is None:
            loss = cast(float | None, super().step(closure))
            torch.autograd.graph.increment_version([w for group in self.param_groups for w in group["params"]])
            return loss  # torch's kernel says nothing of what it writes
        narrowing, bad, divisor = self.captured.narrowing, self.found_inf, self.grad_scale
        was_fresh = narrowing.is_fresh
        assert bad is not None
        with torch.no_grad():
            torch._foreach_add_(found.steps, 1.0 - bad)
            for group, update in found.parts:
                update(group["lr"], bad, divisor)
        torch.autograd.graph.increment_version(found.weights)
        if was_fresh:
            narrowing.written(found.copies)
        return None

    def _updates(self, captured: Captured) -> _Updates | None:
        """What is known for the gradients of the last pass; None if they are not where a replay leaves them."""
        if captured.replayed is None or self.found_inf is None or self.grad_scale is None:
            return None
        learned = [weight for group in self.param_groups for weight in group["params"]]
        addresses = [0 if weight.grad is None else weight.grad.data_ptr() for weight in learned]
        found = self._known.get(captured.replayed)
        if found is None and (found := self._made(captured, addresses)) is not None:
            self._known[captured.replayed] = found
        return found if found is not None and found.addresses == addresses else None

    def _made(self, captured: Captured, addresses: list[int]) -> _Updates | None:
        if not runs_on(captured.device):
            return None
        from saccade.training.kernels.adam import Rules, Slot, Update

        copies = {(weight.data_ptr(), weight.numel()): copy for weight, copy in captured.narrowing.pairs}

        def slot(weight: Tensor) -> Slot:
            state = self.state.get(weight, {})
            mean, square, step = (cast(Tensor, state.get(name)) for name in ("exp_avg", "exp_avg_sq", "step"))
            copy = copies.get((weight.data_ptr(), weight.numel()))
            return Slot(weight, cast(Tensor, weight.grad), mean, square, step, copy)

        groups = [[slot(w) for w in group["params"] if w.grad is not None] for group in self.param_groups]
        slots = [slot for group in groups for slot in group]
        if not all(slot.is_plain for slot in slots) or any(g["amsgrad"] or g["maximize"] for g in self.param_groups):
            return None
        parts: list[tuple[dict[str, Any], Any]] = []
        for group, ours in zip(self.param_groups, groups, strict=True):
            beta, beta_of_squares = group["betas"]
            rules = Rules(beta, beta_of_squares, group["eps"], group["weight_decay"], group["decoupled_weight_decay"])
            alike = ([slot for slot in ours if slot.is_even == even] for even in (True, False))
            parts += [(group, Update(some, rules)) for some in alike if some]  # odd ones don't slow down all others
        written = frozenset(slot.copy.data_ptr() for slot in slots if slot.copy is not None)
        return _Updates(addresses, parts, [slot.weight for slot in slots], [slot.step for slot in slots], written)
