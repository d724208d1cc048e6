"""Multi-head attention: equal to torch's, cached equal to uncached, grouped equal to repeated."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cases import SCORE_NAMES
from saccade import SCORES, MultiHeadAttention, masks


def same_weights(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    layers = (ours.query, ours.key, ours.value)
    with torch.no_grad():
        for layer in (*layers, ours.output):
            nn.init.normal_(layer.weight, std=0.3)
            nn.init.normal_(layer.bias)
        if theirs.in_proj_weight is not None:
            theirs.in_proj_weight.copy_(torch.cat([layer.weight for layer in layers]))
        else:
            theirs.q_proj_weight.copy_(ours.query.weight)
            theirs.k_proj_weight.copy_(ours.key.weight)
            theirs.v_proj_weight.copy_(ours.value.weight)
        theirs.in_proj_bias.copy_(torch.cat([layer.bias for layer in layers]))
        theirs.out_proj.load_state_dict(ours.output.state_dict())


@pytest.mark.parametrize(("key_width", "value_width"), [(12, 12), (5, 7)])
@pytest.mark.parametrize("return_weights", [False, True])
def test_equals_torch_with_the_same_weights(key_width: int, value_width: int, return_weights: bool) -> None:
    ours = MultiHeadAttention(12, 3, key_width=key_width, value_width=value_width).double()
    theirs = nn.MultiheadAttention(12, 3, kdim=key_width, vdim=value_width, batch_first=True, dtype=torch.float64)
    same_weights(ours, theirs)
    query, key, value = (torch.randn(2, n, d).double() for n, d in ((5, 12), (7, key_width), (7, value_width)))
    length = torch.tensor([4, 7])
    mask = masks.padding(length) & masks.causal(offset=2)
    output = ours(query, key, value, mask=mask, return_weights=return_weights)
    expected, expected_weights = theirs(
        query,
        key,
        value,
        key_padding_mask=torch.arange(7) >= length[:, None],
        attn_mask=~masks.causal(offset=2).dense(5, 7),
        average_attn_weights=False,
    )
    if return_weights:
        output, weights = output
        torch.testing.assert_close(weights, expected_weights)
    torch.testing.assert_close(output, expected)


@pytest.mark.parametrize("score", SCORE_NAMES)
@pytest.mark.parametrize("groups", [6, 2, 1])
def test_cached_equals_uncached(score: str, groups: int) -> None:
    attention = MultiHeadAttention(24, 6, num_key_value_heads=groups, score=score).double()
    x = torch.randn(2, 7, 24).double()
    whole = attention(x, mask=masks.causal())
    past, steps = None, []
    for step in range(7):
        one = x[:, step : step + 1]
        output, past = attention(one, past=past, mask=masks.causal(offset=step), return_memory=True)
        assert past.num_keys == step + 1
        steps.append(output)
    torch.testing.assert_close(torch.cat(steps, 1), whole)


def test_many_steps_are_projected_by_one_product() -> None:
    attention = MultiHeadAttention(24, 6, num_key_value_heads=2).double()
    x = torch.randn(2, 300, 24, dtype=torch.float64, requires_grad=True)
    parts = torch.cat([attention(one, x[:, :], x[:, :]) for one in x.split(50, 1)], 1)
    torch.testing.assert_close(attention(x), parts)
    leaves = [x, *attention.parameters()]
    together, apart = (torch.autograd.grad(y.square().sum(), leaves) for y in (attention(x), parts))
    for own, other in zip(together, apart, strict=True):
        torch.testing.assert_close(own, other)


@pytest.mark.parametrize("score", SCORE_NAMES)
def test_weights_on_demand_equal_the_fused_output(score: str) -> None:
    attention = MultiHeadAttention(24, 6, num_key_value_heads=2, score=score).double()
    x, source = torch.randn(2, 5, 24).double(), torch.randn(2, 7, 24).double()
    output, weights = attention(x, source, return_weights=True)
    assert weights.shape == (2, 6, 5, 7)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 6, 5).double())
    torch.testing.assert_close(output, attention(x, source))


def test_grouped_heads_equal_repeated_heads() -> None:
    grouped = MultiHeadAttention(24, 6, num_key_value_heads=2).double()
    repeated = MultiHeadAttention(24, 6).double()
    repeated.load_state_dict(
        grouped.state_dict()
        | {
            f"{name}.{part}": getattr(getattr(grouped, name), part)
            .unflatten(0, (2, 1, 4))
            .expand(2, 3, 4, *rest)
            .flatten(0, 2)
            for name in ("key", "value")
            for part, rest in (("weight", (24,)), ("bias", ()))
        }
    )
    x = torch.randn(2, 7, 24).double()
    mask = masks.padding(torch.tensor([3, 7])) & masks.causal()
    torch.testing.assert_close(grouped(x, mask=mask), repeated(x, mask=mask))


@pytest.mark.parametrize("groups", [6, 2])
def test_a_mask_may_differ_from_head_to_head(groups: int) -> None:
    attention = MultiHeadAttention(24, 6, num_key_value_heads=groups).double()
    x = torch.randn(2, 5, 24).double()
    allowed = torch.rand(2, 6, 5, 5) > 0.4
    _, weights = attention(x, mask=allowed, return_weights=True)
    assert (weights[~allowed] == 0).all()
    output, everything = attention(x, mask=allowed), attention(x, mask=allowed, backend="reference")
    torch.testing.assert_close(output, everything)


def test_hard_attention_learns_by_its_log_probability() -> None:
    attention = MultiHeadAttention(24, 6, num_key_value_heads=2, normalizer="hard")
    _, log_probability = attention(torch.randn(2, 5, 24), return_log_probability=True)
    assert log_probability.shape == (2, 6, 5)
    log_probability.sum().backward()
    assert attention.query.weight.grad is not None
    assert attention.query.weight.grad.abs().sum() > 0


def test_dropout_only_when_training() -> None:
    attention = MultiHeadAttention(8, 2, dropout=0.5)
    x = torch.randn(1, 5, 8)
    assert not torch.equal(attention(x), attention(x))
    attention.eval()
    assert torch.equal(attention(x), attention(x))


def test_hard_attention_in_heads_samples_only_when_training() -> None:
    attention = MultiHeadAttention(8, 2, normalizer="hard")
    x = torch.randn(1, 31, 8)
    assert not torch.equal(attention(x), attention(x))
    assert torch.equal(attention.eval()(x), attention(x))


def test_compiles_in_one_graph() -> None:
    attention = MultiHeadAttention(24, 6, num_key_value_heads=2).double()
    x = torch.randn(2, 7, 24).double()
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, mask=masks.causal()), attention(x, mask=masks.causal()))


X = torch.randn(1, 3, 8)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MultiHeadAttention(10, 3), r"num_heads: 3 given; it must divide the width, 10"),
        (lambda: MultiHeadAttention(12, 6, num_key_value_heads=4), r"num_key_value_heads: 4 given; it must divide"),
        (lambda: MultiHeadAttention(8, 2, dropout=1.5), r"dropout: 1.5 given; it must be at least 0 and below 1"),
        (
            lambda: MultiHeadAttention(8, 2, score=SCORES["additive"](4, 4, heads=(2,))),
            r"score: built for heads=\(2,\); allowed here: \(\) or .*\(2, 1\)",
        ),
        (lambda: MultiHeadAttention(12, 6, score="doot"), r"score: 'doot' given; allowed: mean, dot"),
        (lambda: MultiHeadAttention(12, 6, normalizer="max"), r"normalizer: 'max' given; allowed: softmax"),
        (lambda: MultiHeadAttention(8, 2)(X[..., :5]), r"query: width 5 given; this attention was built for 8"),
        (lambda: MultiHeadAttention(8, 2)(torch.randn(8)), r"query: torch.float32 of shape \[8\] given"),
        (lambda: MultiHeadAttention(0, 1), r"width: 0 given"),
        (lambda: MultiHeadAttention(8, 2, score=5), r"score: 5 given"),  # type: ignore[arg-type]
        (lambda: MultiHeadAttention(8, 2)(X, value_BSD=X), r"value: given without key"),
        (lambda: (a := MultiHeadAttention(8, 2))(X, X, memory=a.memory(X)), r"memory: given together with key"),
        (lambda: (a := MultiHeadAttention(8, 2))(X, X, past=a.memory(X)), r"past: given together with key"),
    ],
)
def test_mistakes_are_named(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
