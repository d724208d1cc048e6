"""Prediction through glimpses: repeatable, batch by batch the same, drawn and scored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.data.pictures.canvases import Canvases
from saccade.data.pictures.images import Images
from saccade.errors import UserError
from saccade.models.glimpse_network import GlimpseNetwork
from saccade.tasks.glimpse.pictures import number_classes
from saccade.tasks.glimpse.predictor import Glimpser, Picture

NAMES = ["cat", "dog", "owl"]
RANDOM = np.random.default_rng(4)


def network(**options: Any) -> GlimpseNetwork:
    return GlimpseNetwork(3, **{"size": 4, "num_scales": 2, "num_glimpses": 5, "width": 11} | options).eval()


def glimpser(**options: Any) -> Glimpser:
    model = network(**options.pop("network", {}))
    given: dict[str, Any] = {"canvases": Canvases(), "shape": (13, 13), "std": 0.3, "samples": 7} | options
    return Glimpser(model, NAMES, **given)


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
    noise = model.draw_noise(3)
    mean_TNV, path_TN2 = model.probabilities(image, noise)
    each = [model.probabilities(image, noise[:, :, copy : copy + 1])[0] for copy in range(3)]
    torch.testing.assert_close(mean_TNV, torch.stack(each).mean(0))
    assert not torch.equal(each[0], each[1])
    still = model.network(image.float() / 255, torch.zeros(5, 1, 1, 2))
    torch.testing.assert_close(path_TN2, still.mean_TN2)


def test_a_random_first_look_is_the_same_for_every_picture() -> None:
    noise = glimpser(is_first_random=True).draw_noise(5)
    assert noise.shape == (5, 1, 5, 2)
    assert (noise[0].abs() > 0).all()
    assert not noise[1:, :, 0].any()
    assert not glimpser().draw_noise(5)[0].any()


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
    assert [*seen.plain()] == ["name", "label", "probabilities", "path", "beliefs"]
    assert seen.plain()["beliefs"][-1] == pytest.approx(seen.plain()["probabilities"], abs=1e-4)
    assert seen.plain()["path"][0] == [8.5, 6.5]  # the first look is at the middle
    assert model.predict([str(file)])[0].probabilities == seen.probabilities
    seen.draw(tmp_path / "path.png")
    seen.draw(tmp_path / "path.gif")
    with Image.open(tmp_path / "path.gif") as moving:
        assert moving.n_frames == 5  # type: ignore[attr-defined]
    assert (tmp_path / "path.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UserError, match=r"path.txt: a path of glimpses ends in .png or .gif"):
        seen.draw(tmp_path / "path.txt")


def test_scores() -> None:
    model = glimpser()
    canvases = torch.randint(0, 256, (11, 1, 13, 13), dtype=torch.uint8)
    share_TNV = model.probabilities(canvases, model.draw_noise(7))[0]
    label = share_TNV[-1].argmax(-1)
    found = model.scores(canvases, label)
    assert (found.accuracy, found.error, found.said_N.tolist()) == (100, 0, label.tolist())
    assert found.loss == pytest.approx(float(-share_TNV[-1].max(-1).values.log().mean()), rel=1e-5)
    label[0] = (label[0] + 1) % 3
    found = model.scores(canvases, label)
    assert found.error == pytest.approx(100 / 11)
    assert found.error_by_glimpse[0] == pytest.approx(100 * float((share_TNV[0].argmax(-1) != label).float().mean()))


def test_evaluation_of_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", images=RANDOM.integers(0, 256, (11, 13, 13), np.uint8), labels=np.arange(11) % 3)
    model = replace(glimpser(), names=["0", "1", "2"])
    found = model.evaluate([tmp_path / "x.npz"], samples=2)
    assert found.scores["num_pictures"] == 11
    wrong = round(found.scores["error"] * 11 / 100)
    assert found.lines[0] == f"error {found.scores['error']:.2f}%  ({wrong} of 11 pictures, 2 paths each)"
    assert found.scores == model.evaluate([tmp_path / "x.npz"], samples=2).scores
    assert len(found.scores["error_by_glimpse"]) == 5


def test_classes_are_matched_by_name() -> None:
    images = Images(np.zeros((3, 1, 5, 5), np.uint8), np.array([0, 1, 1]), ["dog", "owl"])
    found = number_classes(images, NAMES, "here")
    assert (found.label_N.tolist(), found.names) == ([1, 2, 2], NAMES)
    with pytest.raises(UserError, match="here: class 'dog' isn't among those of training: cat, owl"):
        number_classes(images, ["cat", "owl"], "here")


def test_mistakes(tmp_path: Path) -> None:
    model = glimpser()
    with pytest.raises(UserError, match="--input: missing"):
        model.read(None)
    with pytest.raises(UserError, match=r"float64 of shape \(5,\) given; allowed: uint8"):
        model.predict([np.zeros(5)])
    with pytest.raises(UserError, match="red: 3 channels; the model has learned 1"):
        model.predict([Picture("red", np.zeros((3, 5, 5), np.uint8))])
    with pytest.raises(UserError, match="0 files given; allowed: images and labels"):
        model.images([])
    with pytest.raises(UserError, match="no file or folder"):
        model.images([tmp_path / "gone"])
