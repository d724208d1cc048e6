"""Configs: filled in, refused with a hint, and the same after a round trip."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from saccade.cli import app
from saccade.errors import UserError
from saccade.runs import config as config_file
from saccade.tasks import TASKS, devices
from saccade.tasks.translate.networks import TransformerModel


def written(folder: Path, text: str) -> Path:
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return path


MINIMAL = "data: {train: {source: a.tsv}, valid: {source: b.tsv}}\n"


def test_a_size_fills_in_what_is_not_given(tmp_path: Path) -> None:
    config = config_file.load_config(written(tmp_path, MINIMAL + "model: {size: base, width: 256}\n"))
    assert isinstance(config.model, TransformerModel)
    assert (config.model.width, config.model.num_heads, config.model.hidden_width) == (256, 8, 2048)
    assert config.training.label_smoothing == 0.1


def test_overrides_win_and_the_filled_config_comes_back(tmp_path: Path) -> None:
    config = config_file.load_config(written(tmp_path, MINIMAL), ["training.max_steps=7", "model.size=tiny", "seed=3"])
    assert (config.training.max_steps, config.model.width, config.seed) == (7, 128, 3)
    config_file.save_config(config, tmp_path / "saved.yaml")
    assert config_file.load_config(tmp_path / "saved.yaml") == config


def test_one_corpus_or_several(tmp_path: Path) -> None:
    one = config_file.load_config(written(tmp_path, MINIMAL), ["data.train.weight=2"])
    assert {name: files.weight for name, files in one.data.corpora.items()} == {"data.train": 2.0}
    text = "data: {train: [{source: a.tsv}, {source: b.tsv, weight: 0.5}], valid: {source: c.tsv}}\n"
    several = config_file.load_config(written(tmp_path, text))
    assert {name: files.weight for name, files in several.data.corpora.items()} == {
        "data.train.0": 1.0,
        "data.train.1": 0.5,
    }
    for config in (one, several):
        config_file.save_config(config, tmp_path / "saved.yaml")
        assert config_file.load_config(tmp_path / "saved.yaml") == config


def test_the_schema_is_printed_and_says_what_fields_mean() -> None:
    shown = CliRunner().invoke(app, ["config", "schema"])
    assert shown.exit_code == 0
    schema = json.loads(shown.output)
    sections = schema["$defs"]
    assert len(schema["anyOf"]) == len(TASKS)
    for task in TASKS.values():
        name = task.config.__name__
        fields = task.config.model_fields
        assert set(sections[name]["properties"]) == {field.alias or name for name, field in fields.items()}
    for section in ("TranslateData", "TokenizerSection", "GlimpseData"):
        for name, field in sections[section]["properties"].items():
            assert field.get("description") or "$ref" in field, f"{section}.{name}"


def section(*corpora: str) -> str:
    return f"data: {{train: [{', '.join(corpora)}], valid: {{source: b.tsv}}}}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (section(), r"data\.train: \[\] given; list should have at least 1 item"),
        (section("{source: a}", "{sorce: a}"), r"data\.train\.1\.sorce: unknown \(did you mean source\?\)"),
        (section("{source: a}", "{target: a}"), r"yaml: data\.train\.1\.source: missing$"),
        (section("{source: a, weight: 0}"), r"data\.train\.0\.weight: 0 given; input should be greater than 0"),
        (section("{source: a, weight: .inf}"), r"data\.train\.0\.weight: inf given; input should be a finite"),
        ("data: {train: {sorce: a}, valid: {source: b}}\n", r"data\.train\.sorce: unknown \(did you mean source\?\)"),
        ("data: {train: {target: a}, valid: {source: b}}\n", r"yaml: data\.train\.source: missing$"),
        ("data: {train: a.tsv, valid: {source: b}}\n", r"yaml: data\.train: 'a\.tsv' given; input should be a valid"),
        (MINIMAL[:-2] + ", test: {surce: a}}\n", r"data\.test\.surce: unknown \(did you mean source\?\)"),
        (MINIMAL + "trainning: {}\n", r"run.yaml: trainning: unknown \(did you mean training\?\)"),
        (MINIMAL + "model: {widht: 3}\n", r"model.widht: unknown \(did you mean width\?\)"),
        (MINIMAL + "model: {zzz: 3}\n", r"model.zzz: unknown; allowed: width, num_heads"),
        (MINIMAL + "decoding: {max_rounds: -1}\n", r"yaml: decoding.max_rounds: -1 given; [a-z 0]*, or auto$"),
        (
            MINIMAL + "decoding: {max_length_factor: wide}\n",
            r"max_length_factor: 'wide' given; .* number, .*, or auto$",
        ),
        (MINIMAL + "training: {max_steps: 0}\n", r"training.max_steps: 0 given; input should be greater than"),
        (MINIMAL + "model: {width: 10, num_heads: 3}\n", r"num_heads: 3 given; it must divide the width, 10"),
        (
            MINIMAL + "model: {size: huge}\n",
            r"model.size: 'huge' given; input should be 'tiny', 'small', 'base' or 'big'",
        ),
        (MINIMAL + "model: {kind: rnn, num_heads: 3}\n", r"model.num_heads: unknown \(did you mean num_layers\?\)"),
        (MINIMAL + "model: {kind: rnn, score: dott}\n", r"model.score: 'dott' given; allowed: mean, dot, "),
        (MINIMAL + "model: {kind: rn}\n", r"model: .* given; .*'transformer', 'rnn'"),
        (
            MINIMAL + "model: {kind: rnn, attention: none, score: dot}\n",
            r"score: 'dot' given; it has no effect with attention: none",
        ),
        (
            MINIMAL + "model: {kind: rnn, feeds_input: false}\n",
            r"feeds_input: False given; it has no effect with attention: bahdanau",
        ),
        (
            MINIMAL + "model: {kind: rnn}\ntraining: {recompute: true}\n",
            r"training.recompute: true given; only a Transformer's blocks are made again",
        ),
        (MINIMAL + "model: {kind: rnn, radius: 3}\n", r"radius: 3 given; it has no effect with scope: global"),
        (MINIMAL + "model: {score: location, max_length: 3}\n", r"model.max_length: unknown"),
        (
            "data: {train: {source: a.tsv}, valid: {source: b.tsv}, max_length: 600}\nmodel: {score: location}\n",
            r"data.max_length: 600 given; the location score has a row for each of 512 positions",
        ),
        (
            MINIMAL + "tokenizer: {shared: false}\nmodel: {tied: three}\n",
            r"model.tied: 'three' given; it needs one vocabulary",
        ),
        ("seed: 1\n", r"data: missing"),
        ("- 1\n", r"a config is a mapping of sections"),
        ("a: [1\n", r"run.yaml: this is not YAML"),
        ("", r"a config is a mapping"),
    ],
)
def test_mistakes_are_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        config_file.load_config(written(tmp_path, text))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.max_steps", r"an override is section.field=value"),
        ("seed.x=3", r"seed is not a section"),
        ("seed=[", r"'\[' is not a YAML value; if it is text: 'seed=\"\[\"'$"),
    ],
)
def test_wrong_overrides_are_named(override: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        config_file.load_config(written(tmp_path, "seed: 1\n" + MINIMAL), [override])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"config: there is no file at .*none.yaml"):
        config_file.load_config(tmp_path / "none.yaml")


def test_rnns_train_in_float32_on_a_cpu(tmp_path: Path) -> None:
    network = nn.GRU(2, 2)
    for precision in ("auto", "float32"):
        config = config_file.load_config(written(tmp_path, MINIMAL), ["device=cpu", f"training.precision={precision}"])
        assert devices.training_options(config, network).dtype == torch.float32
    config = config_file.load_config(written(tmp_path, MINIMAL), ["device=cpu", "training.precision=bfloat16"])
    with pytest.raises(UserError, match=r"training.precision: 'bfloat16' given; on a CPU RNNs train in float32"):
        devices.training_options(config, network)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1\nseed: 2\n", "this is not YAML: seed is given twice"),
        ("training: {max_steps: 1, max_steps: 2}\n", "max_steps is given twice"),
        ("deep: " + "[" * 5000, "it is nested too deeply"),
        ("seed: 2026-13-45\n", "this is not YAML"),
    ],
)
def test_what_yaml_would_swallow_or_choke_on_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        config_file.load_config(written(tmp_path, MINIMAL + text))
    assert "\n" not in str(refused.value)


def test_aliases_may_share_values_and_may_not_multiply_them(tmp_path: Path) -> None:
    shared = "data: {train: &pairs {source: a.tsv}, valid: *pairs}\n"
    config = config_file.load_config(written(tmp_path, shared))
    assert config.data.train.source == config.data.valid.source == "a.tsv"
    names = "abcdefghij"
    laughs = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in itertools.pairwise(names)
    )
    with pytest.raises(UserError, match="this is not YAML: more than 10,000 values"):
        config_file.load_config(written(tmp_path, laughs + "task: *j\n"))
    with pytest.raises(UserError, match="this is not YAML: an alias stands inside of what it names"):
        config_file.load_config(written(tmp_path, "task: &a [*a]\n"))
    with pytest.raises(UserError, match="is not a YAML value"):
        config_file.load_config(written(tmp_path, MINIMAL), ["model.size=&a [*a]"])


@pytest.mark.parametrize(("field", "most"), [("model.num_layers", 1000), ("tokenizer.vocabulary_size", 1_000_000)])
def test_sizes_beyond_all_measure_are_refused(tmp_path: Path, field: str, most: int) -> None:
    config_file.load_config(written(tmp_path, MINIMAL), [f"{field}={most}"])
    with pytest.raises(UserError, match=rf"{field}: {most + 1} given; input should be less than or equal to {most}"):
        config_file.load_config(written(tmp_path, MINIMAL), [f"{field}={most + 1}"])
