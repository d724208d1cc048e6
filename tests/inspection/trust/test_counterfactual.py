"""Other weights inside a model: they are what they say, and nothing stays."""

from __future__ import annotations

import pytest
import torch
from torch import Generator, Tensor, nn

from saccade.attention import MultiHeadAttention, masks
from saccade.attention.structured import StructuredSelfAttention
from saccade.inspection.trust.counterfactual import WEIGHTS, make_uniform_weights, replace_weights

ALLOWED = torch.tensor([[True, True, False, True, False], [False, True, True, True, True], [False] * 5])
OWN = torch.tensor([[0.5, 0.2, 0.0, 0.3, 0.0], [0.0, 0.1, 0.2, 0.3, 0.4], [0.0] * 5])


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_are_shares_of_the_allowed_keys(name: str) -> None:
    found = WEIGHTS[name](OWN, ALLOWED, Generator().manual_seed(1))
    assert found[~ALLOWED].eq(0).all()
    assert found.sum(-1).tolist() == pytest.approx([1.0, 1.0, 0.0])
    assert found.ge(0).all()


def test_each_kind_is_what_it_says() -> None:
    assert WEIGHTS["uniform"](OWN, ALLOWED, Generator())[1].tolist() == [0.0, 0.25, 0.25, 0.25, 0.25]
    draws = [WEIGHTS["permuted"](OWN, ALLOWED, Generator().manual_seed(seed))[1] for seed in range(300)]
    assert all(sorted(draw.tolist()) == sorted(OWN[1].tolist()) for draw in draws)
    places = torch.stack(draws).argmax(-1).bincount(minlength=5)
    assert places[0] == 0
    assert places[1:].min() > 50  # each of four places about as often
    drawn = torch.stack([WEIGHTS["random"](OWN, ALLOWED, Generator().manual_seed(seed))[1] for seed in range(300)])
    assert drawn.mean(0).tolist() == pytest.approx([0.0, 0.25, 0.25, 0.25, 0.25], abs=0.05)
    assert drawn[:, 1].std() == pytest.approx((0.25 * 0.75 / 5) ** 0.5, abs=0.03)  # of a flat Dirichlet


def test_an_attention_averages_while_it_is_told_to() -> None:
    attention, x_BSD = MultiHeadAttention(6, 2).eval(), torch.randn(3, 5, 6)
    length_B = torch.tensor([5, 2, 3])
    before = attention(x_BSD, mask=masks.padding(length_B))
    own = attention.normalizer
    with replace_weights([attention], make_uniform_weights):
        during = attention(x_BSD, mask=masks.padding(length_B))
    value_BSD = attention.value(x_BSD)
    means_BD = torch.stack([row[:length].mean(0) for row, length in zip(value_BSD, length_B.tolist(), strict=True)])
    torch.testing.assert_close(during, attention.output(means_BD)[:, None].expand(3, 5, 6))
    assert attention.normalizer is own
    assert torch.equal(attention(x_BSD, mask=masks.padding(length_B)), before)


def test_hops_are_replaced_and_penalised_as_they_are() -> None:
    attention, hidden_BSD = StructuredSelfAttention(7, hidden_width=5, num_hops=3), torch.randn(2, 4, 7)
    with replace_weights([attention], make_uniform_weights):
        output, weights, penalty = attention(hidden_BSD)
    torch.testing.assert_close(weights, torch.full((2, 3, 4), 0.25))
    torch.testing.assert_close(output, hidden_BSD.mean(1, keepdim=True).expand(2, 3, 7))
    assert penalty.tolist() == pytest.approx([3 * 0.75**2 + 6 * 0.25**2] * 2)


def test_a_failure_leaves_nothing_behind() -> None:
    modules: list[nn.Module] = [MultiHeadAttention(6, 2), MultiHeadAttention(6, 3)]
    before = [[(name, id(part)) for name, part in module.named_modules()] for module in modules]

    def fail() -> Tensor:
        with replace_weights(modules, make_uniform_weights):
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        fail()
    assert [[(name, id(part)) for name, part in module.named_modules()] for module in modules] == before
