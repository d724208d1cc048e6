"""Heads as aligners: their links, and their scores against gold and against each other."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from saccade.inspection.align.heads import (
    AgreementTally,
    CoverageTally,
    GoldTally,
    HeadScore,
    find_best_head,
    link_words,
    list_candidates,
    list_links,
    stack_candidate_weights,
)
from saccade.inspection.align.links import AlignmentScores, Gold, Links, reverse, score_links
from saccade.inspection.insight import Head

B, L, H, T, S = 2, 3, 5, 7, 11


def weights(*shape: int) -> Tensor:
    return torch.rand(*shape).softmax(-1)


def test_every_candidate_weighs_what_its_head_does() -> None:
    weight_BLHTS = weights(B, L, H, T, S)
    found_BCTS = stack_candidate_weights(weight_BLHTS)
    heads = list_candidates(L, H)
    assert len(heads) == len(set(heads)) == 2 * L * (H + 1) == found_BCTS.shape[1]
    for row, weight_LHTS in enumerate(weight_BLHTS):
        for index, head in enumerate(heads):
            torch.testing.assert_close(found_BCTS[row, index, :-1], head.of(weight_LHTS)[:-1])  # but for </s>


def test_a_target_word_has_one_link_to_its_greatest_weight_but_never_to_the_end() -> None:
    end = 0.9
    weight_TS = torch.tensor([[0.1, 0.3, 0.2, end], [0.5, 0.0, 0.1, 0.2], [0.0, 0.0, 0.0, end], [0.4, 0.4, 0.1, end]])
    assert list_links(link_words(weight_TS)) == {
        (1, 0),
        (0, 1),
    }  # of the third all that is left weighs nothing; </s> is left out
    assert link_words(weight_TS).shape == (3, 3)


@pytest.mark.parametrize("shape", [(2, 1, 4), (2, 4, 1), (2, 1, 1)])
def test_blank_texts_have_no_links(shape: tuple[int, int, int]) -> None:
    assert not link_words(torch.full(shape, torch.nan)).any()
    assert link_words(weights(*shape)).shape == (2, shape[1] - 1, shape[2] - 1)


def test_words_that_were_not_read_have_no_links() -> None:
    weight_TS = weights(4, 5)
    weight_TS[1] = torch.nan
    assert {target for _, target in list_links(link_words(weight_TS))} == {0, 2}


def some_gold(num_source: int, num_target: int) -> Gold:
    mask_2TS = torch.rand(2, num_target, num_source) > 0.7
    return Gold(list_links(mask_2TS[0]), list_links(mask_2TS.any(0)))


def test_tallied_scores_are_those_of_the_links() -> None:
    heads = list_candidates(2, 1)
    tally, gold, found = GoldTally(heads), [], []
    for size in ((5, 3), (2, 7), (4, 4)):
        gold.append(some_gold(*size))
        found.append(link_words(weights(len(heads), size[1] + 1, size[0] + 1)))
        tally.add(found[-1], gold[-1])
    for index, score in enumerate(tally.scores()):
        assert score == HeadScore(heads[index], score_links([list_links(one[index]) for one in found], gold))


def test_the_best_is_the_lowest_error_and_of_equals_the_first() -> None:
    wrong, right = AlignmentScores(5, 5, 2, 2), AlignmentScores(5, 5, 4, 4)
    scores = [HeadScore(Head(layer), one) for layer, one in enumerate((wrong, right, right))]
    assert find_best_head(scores).head == Head(1)


def test_agreement_by_hand() -> None:
    def mask(*links: tuple[int, int]) -> Tensor:
        found = torch.zeros(3, 2, dtype=torch.bool)  # 3 target words, 2 source words
        for source, target in links:
            found[target, source] = True
        return found

    one, other, third = Head(0), Head(1), Head(2)
    tally = AgreementTally([one, other], [third, one, other])
    forward = torch.stack([mask((0, 0), (0, 1), (0, 2)), mask((0, 0), (1, 1), (1, 2))])
    backward = torch.stack([mask((1, 0), (0, 1)).T, mask((0, 0), (1, 2)).T, mask((0, 2), (1, 2)).T])
    tally.add(forward, backward)
    found = tally.best()
    assert (found.forward, found.backward) == (other, one)
    assert found.f1 == pytest.approx(2 * 2 / (3 + 2))
    tally.add(forward[:, :1], backward[..., :1])  # the first target word alone: 0-0 both; 1 link and 1 link
    assert tally.best().f1 == pytest.approx(2 * (2 + 1) / (5 + 2))


def test_agreement_is_the_f1_of_one_against_the_other() -> None:
    heads = list_candidates(1, 2)
    forward, backward = link_words(weights(len(heads), 6, 8)), link_words(weights(len(heads), 8, 6))
    tally = AgreementTally(heads, heads)
    tally.add(forward, backward)
    found = tally.best()

    def f1(there: Tensor, back: Tensor) -> float:
        one: Links = list_links(there)
        other = reverse(list_links(back))
        return 1 - score_links([one], [Gold(other, other)]).aer  # with all links sure, AER is 1 - F1

    every = [f1(there, back) for there in forward for back in backward]
    assert found.f1 == pytest.approx(max(every))
    assert f1(forward[heads.index(found.forward)], backward[heads.index(found.backward)]) == pytest.approx(found.f1)


def test_coverage_by_hand() -> None:
    tally = CoverageTally([Head(0), Head(1)])
    tally.add(torch.tensor([[[True, False], [True, False]], [[True, False], [False, True]]]))  # 1 of 2, and 2 of 2
    tally.add(torch.tensor([[[True, False, False]], [[False, False, True]]]))
    assert tally.best() == (Head(1), 3 / 5)
    assert CoverageTally([Head(0)]).best() == (Head(0), 0)
