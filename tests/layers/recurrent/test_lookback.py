"""Attention to the last states of an RNN, against plain equations written in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from saccade.inspection.record import recording
from saccade.layers.recurrent.lookback import LastStates, NgramStates, StateAttention
from saccade.layers.recurrent.lstmn import Lstmn, LstmnLayer

SPAN, STEPS = 3, 11
Vector = NDArray[np.float64]


def softmax(scores: list[float]) -> Vector:
    raised = np.exp(np.array(scores) - max(scores))
    return np.asarray(raised / raised.sum())


def sigmoid(x: Vector) -> Vector:
    return np.asarray(1 / (1 + np.exp(-x)))


def numpy_of(module: torch.nn.Module, name: str) -> Vector:
    return np.asarray(module.get_parameter(name).detach().double().numpy())


@pytest.mark.parametrize("num_parts", [1, 2, 3])
def test_state_attention_is_its_equation(num_parts: int) -> None:
    """M = tanh(W k_s + U k_t + b), a = softmax(vᵀ M), r = sum a v; h* = tanh(W_r r + W_x p): Daniluk, eq. 1-10."""
    torch.manual_seed(2)
    width = 5
    layer = StateAttention(width * num_parts, num_parts=num_parts, span=SPAN).double()
    h_1TD = torch.randn(1, STEPS, width * num_parts).double()
    none = LastStates.none(1, SPAN, width * num_parts, h_1TD.device)
    output, weight_1TS, _ = layer(h_1TD, none, return_weights=True)
    states = [np.split(state, num_parts) for state in h_1TD[0].numpy()]
    w, u, b, v = (numpy_of(layer, f"score.{name}") for name in NAMES)
    w_r, w_x = np.split(numpy_of(layer, "output.weight"), 2, axis=1)
    for t, parts in enumerate(states):
        seen = range(max(0, t - SPAN), t)
        query, predicts = parts[0], parts[-1]
        read = np.zeros(width)
        if seen:
            weights = softmax([float(v @ np.tanh(w @ query + u @ states[s][0] + b)) for s in seen])
            read = sum((a * states[s][min(1, num_parts - 1)] for a, s in zip(weights, seen, strict=True)), read)
            np.testing.assert_allclose(weight_1TS[0, t, SPAN + seen[0] : SPAN + t].detach().numpy(), weights, atol=1e-9)
        wanted = np.tanh(w_r @ read + w_x @ predicts)
        np.testing.assert_allclose(output[0, t].detach().numpy(), wanted, atol=1e-9)


NAMES = [name for name, _ in StateAttention(4, num_parts=1, span=2).score.named_parameters()]


def test_ngram_states_join_parts_of_earlier_states() -> None:
    torch.manual_seed(2)
    layer = NgramStates(12, order=4).double()
    h_1TD = torch.randn(1, STEPS, 12).double()
    output, past = layer(h_1TD, LastStates.none(1, layer.span, 12, h_1TD.device))
    states, weight = h_1TD[0].numpy(), numpy_of(layer, "output.weight")
    for t in range(STEPS):
        parts = [states[t - ago][4 * ago : 4 * ago + 4] if t >= ago else np.zeros(4) for ago in range(3)]
        np.testing.assert_allclose(output[0, t].detach().numpy(), np.tanh(weight @ np.concatenate(parts)), atol=1e-9)
    assert torch.equal(past.state_BSD, h_1TD[:, -2:])


def test_lstmn_is_its_equations() -> None:
    """Cheng 2016, equations 5 to 10, with a tape of the last states."""
    torch.manual_seed(2)
    width, inner = 5, 3
    layer = LstmnLayer(inner, width, span=SPAN, score="additive", normalizer="softmax").double()
    model = Lstmn(inner, width, num_layers=1, span=SPAN)
    tape = torch.utils._pytree.tree_map(
        lambda part: part.double() if part.is_floating_point() else part, model.begin(1, torch.device("cpu"))[0]
    )
    x_1TD = torch.randn(1, STEPS, inner).double()
    output, weight_1TS, _ = layer(x_1TD, tape, return_weights=True)
    w_x, b, w_h = (numpy_of(layer, name) for name in ("inputs.weight", "inputs.bias", "hidden.weight"))
    w_q, w_k, bias, v = (numpy_of(layer, f"score.{name}") for name in NAMES)
    hs, cs, read = list[Vector](), list[Vector](), np.zeros(width)
    for t, x in enumerate(x_1TD[0].numpy()):
        seen = range(max(0, t - SPAN), t)
        query, cell = np.concatenate([x, read]), np.zeros(width)
        read = np.zeros(width)
        if seen:
            weights = softmax([float(v @ np.tanh(w_q @ query + w_k @ hs[s] + bias)) for s in seen])
            read = sum((a * hs[s] for a, s in zip(weights, seen, strict=True)), read)
            cell = sum((a * cs[s] for a, s in zip(weights, seen, strict=True)), cell)
            np.testing.assert_allclose(weight_1TS[0, t, SPAN + seen[0] : SPAN + t].detach().numpy(), weights, atol=1e-9)
        i, f, new, o = np.split(w_x @ x + b + w_h @ read, 4)
        cs.append(sigmoid(f) * cell + sigmoid(i) * np.tanh(new))
        hs.append(sigmoid(o) * np.tanh(cs[-1]))
        np.testing.assert_allclose(output[0, t].detach().numpy(), hs[-1], atol=1e-9)


@pytest.mark.parametrize("score", ["scaled_dot", "general", "cosine", "mean", "location", "concat", "reduced_rank"])
def test_every_score_asks_a_tape(score: str) -> None:
    model = Lstmn(7, 6, num_layers=2, span=SPAN, score=score, normalizer="sparsemax")
    output, _ = model(torch.randn(2, 5, 7), model.begin(2, torch.device("cpu")))
    output.sum().backward()
    assert output.shape == (2, 5, 6)
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("kind", ["states", "lstmn"])
def test_weights_and_norms_are_recorded(kind: str) -> None:
    torch.manual_seed(1)
    x = torch.randn(2, 5, 6)
    if kind == "lstmn":
        model: torch.nn.Module = Lstmn(6, 6, num_layers=2, span=SPAN)
        past: object = Lstmn.begin(model, 2, x.device)  # type: ignore[arg-type]
    else:
        model, past = StateAttention(6, num_parts=2, span=SPAN), LastStates.none(2, SPAN, 6, x.device)
    with recording(model, norms=True) as record:
        output, _ = model(x, past)
    weight_LBHTS = record.weights("decoder")
    assert weight_LBHTS.shape == (2 if kind == "lstmn" else 1, 2, 1, 5, SPAN + 5)
    assert torch.equal(record.norms("decoder") > 0, weight_LBHTS > 0)
    torch.testing.assert_close(weight_LBHTS[..., 1:, :].sum(-1), torch.ones((*weight_LBHTS.shape[:-2], 4)))
    torch.testing.assert_close(output, model(x, past)[0])
