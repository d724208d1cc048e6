"""A run of glimpses from its config to prediction, resumed exactly; every mistake in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from saccade.errors import UserError
from saccade.runs import config as config_file
from saccade.runs import train as runs
from saccade.runs.load import load_run
from saccade.runs.progress import TrainingBar
from saccade.tasks.glimpse import task
from saccade.tasks.glimpse.config import GlimpseConfig
from saccade.tasks.glimpse.pictures import read_sets
from saccade.training.checkpoints import list_checkpoints
from saccade.training.signals import TrainingInterrupted

QUIET = Console(quiet=True)
RECIPES = sorted((Path(__file__).parents[3] / "configs").glob("mnist_*.yaml"))


def pictures(path: Path, count: int, side: int = 9, num_classes: int = 3) -> str:
    random = np.random.default_rng(count)
    np.savez(path, images=random.integers(0, 256, (count, side, side), np.uint8), labels=np.arange(count) % num_classes)
    return str(path)


def content(folder: Path, **sections: Any) -> dict[str, Any]:
    data = {
        "train": {"images": pictures(folder / "train.npz", 31)},
        "test": {"images": pictures(folder / "test.npz", 7)},
    }
    training = {"max_steps": 4, "batch_size": 11, "validate_every": 2, "save_every": 2, "warmup_steps": 1}
    return {
        "task": "glimpse",
        "device": "cpu",
        "data": {**data, "hold_out": 5, "canvas": 13, "clutter": 2, "piece": 3, "jitter": 0.1}
        | sections.pop("data", {}),
        "model": {"patch": 4, "num_scales": 2, "num_glimpses": 3, "width": 11} | sections.pop("model", {}),
        "training": {**training, "copies": 2, "precision": "float32"} | sections.pop("training", {}),
        **sections,
    }


def checked(folder: Path, **sections: Any) -> GlimpseConfig:
    found: GlimpseConfig = config_file.check_config(content(folder, **sections), "x.yaml")
    return found


@pytest.mark.usefixtures("whole_reports")
def test_a_run_from_config_to_report(tmp_path: Path) -> None:
    config = checked(tmp_path, training={"first_std": 0.3, "std_steps": 3})
    runs.train(config, tmp_path / "run", QUIET)
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    first, worst = page.split("Worst outputs: the mistakes it was most certain of</h2>")
    assert 1 <= first.count("data:image/png;base64,") <= 8
    sure = [float(share) for share in re.findall(r"<figcaption>[^<]*\((\d+\.\d)%\), but it is", worst)]
    assert 1 <= len(sure) <= 8
    assert sure == sorted(sure, reverse=True)
    assert "After each glimpse" in page
    model = load_run(tmp_path / "run")
    assert (model.names, model.shape, model.std) == (["0", "1", "2"], (13, 13), 0.1)
    (seen,) = model.predict([np.zeros((9, 9), np.uint8)])
    assert len(seen.plain()["path"]) == 3
    assert model.evaluate([tmp_path / "test.npz"]).scores["num_pictures"] == 7


def test_a_run_that_was_stopped_goes_on_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = checked(tmp_path, training={"first_std": 0.3, "std_steps": 3})
    runs.train(config, tmp_path / "whole", QUIET)
    told = TrainingBar.report

    def stop(self: Any, progress: Any, measured: Any) -> None:
        told(self, progress, measured)
        if progress.step == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TrainingBar, "report", stop)
        with pytest.raises(TrainingInterrupted):
            runs.train(config, tmp_path / "broken", QUIET)
    runs.train(config, tmp_path / "broken", QUIET)
    whole, broken = (list_checkpoints(tmp_path / name / "checkpoints")[-1].read_bytes() for name in ("whole", "broken"))
    assert whole == broken


def test_hold_out_is_the_same_for_every_seed_and_never_trained_on(tmp_path: Path) -> None:
    first, second = (read_sets(checked(tmp_path, seed=seed)) for seed in (1, 2))
    assert (first["valid"].pixel_NCYX == second["valid"].pixel_NCYX).all()
    assert (len(first["train"]), len(first["valid"]), len(first["test"])) == (26, 5, 7)
    train, valid = ({picture.tobytes() for picture in first[name].pixel_NCYX} for name in ("train", "valid"))
    assert not train & valid


def test_a_validation_set_of_its_own(tmp_path: Path) -> None:
    valid = {"images": pictures(tmp_path / "valid.npz", 13)}
    job = task.prepare(checked(tmp_path, data={"hold_out": None, "valid": valid}), tmp_path / "run", QUIET)
    assert set(job.validate()) == {"score", "valid_accuracy", "valid_loss"}
    assert job.unit == "pictures"
    by_loss = checked(tmp_path, training={"metric": "loss"})
    found = task.prepare(by_loss, tmp_path / "run", QUIET).validate()
    assert found["score"] == -found["valid_loss"]


def test_the_pictures_decide_whether_a_run_goes_on(tmp_path: Path) -> None:
    keys = task.prepare(checked(tmp_path), tmp_path / "run", QUIET).data
    assert keys == task.prepare(checked(tmp_path, seed=7), tmp_path / "run", QUIET).data
    other = content(tmp_path)
    pictures(tmp_path / "train.npz", 29)
    assert keys != task.prepare(config_file.check_config(other, "x"), tmp_path / "run", QUIET).data


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"data": {"hold_out": None}}, "valid or hold_out: exactly one of them"),
        ({"data": {"clutter": 0}}, "piece: 3 given; it has no effect without clutter"),
        ({"data": {"channels": 2}}, r"data.channels: 2 given"),
        ({"model": {"glimpse_channels": 8}}, "glimpse_channels: 8 given; a linear glimpse network has none"),
        ({"model": {"num_glimpse": 8}}, r"model.num_glimpse: unknown \(did you mean num_glimpses\?\)"),
        ({"training": {"std_steps": 5}}, "first_std and std_steps: both are given, or none"),
        ({"training": {"reward": "money"}}, r"training.reward: 'money' given"),
        ({"task": "glimpses"}, "task: 'glimpses' given; allowed: .*glimpse"),
    ],
)
def test_mistakes_in_a_config(tmp_path: Path, sections: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        checked(tmp_path, **sections)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"hold_out": 31}, r"data.hold_out: 31 given; there are only 31 training pictures"),
        ({"canvas": 8}, r"data.canvas: 8 given; pictures have 9 x 9 pixels, so it must be 9 or more"),
        ({"train": {"images": "gone"}}, r"data.train.images: there is no file or folder at gone"),
    ],
)
def test_mistakes_in_the_data(tmp_path: Path, data: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        task.prepare(checked(tmp_path, data=data), tmp_path / "run", QUIET)


def test_held_out_pictures_that_do_not_fit(tmp_path: Path) -> None:
    larger = {"images": pictures(tmp_path / "large.npz", 5, side=10)}
    with pytest.raises(UserError, match=r"data.test: pictures of 10 x 10 pixels; those of training have 9 x 9"):
        task.prepare(checked(tmp_path, data={"test": larger, "canvas": None}), tmp_path / "run", QUIET)
    strange = {"images": pictures(tmp_path / "strange.npz", 11, num_classes=4)}
    with pytest.raises(UserError, match=r"data.test: class '3' isn't among those of training: 0, 1, 2"):
        task.prepare(checked(tmp_path, data={"test": strange}), tmp_path / "run", QUIET)


def test_a_run_without_its_names(tmp_path: Path) -> None:
    config = checked(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "pictures.json").write_text("{", "utf-8")
    with pytest.raises(UserError, match=r"pictures.json: missing or damaged"):
        task.load(config, tmp_path / "run")


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipes(path: Path) -> None:
    """The paper's glimpses, and a network that can be built."""
    config = config_file.load_config(path)
    assert config.task == "glimpse"
    network = task._network(config, 10)
    side = config.data.canvas or 28
    gaze = network(torch.rand(1, 1, side, side), torch.zeros(config.model.num_glimpses, 1, 1, 2))
    assert gaze.logits_TNV.shape == (config.model.num_glimpses, 1, 10)
    json.dumps(config.model_dump())
