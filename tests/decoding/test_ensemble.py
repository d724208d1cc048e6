"""Several models as one: a mixture, decoded like any other model."""

from __future__ import annotations

import pytest
import torch

from saccade.data.text.tokenizer import END, START
from saccade.decoding import BeamOptions, Ensemble, beam_search
from saccade.inspection.record import cross_weights
from saccade.models.seq2seq import RecurrentSizes, Seq2Seq
from saccade.tasks.translate.predictor import source_weights
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


def without_attention() -> Seq2Seq:
    sizes = RecurrentSizes(width=6, embedding_width=5)
    return Seq2Seq(source=11, target_vocabulary=11, sizes=sizes, attention="none").eval()


def test_attention_is_the_mean_of_those_that_have_it() -> None:
    members = [small_transformer(), small_transformer()]
    given = torch.randint(4, 11, (2, 5)), torch.tensor([5, 3]), torch.randint(4, 11, (2, 7))
    weights = [cross_weights(member, *given)[:, -1].mean(1) for member in members]
    found = source_weights(Ensemble([*members, without_attention()]), *given)
    assert found.shape == (2, 1, 1, 7, 5)
    torch.testing.assert_close(found[:, 0, 0], (weights[0] + weights[1]) / 2)
    assert source_weights(Ensemble([without_attention()]), *given).shape[1] == 0
