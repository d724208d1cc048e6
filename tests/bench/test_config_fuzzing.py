"""Mutated configs and data files: refused in one line, or trained and read; nothing half-written, no run changed."""

from __future__ import annotations

import random
import signal
import sys
import time
from pathlib import Path

import pytest
import yaml

from saccade.bench.configs import fuzzing, mutations, samples
from saccade.errors import UserError


def test_no_mutation_does_harm() -> None:
    found = fuzzing.fuzz_configs(60)
    assert found.bad == []
    assert found.codes.total() == 60
    assert {0, 2} <= set(found.codes)


def test_without_alarms_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "SIGPROF")
    with pytest.raises(UserError, match="needs Linux or macOS"):
        fuzzing.fuzz_configs(1)


def test_the_same_seed_gives_the_same_mutations(tmp_path: Path) -> None:
    content = samples.SAMPLES["aligned"](tmp_path)
    known = samples.known_fields(content)
    made = [[mutations.change_config(content, known, random.Random(seed)) for seed in range(30)] for _ in range(2)]
    assert made[0] == made[1]
    assert len({config for config, _ in made[0]}) > 20


@pytest.mark.parametrize("name", sorted(samples.SAMPLES))
def test_every_sample_is_valid_before_it_is_mutated(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "SAMPLES", {name: samples.SAMPLES[name]})
    monkeypatch.setattr(mutations, "change_config", lambda content, *_: (yaml.safe_dump(content).encode(), ""))
    monkeypatch.setattr(mutations, "change_file", lambda *_: "")
    assert fuzzing.fuzz_configs(1).codes == {0: 1}


@pytest.mark.parametrize(
    ("end", "problem"),
    [
        (ZeroDivisionError("ours"), "ZeroDivisionError: ours"),
        (SystemExit(1), "exit code 1"),
        (None, "a trained run lacks"),
    ],
)
def test_harm_is_seen(monkeypatch: pytest.MonkeyPatch, end: BaseException | None, problem: str) -> None:
    def fail() -> None:
        if end is not None:
            raise end

    monkeypatch.setattr(fuzzing, "main", fail)
    (found,) = fuzzing.fuzz_configs(1).bad
    assert problem in str(found.problem)


def test_a_hang_and_what_is_left_behind_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang() -> None:
        while True:
            pass

    monkeypatch.setattr(fuzzing, "PATIENCE", 0.1)
    monkeypatch.setattr(fuzzing, "main", hang)
    assert "no end after" in str(fuzzing.fuzz_configs(1).bad[0].problem)

    def wait() -> None:  # as a process does that gets little of a busy machine
        time.sleep(0.3)
        raise SystemExit(2)

    monkeypatch.setattr(fuzzing, "main", wait)
    assert "no end after" not in str(fuzzing.fuzz_configs(1).bad[0].problem)
    monkeypatch.setattr(fuzzing, "LONGEST", 0.1)
    assert "no end after" in str(fuzzing.fuzz_configs(1).bad[0].problem)

    def leave() -> None:
        run = Path(sys.argv[-1])
        run.mkdir(parents=True)
        (run / "config.yaml").touch()
        sys.stderr.write("saccade: no\n")
        raise SystemExit(2)

    monkeypatch.setattr(fuzzing, "main", leave)
    assert "a refused run left ['config.yaml']" in str(fuzzing.fuzz_configs(1).bad[0].problem)


@pytest.mark.parametrize("name", ["aligned", "topics"])
def test_a_run_is_used_after_a_change(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutations, "change_file", lambda *_: "nothing")
    found = fuzzing._use(tmp_path, samples.SAMPLES[name](tmp_path), random.Random(1))
    assert found == ("look, nothing", 0, None)


def test_a_command_that_writes_into_a_run_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write() -> None:
        run = tmp_path / fuzzing.RUN
        run.mkdir(parents=True, exist_ok=True)
        for name in ("model.safetensors", "config.yaml", "report.html"):
            (run / name).write_text(sys.argv[1])

    monkeypatch.setattr(fuzzing, "main", write)
    found = fuzzing._use(tmp_path, samples.SAMPLES["tags"](tmp_path), random.Random(1))
    assert found[2] == "it wrote into the run"
