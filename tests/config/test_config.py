"""Configs: filled in, refused with a hint, and the same after a round trip."""

from __future__ import annotations

from pathlib import Path

import pytest

from saccade.config import load
from saccade.config.schema import TransformerModel
from saccade.data.mistakes import Mistake


def written(folder: Path, text: str) -> Path:
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return path


MINIMAL = "data: {train: {source: a.tsv}, valid: {source: b.tsv}}\n"


def test_a_size_fills_in_what_is_not_given(tmp_path: Path) -> None:
    config = load.load(written(tmp_path, MINIMAL + "model: {size: base, width: 256}\n"))
    assert isinstance(config.model, TransformerModel)
    assert (config.model.width, config.model.num_heads, config.model.hidden_width) == (256, 8, 2048)
    assert config.training.label_smoothing == 0.1


def test_overrides_win_and_the_filled_config_comes_back(tmp_path: Path) -> None:
    config = load.load(written(tmp_path, MINIMAL), ["training.max_steps=7", "model.size=tiny", "seed=3"])
    assert (config.training.max_steps, config.model.width, config.seed) == (7, 128, 3)
    load.save(config, tmp_path / "saved.yaml")
    assert load.load(tmp_path / "saved.yaml") == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MINIMAL + "trainning: {}\n", r"run.yaml: trainning: unknown \(did you mean training\?\)"),
        (MINIMAL + "model: {widht: 3}\n", r"model.widht: unknown \(did you mean width\?\)"),
        (MINIMAL + "model: {zzz: 3}\n", r"model.zzz: unknown; allowed: kind, size, width"),
        (MINIMAL + "training: {max_steps: 0}\n", r"training.max_steps: 0 given; input should be greater than"),
        (MINIMAL + "model: {width: 10, num_heads: 3}\n", r"num_heads: 3 given; it must divide the width, 10"),
        (
            MINIMAL + "model: {size: huge}\n",
            r"model.size: 'huge' given; input should be 'tiny', 'small', 'base' or 'big'",
        ),
        ("seed: 1\n", r"data: missing"),
        ("- 1\n", r"a config is a mapping of sections"),
        ("a: [1\n", r"run.yaml: not YAML"),
        ("", r"a config is a mapping"),
    ],
)
def test_mistakes_are_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(Mistake, match=message):
        load.load(written(tmp_path, text))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.max_steps", r"an override is section.field=value"),
        ("seed.x=3", r"seed is not a section"),
        ("seed=[", r"'\[' is not a YAML value"),
    ],
)
def test_wrong_overrides_are_named(override: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(Mistake, match=message):
        load.load(written(tmp_path, "seed: 1\n" + MINIMAL), [override])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match=r"config: there is no file at .*none.yaml"):
        load.load(tmp_path / "none.yaml")
