"""A network that the machine has no room for is refused while it is made."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import torch
from rich.console import Console
from torch import nn

from runs import make_run
from saccade.errors import UserError
from saccade.runs import config as config_file
from saccade.runs import room
from saccade.runs import train as runs
from saccade.runs.load import load_run

CPU = torch.device("cpu")


def test_numbers_are_counted_once_and_as_often_as_they_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "total_memory", lambda device: 4 * 4 * 15)
    with room.bound_network(4, CPU):
        layer, other = nn.Linear(5, 2), nn.Linear(1, 1, bias=False)
        other.weight = layer.weight
    with pytest.raises(UserError, match=r"model: it needs more than 0\.0 GiB to train"), room.bound_network(4, CPU):
        nn.Sequential(nn.Linear(7, 2, bias=False), nn.Linear(1, 2, bias=False))
    nn.Linear(99, 99)  # nobody counts any more


def test_a_container_may_have_less_than_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit, whole = tmp_path / "memory.max", psutil.virtual_memory().total
    monkeypatch.setattr(room, "CGROUP", limit)
    assert room.total_memory(CPU) == whole
    for content, total in (("1048576\n", 1 << 20), ("max\n", whole), (f"{1 << 60}\n", whole)):
        limit.write_text(content)
        assert room.total_memory(CPU) == total


def test_training_and_loading_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run")
    monkeypatch.setattr(room, "total_memory", lambda device: 1000)
    with pytest.raises(UserError, match=r"for its weights, and this machine has 0\.0 GiB; allowed: fewer layers"):
        load_run(run)
    config = config_file.load_config(tmp_path / "run" / "config.yaml", ["training.max_steps=1"])
    with pytest.raises(UserError, match="to train"):
        runs.train(config, tmp_path / "other", Console(quiet=True))
    assert not (tmp_path / "other").exists()
