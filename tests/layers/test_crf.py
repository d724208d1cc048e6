"""A linear chain against every sequence written out: sums, bests, marginals, and what is forbidden."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from saccade.data.tags.spans import allowed_pairs, repair_tags
from saccade.layers.crf import LinearChain

TAGS = ["O", "B-X", "I-X"]


def chain(*, is_constrained: bool = False) -> LinearChain:
    made = LinearChain(3, allowed=allowed_pairs(TAGS, "bio") if is_constrained else None).double()
    torch.nn.init.normal_(made.transition)
    return made


@torch.no_grad()
def every_score(made: LinearChain, emission_TV: Tensor) -> dict[tuple[int, ...], Tensor]:
    """s(x, y) of every y, added up by hand."""
    pair, steps = made.transition + made.get_buffer("penalty"), len(emission_TV)
    return {
        tags: sum(
            (emission_TV[t, tag] for t, tag in enumerate(tags)),
            sum((pair[a, b] for a, b in itertools.pairwise([3, *tags, 3])), torch.zeros(())),
        )
        for tags in itertools.product(range(3), repeat=steps)
    }


@pytest.mark.parametrize("is_constrained", [False, True])
def test_it_sums_and_finds_the_best_of_every_sequence(is_constrained: bool) -> None:
    made, length_B = chain(is_constrained=is_constrained), torch.tensor([5, 1, 3])
    emission_BTV = torch.randn(3, 5, 3, dtype=torch.float64)
    log_partition_B = made.log_partition(emission_BTV, length_B)
    best_BT, score_B = made.best(emission_BTV, length_B)
    marginal_BTV = made.marginals(emission_BTV, length_B)
    for row, length in enumerate(length_B.tolist()):
        scores = every_score(made, emission_BTV[row, :length])
        values = torch.stack(list(scores.values()))
        torch.testing.assert_close(log_partition_B[row], values.logsumexp(0))
        tags = max(scores, key=lambda tags: float(scores[tags]))
        assert tuple(best_BT[row].tolist()) == tags + (0,) * (5 - length)
        torch.testing.assert_close(score_B[row], scores[tags])
        shares = values.softmax(0)
        for step, tag in itertools.product(range(length), range(3)):
            wanted = sum(share for share, tags in zip(shares, scores, strict=True) if tags[step] == tag)
            torch.testing.assert_close(marginal_BTV[row, step, tag], torch.as_tensor(wanted))
        assert not marginal_BTV[row, length:].any()
        if is_constrained:
            assert repair_tags([TAGS[tag] for tag in tags], "bio").num_changed == 0


def test_the_probability_of_tags_by_hand() -> None:
    made, length_B = chain(), torch.tensor([2, 3])
    emission_BTV, tag_BT = torch.randn(2, 3, 3, dtype=torch.float64), torch.tensor([[2, 1, 0], [0, 0, 2]])
    found_B = made.log_probability(emission_BTV, tag_BT, length_B)
    for row, length in enumerate(length_B.tolist()):
        scores = every_score(made, emission_BTV[row, :length])
        wanted = scores[tuple(tag_BT[row, :length].tolist())] - torch.stack(list(scores.values())).logsumexp(0)
        torch.testing.assert_close(found_B[row], wanted)


def test_what_is_forbidden_has_probability_0_and_finite_gradients() -> None:
    made = LinearChain(3, allowed=allowed_pairs(TAGS, "bio"))
    emission_BTV, length_B = torch.zeros(1, 2, 3, requires_grad=True), torch.tensor([2])
    log_probability = made.log_probability(emission_BTV, torch.tensor([[0, 2]]), length_B)
    assert float(log_probability.detach().exp()) == 0.0
    probabilities = [
        float(made.log_probability(emission_BTV.detach(), torch.tensor([row]), length_B).detach().exp())
        for row in itertools.product(range(3), repeat=2)
    ]
    assert sum(probabilities) == pytest.approx(1.0)
    made.log_partition(emission_BTV * 200 + torch.tensor([0.0, -300.0, 300.0]), length_B).sum().backward()
    assert made.transition.grad is not None
    assert made.transition.grad.isfinite().all()


def test_gradients_against_differences() -> None:
    made, length_B = chain(is_constrained=True), torch.tensor([4, 2])
    emission_BTV = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: made.log_partition(x, length_B), emission_BTV)


def test_padding_and_batch_mates_change_nothing() -> None:
    made = chain()
    emission_BTV, length_B = torch.randn(2, 7, 3, dtype=torch.float64), torch.tensor([7, 3])
    other_BTV = emission_BTV.clone()
    other_BTV[1, 3:] = 1e6
    assert torch.equal(made.log_partition(emission_BTV, length_B), made.log_partition(other_BTV, length_B))
    alone = made.log_partition(emission_BTV[1:, :3], length_B[1:])
    torch.testing.assert_close(made.log_partition(emission_BTV, length_B)[1:], alone)


def test_without_learning_it_is_each_token_for_itself_but_for_the_table() -> None:
    made, emission_BTV, length_B = LinearChain(3, is_learned=False), torch.randn(2, 5, 3), torch.tensor([5, 5])
    assert torch.equal(made.best(emission_BTV, length_B)[0], emission_BTV.argmax(-1))
    torch.testing.assert_close(made.marginals(emission_BTV, length_B), emission_BTV.softmax(-1))
    assert not made.transition.requires_grad
