"""Several models as one: a mixture, decoded like any other model."""

from __future__ import annotations

import pytest
import torch

from saccade.data.text.tokenizer import END, START
from saccade.decoding import BeamOptions, Ensemble, beam_search
from steppers import small_transformer


def test_two_equal_models_are_the_model() -> None:
    model = small_transformer()
    source, length = torch.randint(4, 11, (3, 7)), torch.tensor([7, 3, 5])
    options = BeamOptions(width=3, num_best=2)
    alone = beam_search(model, source, length, options)
    together = beam_search(Ensemble([model, model]), source, length, options)
    for ours, theirs in zip(alone, together, strict=True):
        assert [h.ids for h in ours] == [h.ids for h in theirs]
        assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], abs=1e-4)


def test_it_is_the_mean_of_probabilities() -> None:
    members = [small_transformer(), small_transformer()]
    source, length = torch.randint(4, 11, (1, 5)), torch.tensor([5])
    ((found,),) = beam_search(Ensemble(members), source, length, BeamOptions())
    read, written = torch.tensor([[START, *found.ids]]), torch.tensor([*found.ids, END])
    steps = torch.stack([member.logits(member(source, length, read)).softmax(-1)[0] for member in members]).mean(0)
    count = len(found.log_probabilities)
    expected = steps[:count].gather(1, written[:count, None])[:, 0].log().tolist()
    assert found.log_probabilities == pytest.approx(expected, abs=1e-4)


class WithoutAttention(torch.nn.Module):
    def cross_attention(self, source_BS: torch.Tensor, _length: torch.Tensor, read_BT: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(source_BS), 0, 1, read_BT.shape[1], source_BS.shape[1])


def test_attention_is_the_mean_of_those_that_have_it() -> None:
    members = [small_transformer(), small_transformer()]
    given = torch.randint(4, 11, (2, 5)), torch.tensor([5, 3]), torch.randint(4, 11, (2, 7))
    weights = [member.cross_attention(*given)[:, -1].mean(1) for member in members]
    found = Ensemble([*members, WithoutAttention()]).cross_attention(*given)
    assert found.shape == (2, 1, 1, 7, 5)
    torch.testing.assert_close(found[:, 0, 0], (weights[0] + weights[1]) / 2)
    assert Ensemble([WithoutAttention()]).cross_attention(*given).shape[1] == 0
