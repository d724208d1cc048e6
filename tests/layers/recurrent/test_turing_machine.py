"""The neural Turing machine against its equations in numpy, and what it must not depend on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from saccade.inspection.record import recording
from saccade.layers.recurrent.turing_machine import EMPTY, PlainRecurrent, TuringMachine, write

SIZES: dict[str, Any] = {"width": 11, "num_reading": 2, "num_writing": 3, "places": 7, "cells": 5}
Array = NDArray[np.float64]


def make(controller: str = "feed_forward", **changed: Any) -> TuringMachine:
    torch.manual_seed(3)
    network = TuringMachine(3, 2, controller=controller, **{**SIZES, **changed}).double()
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.3)
    return network


def draw(rows: int = 2, steps: int = 4) -> torch.Tensor:
    return torch.randn(rows, steps, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


def softmax(x: Array) -> Array:
    powers: Array = np.exp(x - x.max())
    return np.asarray(powers / powers.sum())


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def address(found: dict[str, Any], before: Array, memory: Array, beta: float) -> Array:
    """Equations 5 to 9 of Graves 2014, place by place."""
    key = np.tanh(found["key"])
    cosine = [key @ row / np.linalg.norm(key) / np.linalg.norm(row) for row in memory]
    content = softmax(np.log1p(np.exp(found["beta"])) * beta * np.array(cosine))
    gate, moves, focus = sigmoid(found["gate"]), softmax(found["shift"]), 1 + np.log1p(np.exp(found["focus"]))
    gated = gate * content + (1 - gate) * before
    count = len(memory)
    shifted = np.array(
        [sum(gated[j] * moves[1 + d] for d in (-1, 0, 1) for j in [(i - d) % count]) for i in range(count)]
    )
    powers: Array = shifted**focus
    return powers / powers.sum()


def oracle(network: TuringMachine, x_TC: Array) -> tuple[Array, Array]:
    """Compute outputs and weights [T, H, S] of one sequence."""
    own = {name: weight.detach().numpy() for name, weight in network.named_parameters()}
    reading, heads = network.heads.num_reading, network.heads.num_reading + network.heads.num_writing
    memory = np.full((7, 5), EMPTY)
    before = [np.eye(7)[0] for _ in range(heads)]
    read, outputs, weights = np.zeros(reading * 5), [], []
    for x_C in x_TC:
        state = np.tanh(own["controller.weight"] @ np.concatenate([x_C, read]) + own["controller.bias"])
        where = (own["heads.where.weight"] @ state + own["heads.where.bias"]).reshape(heads, -1)
        what = (own["heads.what.weight"] @ state + own["heads.what.bias"]).reshape(-1, 10)
        names = {"key": slice(0, 5), "beta": 5, "gate": 6, "shift": slice(7, 10), "focus": 10}
        before = [
            address({name: wish[at] for name, at in names.items()}, was, memory, float(own["heads.score.beta"]))
            for wish, was in zip(where, before, strict=True)
        ]
        read = np.concatenate([weight @ memory for weight in before[:reading]])
        kept, added = np.ones_like(memory), np.zeros_like(memory)
        for weight, wish in zip(before[reading:], what, strict=True):
            kept *= 1 - np.outer(weight, sigmoid(wish[:5]))
            added += np.outer(weight, np.tanh(wish[5:]))
        memory = memory * kept + added
        outputs.append(own["output.weight"] @ np.concatenate([state, read]) + own["output.bias"])
        weights.append(np.stack(before))
    return np.stack(outputs), np.stack(weights)


def test_it_computes_its_equations() -> None:
    network, x_BTC = make(), draw()
    with recording(network, kinds=("decoder",)) as record:
        found = network(x_BTC)
    weights = record.weights("decoder")  # [L, B, H, T, S]
    assert weights.shape == (1, 2, 5, 4, 7)
    for row in range(2):
        outputs, weight_THS = oracle(network, x_BTC[row].numpy())
        torch.testing.assert_close(found[row], torch.from_numpy(outputs))
        torch.testing.assert_close(weights[0, row].transpose(0, 1), torch.from_numpy(weight_THS))


@pytest.mark.parametrize("controller", ["feed_forward", "lstm"])
def test_rows_and_later_steps_change_nothing(controller: str) -> None:
    network, x_BTC = make(controller), draw(3, 5)
    alone = network(x_BTC[1:2, :3])
    torch.testing.assert_close(network(x_BTC)[1:2, :3], alone)


@pytest.mark.parametrize("controller", ["feed_forward", "lstm"])
def test_every_parameter_gets_a_gradient(controller: str) -> None:
    network = make(controller)
    network(draw()).square().sum().backward()
    for name, weight in network.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.abs().max() > 0, name


@pytest.mark.parametrize("score", ["dot", "general", "additive", "location", "mean"])
def test_heads_take_any_score(score: str) -> None:
    found = make(score=score)(draw())
    assert found.isfinite().all()


def test_writing_by_hand() -> None:
    """Place 0 is erased and gets 3; place 1 is half erased and gets half of it."""
    cells = torch.tensor([[[1.0], [2.0], [4.0]]])
    weight, erase, add = torch.tensor([[[1.0, 0.5, 0.0]]]), torch.ones(1, 1, 1), torch.tensor([[[3.0]]])
    assert write(cells, weight, erase, add).flatten().tolist() == [3.0, 2.5, 4.0]


def test_a_plain_rnn_has_the_same_shape() -> None:
    assert PlainRecurrent(3, 2, width=7, num_layers=2)(draw().float()).shape == (2, 4, 2)
