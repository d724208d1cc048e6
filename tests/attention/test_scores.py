"""The equations, in cases small enough to work by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from saccade import SCORES, attend
from saccade.attention import Score
from saccade.attention.scores import Additive, Concat, Cosine, General, LearnedScore, Location, ReducedRank
from saccade.ops.kernels.unit import set_length, unit

QUERY = torch.tensor([[1.0, 2.0]])
KEYS = torch.tensor([[3.0, 4.0], [0.0, -1.0]])


def scored(score: Score, **parameters: list[object] | float) -> list[float]:
    for name, values in parameters.items():
        getattr(score, name).data = torch.tensor(values)
    return score(QUERY, score.memory(KEYS))[0].tolist()


def test_parameter_free_scores_by_hand() -> None:
    assert scored(SCORES["mean"]()) == [0, 0]
    assert scored(SCORES["dot"]()) == [11, -2]
    assert scored(SCORES["scaled_dot"]()) == pytest.approx([11 / math.sqrt(2), -2 / math.sqrt(2)])


def test_general_by_hand() -> None:
    # W k = [3 + 8, 4] and [-2, -1]; times (1, 2)
    assert scored(General(2, 2), W=[[1.0, 2.0], [0.0, 1.0]]) == [19, -4]


def test_reduced_rank_by_hand() -> None:
    # U q = 1 + 2 = 3; V k = 2 * 3 - 4 = 2 and 1
    assert scored(ReducedRank(2, 2, rank=1), U=[[1.0, 1.0]], V=[[2.0, -1.0]]) == [6, 3]


def test_additive_by_hand() -> None:
    # one hidden unit: 0.5 tanh(q1 + k2 + 0.25)
    score = Additive(2, 2, hidden_width=1)
    expected = [0.5 * math.tanh(1 + 4 + 0.25), 0.5 * math.tanh(1 - 1 + 0.25)]
    assert scored(score, W=[[1.0, 0.0]], U=[[0.0, 1.0]], b=[0.25], v=[0.5]) == pytest.approx(expected)


def test_concat_by_hand() -> None:
    assert scored(Concat(2, 2), w=[1.0, 2.0, 3.0, 4.0]) == [5 + 25, 5 - 4]


def test_cosine_by_hand() -> None:
    expected = [3 * 11 / (math.sqrt(5) * 5), 3 * -2 / math.sqrt(5)]
    assert scored(Cosine(2, 2), beta=3.0) == pytest.approx(expected)


@pytest.mark.parametrize("heads", [(), (3,), (3, 1)])
def test_a_learned_parameter_may_be_one_number(heads: tuple[int, ...]) -> None:
    class Scaled(LearnedScore):
        def __init__(self, query_width: int, key_width: int, *, heads: tuple[int, ...] = ()) -> None:
            super().__init__(query_width, key_width, heads=heads)
            self.drawn, self.set = self._parameter(std=0.5), self._parameter(value=2.0)

    score = Scaled(4, 4, heads=heads)
    assert score.drawn.shape == score.set.shape == heads
    assert score.set.eq(2).all()
    assert score.drawn.abs().gt(0).all()


def test_cosine_of_a_zero_vector_is_zero_in_every_precision() -> None:
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        query = torch.zeros(1, 4, dtype=dtype, requires_grad=True)
        score = Cosine(4, 4).to(dtype)
        result = score(query, score.memory(torch.ones(3, 4, dtype=dtype)))
        assert (result == 0).all()
        assert (torch.autograd.grad(result.sum(), query)[0] == 0).all()


def test_unit_vectors_equal_torchs_and_obey_its_rules_for_operators() -> None:
    vector = torch.randn(3, 5, 7, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(unit(vector), torch.nn.functional.normalize(vector, dim=-1))
    assert torch.autograd.gradcheck(unit, vector)
    torch.library.opcheck(set_length, (vector, torch.rand(3, 5, 1, dtype=torch.float64, requires_grad=True)))


def test_location_by_hand() -> None:
    assert scored(Location(2, 2, max_length=3), W=[[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]]) == [1, 2]


@pytest.mark.parametrize("name", SCORES)
def test_a_decoder_can_cache_the_memory_of_scores_that_say_so(name: str) -> None:
    score = SCORES[name](3, 3)
    memory = score.memory(torch.randn(5, 3))
    form = score.as_dot(torch.randn(2, 3), memory)
    holds = form is not None and form.key is memory and memory.shape == (5, 3)
    assert score.dots_memory == holds


@pytest.mark.parametrize("name", ["general", "reduced_rank", "additive", "concat", "cosine", "location"])
def test_scores_start_with_about_unit_variance(name: str) -> None:
    score = SCORES[name](512, 512)
    query, key = torch.randn(61, 512), torch.randn(67, 512)
    assert 0.2 < score(query, score.memory(key)).std() < 1.5


@pytest.mark.parametrize("name", list(SCORES))
def test_memory_is_paid_once_and_gives_the_same(name: str) -> None:
    score = SCORES[name](7, 7)
    query, key, value = torch.randn(2, 3, 7), torch.randn(2, 5, 7), torch.randn(2, 5, 11)
    memory = score.memory(key)
    for step in range(3):
        asked = attend(query[:, step : step + 1], None, value, score=score, memory=memory)
        whole = attend(query, key, value, score=score)[:, step : step + 1]
        torch.testing.assert_close(asked, whole)


@pytest.mark.parametrize("name", list(SCORES))
def test_each_head_has_its_own_parameters(name: str) -> None:
    score = SCORES[name](7, 7, heads=(3,))
    query, key = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7)
    together = score(query, score.memory(key))
    for head in range(3):
        alone = SCORES[name](7, 7)
        alone.load_state_dict({n: p[head] for n, p in score.state_dict().items()})
        torch.testing.assert_close(alone(query[:, head], alone.memory(key[:, head])), together[:, head])


def test_any_callable_is_a_score() -> None:
    def nearness(query: Tensor, key: Tensor) -> Tensor:
        return -torch.cdist(query, key)

    query, key = torch.randn(2, 3, 5), torch.randn(2, 7, 5)
    _, weights = attend(query, key, key, score=nearness, return_weights=True)
    torch.testing.assert_close(weights, (-torch.cdist(query, key)).softmax(-1))


def test_concat_ignores_the_query_after_normalising() -> None:
    score = Concat(3, 5)
    key = torch.randn(2, 7, 5)
    one, other = (attend(torch.randn(2, 4, 3), key, key, score=score) for _ in range(2))
    torch.testing.assert_close(one, other)
