"""Every task's runs begin with other ones: a matrix of small runs of all of them, and the rules of each way."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import saccade
from saccade.bench.configs.samples import SAMPLES
from saccade.config.load import override_fields
from saccade.errors import UserError
from saccade.runs import config as config_file
from saccade.training import checkpoints

pytestmark = pytest.mark.usefixtures("no_reports")  # tests/bench/test_config_fuzzing.py has one of each sample
QUICK = {"device": "cpu", "training.max_steps": 2, "training.validate_every": 1, "training.save_every": 1}
ATTENDS = {"aligned", "jsonl", "csv", "copied", "plain_text", "points"}  # by several heads, which adapters need
REPLACED = {  # in the texts to grow by: a word that comes twice or more, and a new one
    **dict.fromkeys(("aligned", "tsv", "jsonl", "csv", "copied", "plain_text"), (b"dog", b"wolf")),
    "sound": (b"\t1", b"\t2"),
    "labels": (b"\ta", b"\tq"),
    "topics": (b'"a ', b'"q '),
    "documents": (b"good", b"fine"),
    "dialogues": (b"say", b"tell"),
    "stories": (b"Bob has", b"Eve has"),
    "pictures": (b"\ta ", b"\tthe "),
    "clips": (b"it ", b"one "),
}
MIXES = {"aligned", "tsv", "jsonl", "csv", "copied", "labels", "topics", "documents", "plain_text", "stories"}


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Mapping[str, Any]]]:
    """A run of each sample, made when it is asked for."""
    return Bases(tmp_path_factory.mktemp("bases"))


class Bases(dict[str, tuple[Path, Mapping[str, Any]]]):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __missing__(self, name: str) -> tuple[Path, Mapping[str, Any]]:
        (self.folder / name).mkdir()
        content = override_fields(SAMPLES[name](self.folder / name), QUICK)
        run = saccade.train(content, folder=self.folder / name / "run", quiet=True).folder
        self[name] = run, content
        return self[name]


def begin(base: Path, content: Mapping[str, Any], folder: Path, **changes: Any) -> Path:
    """Train with the data of the base and what changes; all else is left to the base."""
    given = {name: content[name] for name in ("task", "data", "input", "device") if name in content}
    steps = {name: value for name, value in QUICK.items() if name != "device"}
    batch = content.get("training", {}).get("batch_size")
    named = {**steps, **({"training.batch_size": batch} if batch else {}), **changes}
    return saccade.train(given, {"from": base, **named}, folder=folder, quiet=True).folder


def weights(run: Path) -> dict[str, Tensor]:
    return checkpoints.read_weights(run / "model.safetensors")


@pytest.mark.parametrize("name", SAMPLES)
def test_a_run_of_each_task_begins_with_the_weights_of_another(name: str, bases: Any, tmp_path: Path) -> None:
    base, content = bases[name]
    run = begin(base, content, tmp_path / "run", **{"training.learning_rate": 1e-12})
    for weight, tensor in weights(base).items():
        if not weight.startswith("carried."):
            torch.testing.assert_close(weights(run)[weight], tensor, atol=1e-7, rtol=0)
    config, earlier = (config_file.load_config(folder / "config.yaml") for folder in (run, base))
    assert config.model == earlier.model
    assert config.base == str(base)
    saccade.load(run)


@pytest.mark.parametrize("name", SAMPLES)
def test_other_sizes_are_refused_in_each_task(name: str, bases: Any, tmp_path: Path) -> None:
    base, content = bases[name]
    model = config_file.load_config(base / "config.yaml").model
    field = "width" if hasattr(model, "width") else "embedding_width"
    changes = {f"model.{field}": 2 * getattr(model, field)}
    with pytest.raises(UserError, match=rf"model\.{field}: \d+ given, but .* has \d+; leave it out"):
        begin(base, content, tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", SAMPLES)
def test_each_task_freezes_what_is_named(name: str, bases: Any, tmp_path: Path) -> None:
    base, content = bases[name]
    part = next(one for one, tensor in weights(base).items() if tensor.dim() > 1).split(".")[0]
    run = begin(base, content, tmp_path / "run", **{"training.freeze": [part], "training.learning_rate": 0.1})
    same = {one for one, tensor in weights(run).items() if torch.equal(tensor, weights(base)[one])}
    assert {one for one in same if one.startswith(part)}
    assert {one for one in weights(run) if one.startswith(f"{part}.")} <= same | {"features.unknown_share_V"}
    assert same != weights(run).keys()


@pytest.mark.parametrize("name", SAMPLES)
def test_each_task_trains_adapters_or_says_why_not(name: str, bases: Any, tmp_path: Path) -> None:
    base, content = bases[name]
    changes = {"training.lora": 2, "training.learning_rate": 0.1}
    if name not in ATTENDS:
        with pytest.raises(UserError, match=r"training\.lora: 2 given, but this model has no multi-head attention"):
            begin(base, content, tmp_path / "run", **changes)
        assert not (tmp_path / "run").exists()
        return
    run = begin(base, content, tmp_path / "run", **changes)
    moved = {one for one, tensor in weights(run).items() if not torch.equal(tensor, weights(base)[one])}
    assert moved
    assert all(tensor.dim() == 2 for one, tensor in weights(run).items() if one in moved)
    assert not any("embedding" in one or "norm" in one for one in moved)


def with_new_words(name: str, base: Path, content: Mapping[str, Any], folder: Path) -> Any:
    """Copy a sample's files, with a word that comes several times replaced by a new one."""
    old, new = REPLACED[name]
    for file in (path for path in base.parent.iterdir() if path.is_file()):
        read, is_packed = file.read_bytes(), file.suffix == ".gz"
        text = (gzip.decompress(read) if is_packed else read).replace(old, new)
        (folder / file.name).write_bytes(gzip.compress(text) if is_packed else text)
    return json.loads(json.dumps(content).replace(str(base.parent), str(folder)))


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "shapes"])  # whose captions have no new words
def test_each_task_grows_its_vocabulary_or_says_why_not(name: str, bases: Any, tmp_path: Path) -> None:
    base, content = bases[name]
    if name not in REPLACED:
        with pytest.raises(UserError, match=r"tokenizer\.grow: 3 given; vocabularies of the task \w+ do not grow"):
            begin(base, content, tmp_path / "run", **{"tokenizer.grow": 3})
        return
    given = with_new_words(name, base, content, tmp_path)
    run = begin(base, given, tmp_path / "run", **{"tokenizer.grow": 3, "training.learning_rate": 1e-12})
    parts = json.loads((run / "tokenizer.grown.json").read_text("utf-8"))
    facts, before, after = json.loads((run / "base.json").read_text("utf-8")), weights(base), weights(run)
    tables = [one for one in facts["new"] if after[one].shape != before[one].shape]
    assert tables
    assert sum(map(len, parts)) > 0
    for one in tables:
        size = len(before[one])
        torch.testing.assert_close(after[one][:size], before[one], atol=1e-7, rtol=0)
        own = [part for part in parts if len(part) == len(after[one]) - size]
        means = [torch.stack([before[one][rows].mean(0) for rows in part]) for part in own]
        assert any(torch.allclose(after[one][size:], mean, atol=1e-7) for mean in means)
    for one in after.keys() - {*facts["new"]}:
        if not one.startswith("carried."):
            torch.testing.assert_close(after[one], before[one], atol=1e-7, rtol=0)
    saccade.load(run)


@pytest.mark.parametrize("name", SAMPLES)
def test_each_task_mixes_in_old_examples_or_says_why_not(name: str, bases: Any, tmp_path: Path) -> None:
    base, content = bases[name]
    changes = {"data.old_share": 0.5}
    if name not in MIXES:
        reason = r"data\.old_share: 0\.5 given; .*(mixes nothing in|a list with weights|dialogues are not mixed)"
        with pytest.raises(UserError, match=reason):
            begin(base, content, tmp_path / "run", **changes)
        assert not (tmp_path / "run").exists()
        return
    run = begin(base, content, tmp_path / "run", **changes)
    assert config_file.load_config(run / "config.yaml").data.old != "auto"
    summary = json.loads((run / "summary.json").read_text("utf-8"))
    plain = json.loads((base / "summary.json").read_text("utf-8"))
    if name not in ("aligned", "tsv", "jsonl", "csv", "copied"):  # where old pairs are corpora with weights
        assert summary["data"][0]["num_used"] == 2 * plain["data"][0]["num_used"]


@pytest.mark.parametrize("name", ["plain_text", "stories", "labels", "sound", "pictures"])
def test_a_run_that_began_with_another_resumes_exactly_without_it(name: str, bases: Any, tmp_path: Path) -> None:
    base, content = bases[name]
    shutil.copytree(base, tmp_path / "base")
    changes = {"data.old_share": 0.4} if name in MIXES else {}
    if name in REPLACED:
        changes["tokenizer.grow"] = 2
    whole = begin(tmp_path / "base", content, tmp_path / "whole", **changes)

    def stop(event: Any) -> None:
        if event.step == 1:
            event.stop()

    given = {part: content[part] for part in ("task", "data", "input", "device", "training") if part in content}
    named = {**QUICK, **changes, "from": tmp_path / "base"}
    saccade.train(given, named, folder=tmp_path / "run", callbacks=[stop], quiet=True)
    shutil.rmtree(tmp_path / "base")
    saccade.train(given, named, folder=tmp_path / "run", quiet=True)
    for file in ("model.safetensors", "checkpoints/step-000000002.safetensors"):
        assert (tmp_path / "run" / file).read_bytes() == (whole / file).read_bytes()
