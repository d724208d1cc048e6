"""`attend` itself: any leading axes, every error message, autocast, compilation, and which kernel runs."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch
from torch import Tensor

from cases import MASKS, NORMALIZER_NAMES, SCORE_NAMES, build_score, random_inputs
from saccade import SCORES, LocalP, attend, explain, masks
from saccade.attention import BACKENDS
from saccade.attention.normalizers import Hard
from saccade.attention.scores import Additive

Q, K = torch.randn(2, 3, 5), torch.randn(2, 7, 5)


@pytest.mark.parametrize("leading", [(), (2,), (2, 3), (2, 3, 5), (1, 2, 3, 2)])
@pytest.mark.parametrize("score_name", SCORE_NAMES)
def test_any_leading_axes(leading: tuple[int, ...], score_name: str) -> None:
    query, key, value = random_inputs(*leading, num_queries=7, num_keys=11, width=13, value_width=3)
    score = build_score(score_name, 13)
    output = attend(query, key, value, score=score)
    assert output.shape == (*leading, 7, 3)
    torch.testing.assert_close(output, attend(query, key, value, score=score, backend="reference"))


@pytest.mark.parametrize("score_name", SCORE_NAMES)
def test_leading_axes_broadcast(score_name: str) -> None:
    query, key, value = torch.randn(2, 3, 5, 7), torch.randn(11, 7), torch.randn(3, 11, 13)
    score = build_score(score_name, 7, torch.float32)
    output = attend(query, key, value, score=score)
    everywhere = (x.expand(2, 3, *x.shape[-2:]) for x in (key, value))
    torch.testing.assert_close(output, attend(query, *everywhere, score=score, backend="reference"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"score": "doot"}, r"score: 'doot' given; allowed: mean, dot, scaled_dot"),
        ({"score": "additive"}, r"score: 'additive' has parameters to learn; build it once"),
        ({"score": SCORES["dot"]}, r"score: the class Dot given; build one of it: Dot\(...\)"),
        ({"value": None}, r"value: None given; it must be a tensor"),
        ({"dropout": None}, r"dropout: None given"),
        ({"score": 3}, r"score: 3 given; it must be a name, a module or a callable"),
        ({"normalizer": "max"}, r"normalizer: 'max' given; allowed: softmax, sparsemax, entmax15, hard"),
        ({"normalizer": 3}, r"normalizer: 3 given"),
        ({"backend": "cuda"}, r"backend: 'cuda' given; allowed: auto, reference, sdpa"),
        ({"backend": "sdpa", "normalizer": "hard"}, r"'sdpa' can't run this call: the normalizer Hard is not softmax"),
        ({"backend": "sdpa", "return_weights": True}, r"can't run this call: the weights were asked for"),
        ({"backend": "additive"}, r"can't run this call: the score is not additive"),
        ({"backend": "window"}, r"can't run this call: the mask has no band"),
        ({"backend": "one_row"}, r"can't run this call: the score reads the query"),
        ({"backend": "one_row", "score": "mean", "mask": masks.causal()}, r"the mask differs from query to query"),
        ({"backend": "one_row", "score": "mean", "dropout": 0.5}, r"each query draws its own"),
        ({"backend": "one_row", "score": "mean", "normalizer": lambda e, m: e}, r"the normalizer is not one of ours"),
        ({"mask": "causal"}, r"mask: str given; allowed: None, a saccade.masks mask or a boolean tensor"),
        ({"mask": torch.ones(3, 7)}, r"mask: torch.float32 of shape \[3, 7\] given"),
        ({"mask": torch.ones(4, 7) > 0}, r"mask: it was made for 4 query steps, not 3"),
        ({"mask": torch.ones(3, 8) > 0}, r"mask: it was made for 8 keys, not 7"),
        ({"mask": masks.padding(torch.tensor([1, 2, 3]))}, r"mask: its batch axes \[3\] are not .* first axes \[2\]"),
        ({"query": torch.randn(2, 3, 4)}, r"key: width 5 given; ScaledDot needs the query's width, 4"),
        ({"query": torch.randn(5)}, r"query: torch.float32 of shape \[5\] given; .* \[..., steps, width\]"),
        ({"query": [[1.0]]}, r"query: list given; it must be a tensor"),
        ({"query": torch.ones(2, 3, 5, dtype=torch.long)}, r"query: torch.int64 .* must be floating point"),
        ({"key": torch.randn(2, 7, 5).double()}, r"key: torch.float64 given; query is torch.float32"),
        ({"key": torch.randn(2, 0, 5)}, r"key: no steps given; there must be at least one key"),
        ({"key": torch.randn(3, 7, 5)}, r"leading axes query \[2\], key \[3\], value \[2\] don't broadcast"),
        ({"key": None}, r"key: give either the keys or memory="),
        ({"memory": K}, r"key: give either the keys or memory="),
        ({"value": torch.randn(2, 6, 5)}, r"value: 6 steps given for 7 keys"),
        ({"score": SCORES["general"](4, 5)}, r"query: width 5 given; General needs 4"),
        ({"score": SCORES["general"](5, 4)}, r"key: width 5 given; General needs 4"),
        (
            {"score": SCORES["general"](5, 5).double()},
            r"query: torch.float32 given; General's parameters are .*64: both",
        ),
        ({"score": SCORES["general"](5, 5, heads=(3,))}, r"score: built for heads=\(3,\); .* axes are \[2\]"),
        ({"key": None, "memory": torch.randn(2, 7, 4)}, r"memory: width 4 given; ScaledDot needs 5"),
        ({"key": None, "memory": K.double()}, r"memory: torch.float64 given; query is torch.float32"),
        ({"score": SCORES["location"](5, 5, max_length=6)}, r"key: 7 steps given; .* max_length=6"),  # type: ignore[call-arg]
        ({"dropout": 1.0}, r"dropout: 1.0 given; it must be at least 0 and below 1"),
        ({"return_log_probability": True}, r"return_log_probability: only the normalizer 'hard'"),
    ],
)
def test_mistakes_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        attend(**{"query": Q, "key": K, "value": K, **arguments})


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SCORES["dot"](3, 5), r"key_width: query_width=3, key_width=5 given; Dot needs both alike"),
        (lambda: SCORES["general"](0, 5), r"query_width: 0 given"),
        (lambda: SCORES["reduced_rank"](5, 5, rank=0), r"rank: 0 given"),  # type: ignore[call-arg]
        (lambda: SCORES["additive"](5, 5, hidden_width=0), r"hidden_width: 0 given"),  # type: ignore[call-arg]
        (lambda: SCORES["location"](5, 5, max_length=0), r"max_length: 0 given"),  # type: ignore[call-arg]
        (lambda: Hard("soft"), r"gradient: 'soft' given; allowed: reinforce, straight_through"),  # type: ignore[arg-type]
        (lambda: Hard(temperature=0), r"temperature: 0 given"),
        (lambda: Hard(temperature=0.5), r"temperature: 0.5 given; only gradient='straight_through' has one"),
        (lambda: LocalP(5, radius=0), r"radius: 0 given"),
        (lambda: LocalP(5, radius=2, hidden_width=0), r"hidden_width: 0 given"),
        (lambda: LocalP(4, radius=2)(Q, torch.tensor([7, 7])), r"query: width 5 given; LocalP was built for 4"),
        (lambda: LocalP(5, radius=2)(Q, 7), r"length: int given; it must be a tensor of integers"),
    ],
)
def test_wrong_parts_are_named(build: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_explain_says_which_and_why() -> None:
    long = torch.randn(1, 600, 4)
    assert str(explain(Q, K, K)).startswith("sdpa: the score is a dot product")
    assert str(explain(Q, K, K, return_weights=True)) == "reference: the weights were asked for"
    assert str(explain(Q, K, K, normalizer="sparsemax")) == "reference: the normalizer Sparsemax is not softmax"
    assert str(explain(Q, K, K, score=lambda q, k: q @ k.mT)) == "reference: the score <lambda> is not a dot product"
    assert explain(long, long, long, score=SCORES["additive"](4, 4)).backend == "additive"
    assert str(explain(Q, K, K, score=SCORES["additive"](5, 5))) == "reference: so few terms are quicker at once"
    assert explain(Q, K, K, score=SCORES["concat"](5, 5)).backend == "one_row"
    assert explain(long, long, long, mask=masks.window(4) & masks.causal()).backend == "window"
    assert explain(long, long, long, mask=masks.window(400)).backend == "sdpa"
    local = LocalP(5, radius=2)
    assert "local_p" in explain(Q, K, K, mask=local(Q, torch.tensor([7, 7]))).why
    assert explain(Q, K, K, backend="reference").why == "it was asked for"
    assert {explain(Q, K, K).backend, "auto"} <= set(BACKENDS)


@pytest.mark.parametrize("score_name", SCORE_NAMES)
def test_weights_on_demand_are_those_of_the_fused_output(score_name: str) -> None:
    query, key, value = random_inputs(3, num_queries=5, num_keys=7, width=11, value_width=11)
    score = build_score(score_name, 11)
    fused = attend(query, key, value, score=score, mask=masks.causal())
    output, weights = attend(query, key, value, score=score, mask=masks.causal(), return_weights=True)
    torch.testing.assert_close(fused, weights @ value)
    torch.testing.assert_close(fused, output)


@pytest.mark.parametrize("score_name", SCORE_NAMES)
@pytest.mark.parametrize("fused", [True, False])
def test_autocast_runs_every_score_in_half_precision(score_name: str, fused: bool) -> None:
    backend = ("additive" if score_name == "additive" else "auto") if fused else "reference"
    query, key, value = random_inputs(3, num_queries=5, num_keys=7, width=11, value_width=13, dtype=torch.float32)
    query.requires_grad_()
    score = build_score(score_name, 11, torch.float32)
    plain = attend(query, key, value, score=score)
    with torch.autocast("cpu", torch.bfloat16):
        cast = attend(query, key, value, score=score, backend=backend)
    cast.float().sum().backward()
    assert cast.dtype == torch.bfloat16
    torch.testing.assert_close(cast.float(), plain, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("score_name", SCORE_NAMES)
@pytest.mark.parametrize("normalizer", NORMALIZER_NAMES)
def test_compiled_equals_eager_in_one_graph(score_name: str, normalizer: str) -> None:
    kinds = [MASKS[mask_name](3, 5, 7) for mask_name in ("full", "causal_and_padding", "window_or_first")]
    compare_compiled(build_score(score_name, 11), normalizer, kinds, backend="aot_eager")


def test_a_window_compiles_in_one_graph() -> None:
    score = build_score("additive", 3)
    x = torch.randn(2, 200, 3, dtype=torch.float64)
    mask = masks.window(4) & masks.padding(torch.tensor([200, 90]))
    assert explain(x, x, x, score=score, mask=mask).backend == "window"
    compiled = torch.compile(lambda x: attend(x, x, x, score=score, mask=mask), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), attend(x, x, x, score=score, mask=mask, backend="reference"))


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler: install g++")
@pytest.mark.parametrize(("score_name", "normalizer"), [("scaled_dot", "softmax"), ("additive", "entmax15")])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_inductor_equals_eager(score_name: str, normalizer: str) -> None:
    mask = MASKS["causal_and_padding"](3, 5, 7)
    compare_compiled(build_score(score_name, 11), normalizer, [mask], backend="inductor")


@pytest.mark.parametrize("score_name", ["scaled_dot", "general", "cosine"])
@pytest.mark.parametrize("masked", [True, False])
def test_one_graph_serves_changing_sizes(score_name: str, masked: bool) -> None:
    score = build_score(score_name, 8)

    def call(x: Tensor, length: Tensor, ids: Tensor) -> Tensor:
        mask = masks.padding(length) & masks.document(ids) if masked else masks.causal()
        return attend(x, x, x, score=score, mask=mask)

    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend="aot_eager")
    for batch, steps in ((2, 5), (3, 7), (5, 11)):
        x = torch.randn(batch, steps, 8, dtype=torch.float64)
        rest = torch.arange(batch) + 2, (torch.arange(steps) // 3).expand(batch, steps)
        torch.testing.assert_close(compiled(x, *rest), call(x, *rest))


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_weights_have_every_leading_axis(backend: str) -> None:
    query, key, value = torch.randn(1, 3, 4), torch.randn(5, 4), torch.randn(2, 5, 6)
    output, weights = attend(query, key, value, backend=backend, return_weights=True)
    assert output.shape == (2, 3, 6)
    assert weights.shape == (2, 3, 5)


def compare_compiled(score: torch.nn.Module, normalizer: str, kinds: list[masks.Mask], *, backend: str) -> None:
    """Attend with each mask, all in one graph: most of what compiling costs comes once a graph."""
    inputs = [x.requires_grad_() for x in random_inputs(3, num_queries=5, num_keys=7, width=11, value_width=2)]
    kernel = "additive" if isinstance(score, Additive) else "auto"

    def call(*tensors: Tensor) -> list[Tensor]:
        return [attend(*tensors, score=score, normalizer=normalizer, mask=mask, backend=kernel) for mask in kinds]

    torch._dynamo.reset()
    eager, compiled = call(*inputs), torch.compile(call, fullgraph=True, backend=backend)(*inputs)
    parameters = [*inputs, *score.parameters()]
    for one, other in zip(eager, compiled, strict=True):
        torch.testing.assert_close(one, other)
        gradients = [
            torch.autograd.grad(out.sum(), parameters, allow_unused=True, retain_graph=True) for out in (one, other)
        ]
        for mine, theirs in zip(*gradients, strict=True):
            if mine is not None and theirs is not None:
                torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("backend", ["reference", "sdpa"])
def test_a_bias_is_added_to_the_scores(backend: str) -> None:
    query, key, value = (torch.randn(2, 3, n, 5, dtype=torch.float64, requires_grad=True) for n in (7, 11, 11))
    bias = torch.randn(3, 7, 11, dtype=torch.float64, requires_grad=True)
    allowed = torch.rand(2, 1, 7, 11) < 0.7
    allowed[0, 0, 4] = False
    output = attend(query, key, value, bias=bias, mask=masks.dense(allowed), backend=backend)
    score = (query @ key.mT / 5**0.5 + bias).masked_fill(~allowed, -1e9)
    expected = (score.softmax(-1) * allowed) @ value
    torch.testing.assert_close(output, expected)
    inputs = (query, key, value, bias)
    for mine, theirs in zip(
        torch.autograd.grad(output.square().sum(), inputs),
        torch.autograd.grad(expected.square().sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


def test_a_bias_must_fit() -> None:
    x = torch.randn(2, 5, 4)
    with pytest.raises(ValueError, match=r"bias: torch.float32 of shape \[5, 4\] given"):
        attend(x, x, x, bias=torch.zeros(5, 4))
    assert explain(x, x, x, bias=torch.zeros(5, 5), mask=masks.window(1)).backend == "sdpa"
