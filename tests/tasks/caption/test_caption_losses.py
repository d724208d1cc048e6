"""What a captioner learns by: cross-entropy, the doubly stochastic penalty by hand, REINFORCE against its equation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.data.pictures.captions import CaptionBatch
from saccade.layers.image_encoder import FeatureEncoder
from saccade.models.captioner import Captioner, PlaceWeights
from saccade.models.seq2seq import RecurrentSizes
from saccade.tasks.caption.loss import Weights, caption_loss, coverage_penalty, policy_loss, turn_at_random


def build(attention: str = "soft") -> Captioner:
    encoder = FeatureEncoder(12, rows=2, columns=3, channels=5)
    return Captioner(encoder, vocabulary=13, sizes=RecurrentSizes(12, 10, cell="lstm"), attention=attention).double()


def batch() -> CaptionBatch:
    source, length_B = torch.randn(3, 6, 5, dtype=torch.float64), torch.tensor([5, 2, 4])
    real = torch.arange(5) < length_B[:, None]
    read, write = (torch.randint(4, 13, (3, 5)).where(real, 0) for _ in range(2))
    return CaptionBatch(source, torch.full((3,), 6), read, write, length_B)


def test_without_extras_it_is_cross_entropy_of_the_real_words() -> None:
    model, given = build().eval(), batch()
    loss, likelihood = caption_loss(model, given, Weights())
    expected = torch.zeros((), dtype=torch.float64)
    for row, length in enumerate(given.length_B.tolist()):
        vectors, _ = model(given.source[row : row + 1], given.places_B[:1], given.read_BT[row : row + 1, :length])
        expected += F.cross_entropy(model.logits(vectors)[0], given.write_BT[row, :length], reduction="sum")
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(likelihood, expected.detach())
    assert given.num_items == 11


def test_what_is_not_covered_by_hand() -> None:
    weight_BTS = torch.tensor([[[0.5, 0.5, 0.0], [0.25, 0.0, 0.75], [9.0, 9.0, 9.0]]])
    real_BT = torch.tensor([[True, True, False]])
    assert float(coverage_penalty(weight_BTS, real_BT)) == pytest.approx(0.25**2 + 0.5**2 + 0.25**2)


@pytest.mark.parametrize(("turning", "ways"), [("mirror", 2), ("square", 8)])
def test_pictures_are_turned_as_wholes(turning: str, ways: int) -> None:
    """Every frame of a clip goes the same way; a square has eight ways to lie, a mirror two."""
    torch.manual_seed(3)
    clip_FCYX = torch.randint(256, (2, 3, 5, 5), dtype=torch.uint8)
    quarters = [clip_FCYX.rot90(count, (-2, -1)) for count in range(4)]
    lying = [*quarters, *(one.flip(-1) for one in quarters)] if turning == "square" else [clip_FCYX, clip_FCYX.flip(-1)]
    found = turn_at_random(clip_FCYX.expand(99, -1, -1, -1, -1), turning)
    seen = {next(way for way, one in enumerate(lying) if torch.equal(one, clip)) for clip in found}
    assert seen == set(range(ways))


def test_clips_are_turned_in_training_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.tasks.caption.loss.turn_at_random", lambda pixel, turning: pixel * (turning == "none"))
    given = batch()
    for model in (build().eval(), build().train()):
        same, turned = (caption_loss(model, given, Weights(), turning=way)[0] for way in ("none", "square"))
        assert bool(same == turned) != model.training


def test_coverage_and_padding() -> None:
    model, given = build().eval(), batch()
    plain, covered = (caption_loss(model, given, Weights(coverage=share))[0] for share in (0.0, 2.0))
    alone = [
        caption_loss(
            model,
            CaptionBatch(
                given.source[row : row + 1],
                given.places_B[:1],
                given.read_BT[row : row + 1, :length],
                given.write_BT[row : row + 1, :length],
                given.length_B[row : row + 1],
            ),
            Weights(coverage=2.0),
        )[0]
        for row, length in enumerate(given.length_B.tolist())
    ]
    assert covered > plain
    torch.testing.assert_close(sum(alone), covered)


def test_reinforce_by_hand() -> None:
    """Each sampled look is praised for log p - b of the words from its own on; expected rows get nothing."""
    model = build("hard")
    model.baseline.fill_(-1.0)
    log_p_BT = torch.tensor([[-0.5, -2.0, 0.0], [-1.0, -1.0, -3.0]], dtype=torch.float64)
    real_BT = torch.tensor([[True, True, False], [True, True, True]])
    picked_BT = torch.tensor([[-0.1, -0.2, -0.3], [0.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    expected_BTS = torch.full((2, 3, 4), 0.25, dtype=torch.float64)
    glance = PlaceWeights(expected_BTS, expected_BTS, picked_BT)
    loss = policy_loss(model, log_p_BT, glance, real_BT, Weights(reinforce=2.0, entropy=3.0))
    later = [0.5 - 1.0, -1.0]
    entropy = 5 * torch.tensor(4.0).log()
    expected = -2.0 * (later[0] * -0.1 + later[1] * -0.2) - 3.0 * entropy
    assert loss.item() == pytest.approx(float(expected))
    (grad_BT,) = torch.autograd.grad(loss, picked_BT)
    torch.testing.assert_close(grad_BT[0], torch.tensor([1.0, 2.0, 0.0], dtype=torch.float64))
    assert (grad_BT[1] == 0).all()
    assert float(model.baseline) == pytest.approx(0.9 * -1.0 + 0.1 * -1.25)  # of the sampled rows alone


def test_reinforce_points_where_the_exact_gradient_does() -> None:
    """The mean over many samples of the policy's gradient is that of the expected reward."""
    torch.manual_seed(1)
    score_S = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64, requires_grad=True)
    reward_S = torch.tensor([-0.1, -2.0, -1.0], dtype=torch.float64)
    (exact_S,) = torch.autograd.grad(-(score_S.softmax(-1) * reward_S).sum(), score_S)
    model, count = build("hard"), 40_000
    model.baseline.fill_(-1.0)
    place_N = torch.multinomial(score_S.detach().softmax(-1), count, replacement=True)
    log_p_N1: Tensor = score_S.log_softmax(-1)[place_N][:, None]
    weight_N1S = F.one_hot(place_N, 3).double()[:, None]
    expected_N1S = score_S.softmax(-1).expand(count, 1, 3)
    glance = PlaceWeights(weight_N1S, expected_N1S, log_p_N1)
    loss = policy_loss(model, reward_S[place_N][:, None], glance, torch.ones(count, 1, dtype=torch.bool), Weights())
    (found_S,) = torch.autograd.grad(loss / count, score_S)
    torch.testing.assert_close(found_S, exact_S, atol=0.02, rtol=0.0)


def test_hard_attention_learns_where_to_look_only_while_training() -> None:
    model, given = build("hard"), batch()
    before = float(model.baseline)
    caption_loss(model.eval(), given, Weights())
    assert float(model.baseline) == before
    torch.manual_seed(2)
    caption_loss(model.train(), given, Weights(entropy=0.1))[0].backward()
    assert float(model.baseline) != before
    score = model.decoder.gaze.aligner.score
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in score.parameters())
