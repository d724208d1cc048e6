"""Adam and AdamW (Kingma 2014; Loshchilov 2017): torch's, or one kernel for a step where passes are captured."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, cast, final

import torch
from torch import Tensor, nn

from saccade.ops.half_weights import HalfWeights
from saccade.ops.kernels.availability import runs_on
from saccade.training.captured import CapturedBackward
from saccade.training.options import TrainingOptions

OPTIMIZERS = {"adam": False, "adamw": True}  # whether weights decay apart from their gradients


class AdamRules(NamedTuple):
    """The settings of a parameter group; the decay is Adam's (of the gradient) or AdamW's (of the weight)."""

    beta: float
    beta_of_squares: float
    epsilon: float
    decay: float
    is_decoupled: bool


class _Updates(NamedTuple):
    """The kernel launches of a step: one or two for each parameter group, which has the learning rate."""

    parts: list[tuple[dict[str, Any], Any]]
    steps: list[Tensor]
    copies: frozenset[int]


@final
class Adam(torch.optim.Adam):
    """torch's fused Adam. Where passes are captured, a step is one kernel that also writes the half-precision weights.

    State and equations are the same. torch also writes clipped gradients back, which no code reads; it takes the first
    step, which creates the moments.
    """

    found_inf: Tensor | None = None  # not zero: the step changes nothing
    grad_scale: Tensor | None = None  # what gradients are divided by

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.half_weights: HalfWeights | None = None
        self._known: dict[Hashable, _Updates] = {}

    @classmethod
    def for_model(cls, model: nn.Module, options: TrainingOptions) -> Adam:
        """Build it for a model: matrices decay, but norms, biases and embeddings don't. Each step sets the rate."""
        embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
        matrices = [p for p in model.parameters() if p.dim() > 1 and id(p) not in embeddings]
        others = [p for p in model.parameters() if p.dim() <= 1 or id(p) in embeddings]
        groups = [
            {"params": matrices, "weight_decay": options.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        decoupled = OPTIMIZERS[options.optimizer]
        return cls(groups, 1.0, options.adam_betas, fused=True, decoupled_weight_decay=decoupled)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the state of another one or of a checkpoint, and forget where the old tensors were."""
        super().__setstate__(state)
        self._known = {}

    def follow(self, captured: CapturedBackward) -> None:
        """Take the gradients of these captured passes, and keep their half-precision weights up to date."""
        self.half_weights = captured.half_weights
        self.half_weights.lasts = True

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        learned = [w for group in self.param_groups for w in group["params"] if w.grad is not None]
        found = None if closure is not None or self.half_weights is None else self._updates(self.half_weights, learned)
        if found is None or self.half_weights is None:
            loss = cast(float | None, super().step(closure))
            torch.autograd.graph.increment_version(learned)  # torch's kernel says nothing of what it writes
            return loss
        was_fresh, bad = self.half_weights.is_fresh, cast(Tensor, self.found_inf)
        with torch.no_grad():
            counted = [1.0 - bad] * len(found.steps)  # a list: a single tensor would be read by the host, which waits
            torch._foreach_add_(found.steps, counted)
            for group, update in found.parts:
                update(group["lr"], bad, self.grad_scale)
        torch.autograd.graph.increment_version(learned)
        if was_fresh:
            self.half_weights.mark_written(found.copies)
        return None

    def _updates(self, half_weights: HalfWeights, learned: list[Tensor]) -> _Updates | None:
        """Return the kernel launches for these weights, or None if the kernel can't update them."""
        if not learned or self.found_inf is None or self.grad_scale is None or not runs_on(learned[0].device):
            return None
        if any(group["amsgrad"] or group["maximize"] for group in self.param_groups):
            return None
        if not all(w.grad.dtype == torch.float32 and w.grad.is_contiguous() for w in learned):  # type: ignore[union-attr]
            return None
        key = len(half_weights.pairs), *map(_rules, self.param_groups), *map(id, learned)
        if key not in self._known and (made := self._make_updates(half_weights)) is not None:
            self._known[key] = made
        return self._known.get(key)

    def _make_updates(self, half_weights: HalfWeights) -> _Updates | None:
        from saccade.training.kernels.adam import AdamSlot, Update

        copies = {(weight.data_ptr(), weight.numel()): copy for weight, copy in half_weights.pairs}

        def slot(weight: Tensor) -> AdamSlot:
            state = self.state.get(weight, {})
            mean, square, step = (cast(Tensor, state.get(name)) for name in ("exp_avg", "exp_avg_sq", "step"))
            return AdamSlot(weight, mean, square, step, copies.get((weight.data_ptr(), weight.numel())))

        groups = [[slot(w) for w in group["params"] if w.grad is not None] for group in self.param_groups]
        slots = [slot for group in groups for slot in group]
        if not all(slot.is_plain for slot in slots):
            return None
        parts: list[tuple[dict[str, Any], Any]] = []
        for group, its in zip(self.param_groups, groups, strict=True):
            ours = [slot for slot in its if slot.weight.numel()]
            alike = ([slot for slot in ours if slot.is_even == even] for even in (True, False))
            parts += [(group, Update(some, _rules(group))) for some in alike if some]  # odd ones don't slow others down
        written = frozenset(slot.copy.data_ptr() for slot in slots if slot.copy is not None)
        return _Updates(parts, [slot.step for slot in slots], written)


def _rules(group: dict[str, Any]) -> AdamRules:
    beta, beta_of_squares = group["betas"]
    return AdamRules(beta, beta_of_squares, group["eps"], group["weight_decay"], group["decoupled_weight_decay"])
