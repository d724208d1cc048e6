"""A rehearsal compiles kernels beside a training, which is what it would be without, and leaves nothing."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from rich.console import Console

from runs import make_run
from saccade.decoding.continuous.beam_state import BeamState
from saccade.decoding.continuous.greedy_state import GreedyState
from saccade.runs import config as config_file
from saccade.runs import process, rehearsal, train
from saccade.training.distributed.team import Team

PAYS = rehearsal.pays


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There is nothing to compile here; all else is as on an accelerator."""
    pytest.importorskip("triton")
    monkeypatch.setattr(rehearsal, "pays", lambda config: True)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))


def tiny(folder: Path) -> Any:
    """The config of a run that takes no time."""
    run = make_run(folder, "training.max_steps=3", "training.validate_every=3", "decoding.max_length=4")
    return config_file.load_config(run / "config.yaml")


def trained(config: Any, folder: Path, *, rehearses: bool = True) -> tuple[str, bytes]:
    """What is said, and the weights."""
    console = Console(file=io.StringIO(), width=200)
    train.train(config, folder, console, threads=1, rehearses=rehearses)
    said = console.file.getvalue()  # type: ignore[attr-defined]
    return said, (folder / "model.safetensors").read_bytes()


def test_a_rehearsed_training_is_the_same(tmp_path: Path) -> None:
    config = tiny(tmp_path / "run")
    said, rehearsed = trained(config, tmp_path / "rehearsed")
    assert "kernels: 0 compiled ahead, " in said
    assert "needed" not in said  # it came to its end
    assert not [*tmp_path.glob("**/rehearsal*")]
    said, plain = trained(config, tmp_path / "plain", rehearses=False)
    assert "kernels: " not in said
    assert rehearsed == plain


def test_it_has_the_device_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where processes share it by MPS, one that is killed takes the others with it."""
    config, pipes = tiny(tmp_path / "run"), tmp_path / "pipes"
    monkeypatch.setattr(rehearsal, "HAS_TRITON", True)
    monkeypatch.setattr(rehearsal, "count_cores", lambda: 2)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(pipes))
    assert PAYS(config)
    assert not PAYS(config.model_copy(update={"device": "cpu"}))
    pipes.mkdir()
    (pipes / "control").touch()
    assert not PAYS(config)


def test_what_starts_trainings_by_itself_rehearses_none(tmp_path: Path) -> None:
    """Several of them may share a device."""
    assert "--no-rehearse" in process.train_command(["x.yaml"], tmp_path)


def test_what_was_compiled_is_not_rehearsed_again(tmp_path: Path) -> None:
    config = tiny(tmp_path / "run")
    quiet, alone = Console(quiet=True), Team()
    config_file.save_config(config, tmp_path / "given.yaml")
    begun = rehearsal.start(config, lambda: train._prepare(config, tmp_path / "run", quiet, alone)[1:])
    begun.begin()
    assert begun.wait() is not None
    while not [*(tmp_path / "triton").glob("saccade-*")]:
        time.sleep(0.01)
    begun.end()
    assert rehearsal.start(config, unwanted) is rehearsal.NONE
    changes = "training.learning_rate=0.5", "decoding.beam=7"
    same, other = (config_file.load_config(tmp_path / "given.yaml", [change]) for change in changes)
    assert rehearsal.start(same, unwanted) is rehearsal.NONE
    begun = rehearsal.start(other, unwanted)
    assert begun is not rehearsal.NONE
    begun.end()


def unwanted() -> Any:
    raise AssertionError


def wrong() -> Any:
    raise ValueError


def endless() -> Any:
    time.sleep(600)


def test_what_ends_a_rehearsal_is_said(tmp_path: Path) -> None:
    begun = rehearsal.start(tiny(tmp_path / "run"), wrong)
    begun.begin()
    said = begun.wait()
    begun.end()
    assert said is not None
    assert "the others when they are first needed (ValueError in test_rehearsal.py, line " in said
    assert not [*(tmp_path / "triton").glob("saccade-*")]


def test_a_rehearsal_that_does_not_answer_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "PATIENCE", 0.05)
    begun = rehearsal.start(tiny(tmp_path / "run"), endless)
    rehearsing = begun._process
    begun.begin()
    assert begun.wait() == rehearsal.NO_ANSWER
    assert rehearsing is not None
    assert rehearsing.exitcode == 1  # it was asked to end, not killed
    begun.end()  # there is none


def test_sentences_that_no_kernel_ends_come_to_their_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (GreedyState, BeamState):
        monkeypatch.setattr(kind, "update", lambda state, found: found)  # as a kernel that isn't launched
    rehearsal._end_at_limits()
    state: Any = SimpleNamespace(
        place_B=torch.zeros(2, dtype=torch.long), limit_B=torch.tensor([1, 2]), live_B=torch.ones(2, dtype=torch.bool)
    )
    greedy, beam = cast(Any, GreedyState.update), cast(Any, BeamState.update)
    assert greedy(state, "parents") == "parents"
    assert state.live_B.tolist() == [False, True]
    beam(state, "parents")
    assert state.live_B.tolist() == [False, False]
    assert state.place_B.tolist() == [1, 2]


def test_it_is_killed_with_its_training(tmp_path: Path) -> None:
    config = tiny(tmp_path / "run")
    own, other = multiprocessing.Pipe()

    def train_forever() -> None:
        begun = rehearsal.start(config, endless)
        begun.begin()
        assert begun._process is not None
        other.send(begun._process.pid)
        time.sleep(600)

    training = multiprocessing.get_context("fork").Process(target=train_forever)
    training.start()
    rehearsing = own.recv()
    assert training.pid is not None
    os.kill(training.pid, signal.SIGKILL)
    training.join()
    while Path(f"/proc/{rehearsing}").exists() and " Z " not in Path(f"/proc/{rehearsing}/stat").read_text("ascii"):
        time.sleep(0.01)
