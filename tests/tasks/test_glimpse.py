"""The hybrid loss by hand, the plan of its noise, and prediction that is repeatable."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from saccade.data.canvases import Canvases
from saccade.data.images import Images
from saccade.data.mistakes import Mistake
from saccade.models.glimpse_network import Gaze, GlimpseNetwork
from saccade.tasks.glimpse import Annealed, Glimpser, HybridLoss, Picture, same_names

NAMES = ["cat", "dog", "owl"]
RANDOM = np.random.default_rng(4)


def network(**options: Any) -> GlimpseNetwork:
    return GlimpseNetwork(3, **{"size": 4, "num_scales": 2, "num_glimpses": 5, "width": 11} | options).eval()


def glimpser(**options: Any) -> Glimpser:
    model = network(**options.pop("network", {}))
    given = {"canvases": Canvases(), "side": 13, "std": 0.3, "samples": 7} | options
    return Glimpser(model, NAMES, **given)


def loss(**options: Any) -> HybridLoss:
    pixels = torch.randint(0, 256, (17, 1, 13, 13), dtype=torch.uint8)
    return HybridLoss(network(), pixels, torch.arange(17) % 3, Canvases(), **options)


def gaze(logits_TNV: Tensor, mean_TN2: Tensor, wander_TN2: Tensor, baseline_TN: Tensor) -> Gaze:
    return Gaze((mean_TN2 + wander_TN2).detach(), mean_TN2, logits_TNV, baseline_TN)


STD = torch.tensor(0.5)
LABELS = torch.tensor([1, 0])
LOGITS = torch.tensor([[[0.0, 0, 0], [1, 0, 0]], [[0.0, 2, 0], [0, 0, 3]]])  # in the end the first is right


@pytest.mark.parametrize("reward", ["right", "probability"])
def test_the_loss_by_hand(reward: str) -> None:
    mean = torch.tensor([[[0.0, 0], [0, 0]], [[0.1, 0.2], [0.3, 0.4]]], requires_grad=True)
    wander = torch.tensor([[[0.0, 0], [0, 0]], [[0.5, 0.0], [-0.25, 1.0]]])
    baseline = torch.tensor([[0.0, 0], [0.25, 0.5]], requires_grad=True)
    entropy = [-math.log(math.exp(2) / (2 + math.exp(2))), -math.log(1 / (2 + math.exp(3)))]
    rewards = [1.0, 0.0] if reward == "right" else [math.exp(-part) for part in entropy]
    surprise = [rewards[0] - 0.25, rewards[1] - 0.5]
    policy = [(1 + 0) / 2 * surprise[0], (0.25 + 4) / 2 * surprise[1]]  # - log pi (R - b), up to a constant
    total, shown = loss(reward=reward).of(gaze(LOGITS, mean, wander, baseline), LABELS, STD)
    assert float(shown) == pytest.approx(sum(entropy))
    assert float(total.detach()) == pytest.approx(sum(entropy) + sum(policy) + sum(part**2 for part in surprise))
    total.backward()
    assert mean.grad is not None
    assert baseline.grad is not None
    for row in range(2):  # d/dmean = -(l - mean) / std^2 (R - b); the baseline's gradient is its own error's alone
        pull = [-float(wander[1, row, axis]) / 0.25 * surprise[row] for axis in range(2)]
        assert mean.grad[1, row].tolist() == pytest.approx(pull)
        assert float(baseline.grad[1, row]) == pytest.approx(-2 * surprise[row])
    assert not mean.grad[0].any()  # nobody chose the first location


def test_weights_of_the_loss() -> None:
    mean, baseline = torch.zeros(2, 2, 2), torch.zeros(2, 2)
    seen = gaze(LOGITS, mean, torch.ones(2, 2, 2), baseline)
    plain, _ = loss(policy_weight=0.0).of(seen, LABELS, STD)
    heavy, _ = loss(policy_weight=3.0).of(seen, LABELS, STD)
    early, _ = loss(policy_weight=0.0, early_weight=0.5).of(seen, LABELS, STD)
    assert float(heavy - plain) == pytest.approx(3 * 4 * 1)  # |l - mean|^2 / 2 std^2 = 4 for the one that is right
    first = [math.log(3), -math.log(math.e / (math.e + 2))]
    assert float(early - plain) == pytest.approx(0.5 * sum(first), rel=1e-5)
    copies, _ = loss(policy_weight=0.0, copies=2).of(seen, LABELS, STD)
    assert float(copies) == pytest.approx(float(plain) / 2)


def test_a_batch_has_a_loss_of_each_picture_and_copy() -> None:
    hybrid = loss(copies=3, is_first_random=True)
    batch = Annealed(_Plan(), 0.2, 0.1, 10).load((0.2, np.array([2, 5])))
    assert (batch.num_items, float(batch.std)) == (2, pytest.approx(0.2))
    torch.manual_seed(1)
    total, shown = hybrid(batch.to(torch.device("cpu")))
    assert total.isfinite()
    assert 0 < float(shown) < 2 * 10
    torch.manual_seed(1)
    assert torch.equal(total, hybrid(batch)[0])  # all that is random comes from torch's generator
    assert not torch.equal(total, hybrid(batch)[0])


class _Plan:
    def epoch(self, number: int) -> list[NDArray[np.int64]]:
        return [np.arange(3) + number, np.arange(2)]


def test_locations_wander_less_and_less() -> None:
    plan = Annealed(_Plan(), 0.4, 0.1, 4)
    found = [std for number in range(3) for std, _ in plan.epoch(number)]
    assert found == pytest.approx([0.4, 0.4 * 0.25**0.25, 0.2, 0.4 * 0.25**0.75, 0.1, 0.1])
    assert plan.epoch(2)[0][1].tolist() == [2, 3, 4]


def test_prediction_is_repeatable_and_batch_mates_change_nothing() -> None:
    model = glimpser()
    pictures = [RANDOM.integers(0, 256, (13, 13), np.uint8) for _ in range(5)]
    together = model.predict(pictures)
    assert [one.probabilities for one in model.predict(pictures)] == [one.probabilities for one in together]
    (alone,) = model.predict(pictures[3:4])
    assert alone.probabilities == pytest.approx(together[3].probabilities, abs=1e-5)
    assert sum(alone.probabilities.values()) == pytest.approx(1, abs=1e-5)
    assert alone.label == max(alone.probabilities, key=lambda name: alone.probabilities[name])


def test_probabilities_are_the_mean_over_paths_and_the_first_follows_the_means() -> None:
    model = glimpser()
    image = torch.randint(0, 256, (2, 1, 13, 13), dtype=torch.uint8)
    wander = model.wander(3)
    mean_TNV, path_TN2 = model.probabilities(image, wander)
    each = [model.probabilities(image, wander[:, :, copy : copy + 1])[0] for copy in range(3)]
    torch.testing.assert_close(mean_TNV, torch.stack(each).mean(0))
    assert not torch.equal(each[0], each[1])
    still = model.network(image.float() / 255, torch.zeros(5, 1, 1, 2))
    torch.testing.assert_close(path_TN2, still.mean_TN2)


def test_a_random_first_look_is_the_same_for_every_picture() -> None:
    wander = glimpser(is_first_random=True).wander(5)
    assert wander.shape == (5, 1, 5, 2)
    assert (wander[0].abs() > 0).all()
    assert not wander[1:, :, 0].any()
    assert not glimpser().wander(5)[0].any()


def test_small_pictures_are_put_in_the_middle_and_sizes_may_differ() -> None:
    model = glimpser(batch_size=2)
    small = RANDOM.integers(1, 256, (7, 8), np.uint8)
    sizes = [(7, 8), (13, 13), (13, 13), (13, 13), (29, 17)]
    results = model.predict([small, *(np.zeros(size, np.uint8) for size in sizes[1:])])
    assert [one.path.image_CYX.shape[1:] for one in results] == [(13, 13)] * 4 + [(29, 17)]
    assert (results[0].path.image_CYX[0, 3:10, 2:10] == small).all()
    assert (results[0].path.image_CYX > 0).sum() == 56


def test_results_in_words_numbers_and_pictures(tmp_path: Path) -> None:
    model = glimpser()
    file = tmp_path / "x.png"
    Image.fromarray(RANDOM.integers(0, 256, (13, 17), np.uint8)).save(file)
    (seen,) = model.predict(model.read(file))
    assert seen.line() == f"{file}\t{seen.label}\t{seen.probability:.4f}"
    assert [*seen.plain()] == ["name", "label", "probabilities", "path"]
    assert seen.plain()["path"][0] == [8.5, 6.5]  # the first look is at the middle
    assert model.predict([str(file)])[0].probabilities == seen.probabilities
    seen.draw(tmp_path / "path.png")
    seen.draw(tmp_path / "path.gif")
    with Image.open(tmp_path / "path.gif") as moving:
        assert moving.n_frames == 5  # type: ignore[attr-defined]
    assert (tmp_path / "path.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(Mistake, match=r"path.txt: a path of glimpses ends in .png or .gif"):
        seen.draw(tmp_path / "path.txt")


def test_measures() -> None:
    model = glimpser()
    canvases = torch.randint(0, 256, (11, 1, 13, 13), dtype=torch.uint8)
    said = model.probabilities(canvases, model.wander(7))[0][-1]
    label = said.argmax(-1)
    found = model.measure(canvases, label)
    assert found["accuracy"] == 100
    assert found["loss"] == pytest.approx(float(-said.max(-1).values.log().mean()), rel=1e-5)
    label[0] = (label[0] + 1) % 3
    assert model.measure(canvases, label)["error"] == pytest.approx(100 / 11)


def test_classes_are_matched_by_name() -> None:
    images = Images(np.zeros((3, 1, 5, 5), np.uint8), np.array([0, 1, 1]), ["dog", "owl"])
    found = same_names(images, NAMES, "here")
    assert (found.label_N.tolist(), found.names) == ([1, 2, 2], NAMES)
    with pytest.raises(Mistake, match="here: class 'dog' isn't among those of training: cat, owl"):
        same_names(images, ["cat", "owl"], "here")


def test_mistakes(tmp_path: Path) -> None:
    model = glimpser()
    with pytest.raises(Mistake, match="--input: missing"):
        model.read(None)
    with pytest.raises(Mistake, match=r"float64 of shape \(5,\) given; allowed: uint8"):
        model.predict([np.zeros(5)])
    with pytest.raises(Mistake, match="red: 3 channels; the model has learned 1"):
        model.predict([Picture("red", np.zeros((3, 5, 5), np.uint8))])
    with pytest.raises(Mistake, match="0 files given; allowed: images and labels"):
        model.images([])
    with pytest.raises(Mistake, match="no file or folder"):
        model.images([tmp_path / "gone"])
