"""A step of Adam in one kernel, interpreted: torch's own step, and weights in half precision beside."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from saccade.ops import linear as module
from saccade.ops.linear import Linear
from saccade.training.adam import Adam
from saccade.training.captured import CapturedBackward
from saccade.training.kernels.adam import Update

CPU = torch.device("cpu")


def models() -> list[nn.ModuleDict]:
    """Two of the same weights: even and odd ones, one that is asked for in half precision, one that isn't learned."""
    layers = {"even": Linear(16, 48), "odd": Linear(48, 5), "large": nn.Linear(48, 61), "norm": nn.LayerNorm(7)}
    first = nn.ModuleDict(layers)
    return [first, copy.deepcopy(first)]


def optimizer(model: nn.Module, **options: Any) -> Adam:
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return Adam(groups, lr=0.02, betas=(0.9, 0.98), fused=True, **options)


def captured(model: nn.Module) -> CapturedBackward:
    """As if one shape had been captured: its copies are there."""

    def ask() -> None:
        with passes.half_weights, torch.autocast("cpu", torch.bfloat16):
            model["odd"](model["even"](torch.randn(3, 16)))  # type: ignore[index]

    passes = CapturedBackward(lambda batch, scale: batch, model.parameters(), CPU, adds=False)
    ask()
    ask()
    return passes


def put_gradients(model: nn.Module, others: nn.Module, bad: float) -> None:
    """In place, as a replay does, of some size; the norm's bias has none."""
    for (name, one), other in zip(model.named_parameters(), others.parameters(), strict=True):
        if name == "norm.bias":
            continue
        if one.grad is None:
            one.grad, other.grad = torch.empty_like(one), torch.empty_like(one)
        one.grad.copy_(torch.randn_like(one) * (torch.nan if bad else 3.0))
        assert other.grad is not None
        other.grad.copy_(one.grad)


@pytest.fixture(autouse=True)
def _fused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_fused", lambda _: True)


@pytest.mark.parametrize("decoupled", [True, False])
def test_it_is_torchs_step(decoupled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = models()
    mine, plain = (optimizer(model, decoupled_weight_decay=decoupled) for model in (ours, theirs))
    mine.follow(captured(ours))
    calls: list[Adam] = []
    step: Any = torch.optim.Adam.step

    def counted(self: Adam, closure: None) -> None:
        calls.append(self)
        step(self, closure)

    monkeypatch.setattr(torch.optim.Adam, "step", counted)
    for number, bad in enumerate((0.0, 0.0, 1.0, 0.0, 0.0)):
        put_gradients(ours, theirs, bad)
        before = [parameter.detach().clone() for parameter in ours.parameters()]
        for either in (mine, plain):
            either.found_inf, either.grad_scale = torch.tensor(bad), torch.tensor(1.0 + number)
            for group in either.param_groups:
                group["lr"] = 0.02 / (1 + number)
            either.step()
        assert calls == [mine, *[plain] * (number + 1)]  # the first is torch's
        for old, one, other in zip(before, ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
            assert torch.equal(old, one) == (bool(bad) or one.grad is None)
            assert mine.state[one].keys() == plain.state[other].keys()
            for name, value in plain.state[other].items():
                torch.testing.assert_close(mine.state[one][name], value, rtol=1e-5, atol=1e-7)


def test_copies_are_written_with_the_weights() -> None:
    model, other = models()
    mine = optimizer(model)
    mine.follow(passes := captured(model))
    assert len(passes.half_weights.pairs) == 4
    copies: list[Tensor] = []

    def check(*, is_fresh: bool) -> None:
        assert passes.half_weights.is_fresh == is_fresh
        passes.half_weights.renew()
        for weight, narrow in passes.half_weights.pairs:
            torch.testing.assert_close(narrow.float(), weight.detach(), atol=0.0, rtol=2.0**-7)  # interpreted, it cuts

    for number, bad in enumerate((0.0, 0.0, 1.0, 0.0)):
        put_gradients(model, other, bad)
        mine.found_inf, mine.grad_scale = torch.tensor(bad), torch.tensor(1.0)
        mine.step()
        check(is_fresh=number > 0)  # the first is torch's
        copies = [narrow.clone() for _, narrow in passes.half_weights.pairs]
    with torch.no_grad():
        model.get_parameter("even.weight").mul_(2)  # somebody else changes a weight
    check(is_fresh=False)
    assert not torch.equal(copies[0], passes.half_weights.pairs[0][1])


def test_the_device_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    model, other = models()
    mine = optimizer(model)
    mine.follow(captured(model))
    asked: list[Any] = []

    class Watched(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten._local_scalar_dense.default:
                asked.append(args)
            return func(*args, **(kwargs or {}))

    monkeypatch.setattr(Update, "__call__", lambda *_: None)  # interpreted, a kernel reads numbers
    for _ in range(3):
        put_gradients(model, other, 0.0)
        mine.found_inf, mine.grad_scale = torch.tensor(0.0), torch.tensor(1.0)
        asked.clear()
        with Watched():
            mine.step()
    assert mine._known
    assert not asked


def test_gradients_may_move_but_must_be_plain() -> None:
    models_and_theirs = models()
    model, other = models_and_theirs
    mine, plain = (optimizer(one) for one in models_and_theirs)
    mine.follow(passes := captured(model))
    weights = [one.get_parameter("even.weight") for one in models_and_theirs]
    for number in range(5):
        put_gradients(model, other, 0.0)
        grad = torch.randn(48, 16)
        for weight in weights:
            if number in (2, 4):
                weight.grad = grad.clone()  # elsewhere
            if number == 3:
                weight.grad = grad.T.contiguous().T
        for one in (mine, plain):
            one.found_inf, one.grad_scale = torch.tensor(0.0), torch.tensor(1.0)
            one.step()
        assert passes.half_weights.is_fresh == (number in (1, 2, 4))
        passes.half_weights.renew()
        torch.testing.assert_close(*weights, rtol=1e-5, atol=1e-7)
        assert all(int(state["step"]) == number + 1 for state in mine.state.values())


def test_a_checkpoint_of_one_is_the_others() -> None:
    model, other = models()
    mine, plain = optimizer(model, decoupled_weight_decay=True), torch.optim.AdamW(other.parameters(), fused=True)
    mine.follow(captured(model))
    for _ in range(2):
        put_gradients(model, other, 0.0)
        mine.found_inf, mine.grad_scale = torch.tensor(0.0), torch.tensor(1.0)
        mine.step()
        plain.step()
    assert mine.state_dict()["state"].keys() == plain.state_dict()["state"].keys()
    assert mine._known
    mine.load_state_dict(copy.deepcopy(mine.state_dict()))
    assert not mine._known  # its moments lie elsewhere
    again = optimizer(model, decoupled_weight_decay=True)
    again.load_state_dict(mine.state_dict())
    for parameter, state in mine.state.items():
        for name, value in state.items():
            torch.testing.assert_close(again.state[parameter][name], value)
