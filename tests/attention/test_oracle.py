"""Ours against the independent NumPy oracle, which was written from the equations alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import oracle
from cases import NORMALIZER_NAMES, SCORE_NAMES, build_score, random_inputs
from saccade import SCORES, LocalP, MultiHeadAttention, StructuredSelfAttention, attend, masks, self_attend

LENGTHS = torch.tensor([4, 0])
T, S = 5, 7
SCOPES = {
    "full": (masks.full(), oracle.full(T, S)),
    "causal": (masks.causal(1), oracle.causal(T, S, 1)),
    "window": (masks.window(2, offset=-1), oracle.window(T, S, 2, -1)),
    "padding": (masks.padding(LENGTHS), oracle.padding(LENGTHS.numpy(), T, S)[:, None]),
    "document": (
        masks.document(torch.arange(T) // 2, torch.arange(S) // 3),
        oracle.document(np.arange(T) // 2, np.arange(S) // 3),
    ),
}


@pytest.mark.parametrize("score_name", SCORE_NAMES)
@pytest.mark.parametrize("normalizer", NORMALIZER_NAMES)
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_attend_equals_the_oracle(score_name: str, normalizer: str, scope: str, backend: str) -> None:
    query, key, value = random_inputs(2, 3, num_queries=T, num_keys=S, width=11, value_width=13)
    score, (mask, allowed) = build_score(score_name, 11), SCOPES[scope]
    parameters = {name: parameter.detach().numpy() for name, parameter in score.named_parameters()}
    expected, expected_weights = oracle.attend(
        query.numpy(),
        key.numpy(),
        value.numpy(),
        score=score_name,
        normalizer=normalizer,
        allowed=allowed,
        parameters=parameters,
    )
    with torch.no_grad():
        arguments = {"score": score, "normalizer": normalizer, "mask": mask, "backend": backend}
        output = attend(query, key, value, **arguments)  # type: ignore[call-overload]
        _, weights = attend(query, key, value, return_weights=True, **arguments)  # type: ignore[call-overload]
    np.testing.assert_allclose(output.numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(weights.numpy(), expected_weights, atol=1e-12)


@pytest.mark.parametrize("score_name", ["mean", "general", "reduced_rank", "additive", "concat", "location"])
def test_query_and_key_may_differ_in_width(score_name: str) -> None:
    query, key = torch.randn(2, T, 3).double(), torch.randn(2, S, 11).double()
    score = SCORES[score_name](3, 11).double()
    parameters = {name: parameter.detach().numpy() for name, parameter in score.named_parameters()}
    expected, _ = oracle.attend(query.numpy(), key.numpy(), key.numpy(), score=score_name, parameters=parameters)
    np.testing.assert_allclose(attend(query, key, key, score=score).detach().numpy(), expected, atol=1e-12)


def test_local_p_equals_the_oracle() -> None:
    query, key, value = random_inputs(2, num_queries=T, num_keys=S, width=11, value_width=3)
    length = torch.tensor([7, 5])
    local = LocalP(11, radius=2, hidden_width=3).double()
    allowed, gaussian = oracle.local_p(
        query.numpy(), length.numpy(), S, local.W.detach().numpy(), local.v.detach().numpy(), 2
    )
    padding = oracle.padding(length.numpy(), T, S)
    expected, expected_weights = oracle.attend(
        query.numpy(), key.numpy(), value.numpy(), score="dot", allowed=allowed & padding, factor=gaussian
    )
    mask = local(query, length) & masks.padding(length)
    output, weights = attend(query, key, value, score="dot", mask=mask, return_weights=True)
    np.testing.assert_allclose(output.detach().numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(weights.detach().numpy(), expected_weights, atol=1e-12)
    output.sum().backward()
    assert local.W.grad is not None
    assert local.W.grad.abs().sum() > 0  # the predicted centre learns through the Gaussian


def test_multi_head_equals_the_oracle() -> None:
    attention = MultiHeadAttention(12, 3, key_width=5, value_width=7).double()
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter)
    query, key, value = (torch.randn(2, n, d).double() for n, d in ((T, 12), (S, 5), (S, 7)))
    layers = {"query": attention.query, "key": attention.key, "value": attention.value, "output": attention.output}
    expected = oracle.multi_head(
        query.numpy(),
        key.numpy(),
        value.numpy(),
        **{f"W_{name}": layer.weight.detach().numpy() for name, layer in layers.items()},
        biases={name: layer.bias.detach().numpy() for name, layer in layers.items()},
        num_heads=3,
        allowed=oracle.causal(T, S),
    )
    np.testing.assert_allclose(attention(query, key, value, mask=masks.causal()).detach().numpy(), expected, atol=1e-12)


def test_structured_equals_the_oracle() -> None:
    structured = StructuredSelfAttention(11, hidden_width=5, num_hops=3).double()
    hidden, length = torch.randn(2, S, 11).double(), torch.tensor([7, 2])
    expected = oracle.structured(
        hidden.numpy(),
        structured.W1.detach().numpy(),
        structured.W2.detach().numpy(),
        allowed=oracle.padding(length.numpy(), 3, S),
    )
    for ours, theirs in zip(structured(hidden, mask=masks.padding(length)), expected, strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), theirs, atol=1e-12)


def test_self_attend_equals_the_oracle() -> None:
    x = torch.randn(2, 3, S, 5).double()
    np.testing.assert_allclose(self_attend(x).numpy(), oracle.self_attend(x.numpy()), atol=1e-12)
