"""A run folder that has changed since training: each changed file is named, and none is used."""

from __future__ import annotations

import os
import random
import re
import shutil
import warnings
from functools import partial
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from runs import make_run
from saccade import manifest
from saccade.api import evaluate
from saccade.cli import app
from saccade.config.load import save_config
from saccade.errors import UserError
from saccade.inspection.align import chosen_head
from saccade.inspection.insight import Head
from saccade.runs import check
from saccade.runs import config as config_file
from saccade.runs import train as runs
from saccade.runs.load import load_run

TAGS = """
task: tag
data: {{train: {folder}/rows.txt, valid: {folder}/rows.txt}}
model: {{width: 4, word_width: 3, character_width: 4}}
training: {{max_steps: 6, validate_every: 3, save_every: 2, average_last: 2}}
device: cpu
"""
RECORDED = [
    "config.yaml",
    "data.json",
    "log.jsonl",
    "report.html",
    "summary.json",
    "tokenizer.words.json",
    "versions.json",
]
WEIGHTS = [f"{name}.safetensors" for name in ("checkpoints/step-000000004", "checkpoints/step-000000006", "model")]
FILES = [*RECORDED, *WEIGHTS, "manifest.json"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that training made."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "rows.txt").write_text("a B-X\nb O\n\nc O\n\n" * 3, encoding="utf-8")
    (folder / "tags.yaml").write_text(TAGS.format(folder=folder), encoding="utf-8")
    train(folder)
    return folder


def train(folder: Path, *overrides: str) -> None:
    config = config_file.load_config(folder / "tags.yaml", overrides)
    runs.train(config, folder / "run", Console(quiet=True))


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    """A copy of it, with its data where they were."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    return tmp_path


def call(*arguments: str) -> None:
    CliRunner().invoke(app, arguments, catch_exceptions=False)


def flip(path: Path, seed: str) -> None:
    chance, content = random.Random(seed), bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def load_and_go_on(folder: Path) -> list[str]:
    """Use the run and train it on; return what was said."""
    said = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for use in (lambda: load_run(folder / "run"), lambda: train(folder, "training.max_steps=8")):
            try:
                use()
            except UserError as error:
                said.append(str(error))
    return [*said, *(str(one.message) for one in warned)]


def test_training_records_every_file_that_holds_no_checksum_of_its_own(trained: Path) -> None:
    assert sorted(manifest._load(trained / "run")) == RECORDED
    found = {path.relative_to(trained / "run").as_posix() for path in (trained / "run").rglob("[!.]*.*")}
    assert found - set(FILES) == {"validated/step-000000003.safetensors", "validated/step-000000006.safetensors"}
    assert manifest.find_changed(trained / "run") == []


def test_an_untouched_run_goes_on_without_a_word(copied: Path) -> None:
    assert load_and_go_on(copied) == []
    assert manifest.find_changed(copied / "run") == []


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_byte_is_named_and_not_used(name: str, copied: Path) -> None:
    path = copied / "run" / name
    flip(path, name)
    flipped = path.read_bytes()
    said = load_and_go_on(copied)
    assert any(name.rpartition("/")[-1] in line for line in said), said
    aside = path.with_name(f"damaged-{path.name}")
    assert (aside if aside.exists() else path).read_bytes() == flipped  # kept, for whoever wants to look at it


def test_the_checkpoint_before_a_damaged_one_is_used_and_kept(copied: Path) -> None:
    flip(copied / "run" / "checkpoints" / "step-000000006.safetensors", "")
    with pytest.warns(UserWarning, match="step-000000006.safetensors is damaged; the run goes on from step-000000004"):
        train(copied, "training.max_steps=8")
    kept = sorted(path.name for path in (copied / "run" / "checkpoints").iterdir())
    assert kept == [f"{name}.safetensors" for name in ("damaged-step-000000006", "step-000000006", "step-000000008")]


def test_a_damaged_model_is_replaced_by_the_next_validation(copied: Path) -> None:
    flip(copied / "run" / "model.safetensors", "")
    with pytest.raises(UserError, match=r"model\.safetensors is damaged"):
        load_run(copied / "run")
    with pytest.warns(UserWarning, match=r"model\.safetensors is damaged; the run goes on from step-000000006"):
        train(copied)
    load_run(copied / "run")


def test_an_edited_config_is_used_once_it_is_accepted(copied: Path) -> None:
    run = copied / "run"
    text = (run / "config.yaml").read_text("utf-8").replace("seed: 1", "seed: 1 # a note")
    (run / "config.yaml").write_text(text, "utf-8")
    with pytest.raises(UserError, match=r"config\.yaml has changed .* on purpose: saccade config accept .*run$"):
        load_run(run)
    assert CliRunner().invoke(app, ["config", "accept", str(run)]).stdout.endswith("accepted as it is now\n")
    load_run(run)
    assert CliRunner().invoke(app, ["config", "accept", str(run)]).stdout.endswith("it has not changed\n")


def test_an_edit_that_is_no_config_is_not_accepted(copied: Path) -> None:
    (copied / "run" / "config.yaml").write_text("task: nonsense", "utf-8")
    with pytest.raises(UserError, match="task: 'nonsense' given"):
        CliRunner().invoke(app, ["config", "accept", str(copied / "run")], catch_exceptions=False)


def test_a_run_of_an_earlier_version_is_loaded_with_one_line_and_recorded_by_training(copied: Path) -> None:
    (copied / "run" / "manifest.json").unlink()
    with pytest.warns(UserWarning, match="its files are not checked") as warned:
        load_run(copied / "run")
    assert len(warned) == 1
    train(copied, "training.max_steps=8")
    load_run(copied / "run")


def test_a_chosen_head_is_recorded(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    chosen_head.save(run, Head(1, 0, 0), error=0.5)
    load_run(run)
    flip(run / "aligning.json", "")
    with pytest.raises(UserError, match=r"aligning\.json is damaged: .* choose the head again"):
        load_run(run)


def test_examples_that_changed_are_not_shown_until_they_are_accepted(copied: Path) -> None:
    run = copied / "run"
    manifest.write(run, check.EXAMPLES, "a\nb\n")
    assert check.read_examples(run) == ["a", "b"]
    (run / check.EXAMPLES).write_text("c\n", "utf-8")
    (line,) = set(load_and_go_on(copied))  # training leaves it as it is
    assert re.search(r"examples\.txt has changed .* on purpose: saccade config accept .*run$", line)
    assert check.read_examples(run) == []
    assert check.accept_edits(run) == [run / check.EXAMPLES]
    assert check.read_examples(run) == ["c"]
    assert load_and_go_on(copied) == []


def test_examples_that_were_added_are_shown_and_named_until_they_are_accepted(copied: Path) -> None:
    run = copied / "run"
    (run / check.EXAMPLES).write_text("a\n", "utf-8")
    with pytest.warns(UserWarning, match=r"examples\.txt is shown as it is.* saccade config accept"):
        assert check.read_examples(run) == ["a"]
    shown = CliRunner().invoke(app, ["config", "accept", str(run)]).stdout
    assert shown == f"{run / check.EXAMPLES}: accepted as it is now\n"
    assert check.read_examples(run) == ["a"]


def test_a_picture_that_changed_is_named(copied: Path) -> None:
    run = copied / "run"
    (run / check.PICTURE).write_bytes(b"picture")
    manifest.record(run, check.PICTURE)
    flip(run / check.PICTURE, "")
    (line,) = set(load_and_go_on(copied))
    assert line.endswith("alignment.png has changed since it was written; it is not used here")


def test_data_that_came_with_a_run_and_changed_are_named_and_not_used(copied: Path) -> None:
    run = copied / "run"
    (run / "data").mkdir()
    test = run / "data" / "test.txt"
    shutil.copy(copied / "rows.txt", test)
    config = config_file.load_config(run / "config.yaml", [f"data.test={test}"])
    save_config(config, run / "config.yaml")
    manifest.record(run, "data/test.txt")
    flip(test, "")
    refused, warned = load_and_go_on(copied)
    assert re.search(r"data/test\.txt is damaged: it has changed since it was written", refused)
    assert re.search(r"data/test\.txt has changed since it was written; the model does not depend on it", warned)
    for files in ((), (test,)):
        for use in (partial(evaluate, run, *files), partial(call, "evaluate", str(run), *map(str, files))):
            with pytest.warns(UserWarning, match="does not depend on it"), pytest.raises(UserError, match="is damaged"):
                use()


def test_a_kill_while_a_file_is_replaced_leaves_a_run_that_loads(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = copied / "run"
    config = config_file.load_config(run / "config.yaml", ["training.patience=7"])
    save, saved = manifest._save, []

    def stop_at(number: int) -> None:
        def save_or_stop(folder: Path, files: manifest.Checksums) -> None:
            saved.append(files)
            if len(saved) == number:
                raise KeyboardInterrupt
            save(folder, files)

        saved.clear()
        monkeypatch.setattr(manifest, "_save", save_or_stop)

    for number in (1, 2):  # before the file is replaced, and after
        stop_at(number)
        with pytest.raises(KeyboardInterrupt):
            save_config(config, run / "config.yaml")
        assert manifest.find_changed(run) == []
    assert yaml.safe_load((run / "config.yaml").read_text("utf-8"))["training"]["patience"] == 7


def test_nothing_outside_of_a_run_is_read(tmp_path: Path) -> None:
    run, secret = make_run(tmp_path / "run"), tmp_path / "secret.txt"
    secret.write_text("secret", "utf-8")
    (run / "inside.txt").symlink_to("config.yaml")
    load_run(run)
    (run / "examples.txt").symlink_to(secret)
    with pytest.raises(UserError, match=r"examples\.txt: this link leads out of the run folder"):
        load_run(run)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
@pytest.mark.parametrize("name", ["config.yaml", "tokenizer.source.json", "checkpoints/step-000000009.safetensors"])
def test_a_pipe_in_a_run_is_refused_at_once(name: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    with pytest.raises(UserError, match="this is neither a file nor a folder"):
        load_run(run)


@pytest.mark.parametrize("name", ["../secret.txt", "/dev/zero", "data/../../secret.txt"])
def test_a_manifest_that_leads_out_is_refused(name: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    manifest._save(run, {name: ["0"]})
    with pytest.raises(UserError, match="is no name of a file in this folder"):
        load_run(run)


def test_drafts_of_a_killed_training_are_removed(copied: Path) -> None:
    run = copied / "run"
    drafts = [run / ".model-abcd_123.safetensors", run / "checkpoints" / ".step-000000004-abcdefgh.safetensors"]
    for path in (*drafts, run / ".mine"):
        path.write_bytes(b"half")
    train(copied, "training.max_steps=7")
    assert not any(path.exists() for path in drafts)
    assert (run / ".mine").exists()


def test_a_damaged_line_of_a_log_is_named(copied: Path) -> None:
    log = copied / "run" / "log.jsonl"
    first, *rest = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([first, b'{"step\xff\n', *rest, b'{"step": 9']))
    manifest.forget(copied / "run", check.LOG)  # as after a kill
    with pytest.warns(UserWarning, match=r"log\.jsonl:2: a line is damaged and left out"):
        train(copied, "training.max_steps=8")
