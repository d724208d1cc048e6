"""Several processes train as one would: the same weights, going on with another number of them included."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import distributed

import forked
from saccade.runs.process import train_command
from saccade.training.distributed import sharded_files
from saccade.training.distributed.team import name_meeting

ALONE = {**os.environ, "OMP_NUM_THREADS": "1"}
LINES = [" ".join("abcdefgh"[(row + step) % 8] for step in range(2 + row % 5)) for row in range(60)]


def config(folder: Path) -> Path:
    text = folder / "text.txt"
    text.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    sides = {"source": str(text), "target": str(text)}
    content = {
        "data": {"train": sides, "valid": sides},
        "tokenizer": {"kind": "words"},
        "model": {"width": 12, "num_heads": 2, "hidden_width": 14, "num_layers": 1, "dropout": 0.2},
        "training": {
            "max_steps": 6,
            "tokens_per_batch": 64,
            "accumulate": 2,
            "warmup_steps": 2,
            "learning_rate": 0.01,
            "schedule": "constant",  # the same however long it trains
            "validate_every": 3,
            "ema": 0.9,
            "average_last": 2,
        },
    }
    path = folder / "run.yaml"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def train(path: Path, name: str, *overrides: str, processes: int = 1) -> tuple[str, str]:
    """What some processes print that train together, with the variables that torchrun sets."""
    call = train_command([str(path), *overrides], path.parent / name)
    team = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    started = []
    for rank in range(processes):
        own = {**team, "RANK": str(rank), "LOCAL_RANK": str(rank)} if processes > 1 else {}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": {**ALONE, **own}, "text": True}
        started.append(subprocess.Popen(call, **pipes))  # type: ignore[call-overload]
    found = [process.communicate(timeout=600) for process in started]
    assert [process.returncode for process in started] == [0] * processes, found
    shown, errors = ("".join(part) for part in zip(*found, strict=True))
    return shown, errors


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def weights(path: Path, name: str) -> dict[str, torch.Tensor]:
    folder = path.parent / name / "checkpoints"
    if not (parts := folder / "step-000000006.parts").exists():
        return load_file(folder / "step-000000006.safetensors")
    found = {name: torch.zeros(size, dtype=dtype) for name, (size, dtype) in sharded_files.list_parts(parts).items()}
    sharded_files.load_parts(found, parts)
    return found


def losses(path: Path, name: str) -> list[float]:
    rows = [json.loads(line) for line in (path.parent / name / "log.jsonl").read_text("utf-8").splitlines()]
    return [row[key] for row in rows for key in ("loss", "valid_loss") if key in row]


def assert_same(path: Path, name: str, other: str) -> None:
    first, second = weights(path, name), weights(path, other)
    assert first.keys() == second.keys()
    for key, value in first.items():
        if not key.endswith("key.bias"):  # it shifts a row's scores alike, so its gradient is but rounding
            torch.testing.assert_close(second[key], value, rtol=1e-4, atol=1e-5, msg=key)


@pytest.mark.usefixtures("quick_start")
def test_several_processes_train_as_one_and_go_on_where_others_were(tmp_path: Path) -> None:
    path = config(tmp_path)
    for name, processes, overrides in (
        ("one", 1, ()),
        ("two", 2, ()),
        ("sharded", 2, ("training.shard=true", "training.recompute=true")),
        ("both", 2, ("training.max_steps=2",)),
        ("both", 2, ("training.max_steps=4", "training.shard=true")),
        ("both", 1, ()),
    ):
        shown, _ = train(path, name, *overrides, processes=processes)
        assert shown.count("The model is in") == 1
    for name in ("two", "sharded"):
        assert losses(path, name) == pytest.approx(losses(path, "one"), rel=1e-4)
        assert (tmp_path / name / "report.html").exists()
    for name in ("two", "sharded", "both"):
        assert_same(path, "one", name)


@pytest.mark.usefixtures("quick_start")
def test_two_processes_sum_skip_and_stop_together(tmp_path: Path) -> None:
    script = Path(__file__).with_name("in_two_processes.py")
    call = forked.torchrun(str(script), str(tmp_path))
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False, env=ALONE, timeout=600)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("quick_start")
def test_a_step_has_batches_for_everybody(tmp_path: Path) -> None:
    trains = train_command([str(config(tmp_path)), "training.accumulate=1"], tmp_path / "run")
    call = forked.torchrun("--no-python", "--", *trains)
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False, env=ALONE)
    assert done.returncode != 0
    wanted = "training.accumulate: 1 given for 2 processes; it must be a multiple of them"
    assert done.stderr.count(wanted) == 1  # the first says it
    assert "DistBackendError" not in done.stderr
    assert "Connection closed" not in done.stderr


def test_processes_meet_again_whatever_a_restart_has_left_in_the_store() -> None:
    """There are old questions and answers then, and each machine counts restarts for itself."""
    store, size = distributed.HashStore(), 3  # type: ignore[attr-defined]

    def meet() -> set[str]:
        with ThreadPoolExecutor(size) as pool:
            return set(pool.map(lambda rank: name_meeting(store, rank, size), reversed(range(size))))

    names = [meet() for _ in range(3)]
    assert [len(found) for found in names] == [1, 1, 1]
    assert len(set.union(*names)) == 3
    assert name_meeting(store, 0, 1)
