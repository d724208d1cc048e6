"""A training on a CPU repeats bit by bit: no clock and no race between threads decides anything."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import psutil
import pytest
import torch
from torch import nn

from saccade.__main__ import choose_waiting
from saccade.ops.precision import outputs_in
from saccade.training import losses, precision
from saccade.training.determinism import count_cores, repeat_exactly, use_threads, usual_threads
from saccade.training.options import TrainingOptions
from saccade.training.rate import Rate

CPU = torch.device("cpu")


def test_gradients_of_an_index_do_not_depend_on_which_thread_comes_first() -> None:
    index, given = torch.arange(4000) % 7, torch.randn(4000, 101, generator=torch.Generator().manual_seed(1))

    def gradient() -> torch.Tensor:
        table = torch.zeros(7, 101, requires_grad=True)
        table[index].backward(given)
        assert table.grad is not None
        return table.grad

    with use_threads(2), repeat_exactly(CPU):
        first = gradient()
        assert all(torch.equal(gradient(), first) for _ in range(20))
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(
    ("arguments", "load", "given", "added"),
    [
        (["train", "x.yaml"], 50.0, {}, {"OMP_WAIT_POLICY": "passive"}),  # of two cores one is busy
        (["train", "x.yaml"], 10.0, {}, {"GOMP_SPINCOUNT": "1000"}),
        (["train", "x.yaml"], 50.0, {"OMP_WAIT_POLICY": "active"}, {}),
        (["train", "x.yaml"], 50.0, {"GOMP_SPINCOUNT": "7"}, {}),
        (["predict", "run"], 50.0, {}, {"OMP_WAIT_POLICY": "passive"}),
        (["--help"], 50.0, {}, {}),
        ([], 50.0, {}, {}),
    ],
)
def test_threads_sleep_while_they_wait_where_others_use_the_machine(
    arguments: list[str], load: float, given: dict[str, str], added: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["saccade", *arguments])
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(psutil, "cpu_percent", lambda: load)
    monkeypatch.setattr(os, "environ", dict(given))
    with choose_waiting():
        assert os.environ == given
    assert os.environ == {**given, **added}


def test_what_this_process_computes_is_not_what_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["saccade", "train", "x.yaml"])
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(psutil, "cpu_percent", lambda: 70.0)
    monkeypatch.setattr(os, "environ", {})
    clock, used = iter([0.0, 0.5, 0.5]), iter([0.0, 0.45])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(time, "process_time", lambda: next(used))
    with choose_waiting():
        pass
    assert os.environ == {"GOMP_SPINCOUNT": "1000"}


@pytest.mark.parametrize(
    ("own", "cores", "given", "usual"),
    [
        (2, 2, {}, 1),  # beside one busy process one thread is faster than two
        (8, 8, {}, 7),
        (1, 1, {}, 1),
        (8, 16, {}, 8),  # two of torch's cores are one
        (2, 2, {"OMP_NUM_THREADS": "2"}, 2),
    ],
)
def test_a_core_is_left_to_others(
    own: int, cores: int, given: dict[str, str], usual: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: own)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)))
    monkeypatch.setattr(os, "environ", given)
    assert usual_threads() == usual


def test_a_system_that_does_not_say_a_process_cores_has_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS and Windows
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert count_cores() == 3


def test_threads_are_set_and_given_back() -> None:
    before = torch.get_num_threads()
    with use_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("has_it", "width", "wanted"), [(True, 256, "bfloat16"), (True, 64, "float32"), (False, 256, "float32")]
)
def test_auto_precision_asks_what_the_processor_has_and_how_wide_a_network_is(
    monkeypatch: pytest.MonkeyPatch, has_it: bool, width: int, wanted: str
) -> None:
    monkeypatch.setattr(precision, "_multiplies_natively", lambda: has_it)
    monkeypatch.setattr(precision, "_survives", lambda: True)
    network = nn.Sequential(nn.Linear(width, width), nn.Linear(width, 3))
    assert precision.compute_dtype("auto", CPU, network) == getattr(torch, wanted)


@pytest.mark.parametrize(
    ("has_it", "outputs", "wanted", "found"),
    [
        (True, 4096, "auto", "bfloat16_output"),
        (True, 4095, "auto", "float32"),
        (False, 4096, "auto", "float32"),
        (True, 4096, "float32", "float32"),
        (False, 5, "bfloat16_output", "bfloat16_output"),
    ],
)
def test_a_large_output_layer_is_multiplied_in_bfloat16(
    monkeypatch: pytest.MonkeyPatch, has_it: bool, outputs: int, wanted: str, found: str
) -> None:
    monkeypatch.setattr(precision, "_multiplies_natively", lambda: has_it)
    monkeypatch.setattr(precision, "_survives", lambda: True)
    network = nn.ModuleDict({"output": nn.Embedding(outputs, 8)})
    options = TrainingOptions(
        max_steps=1,
        learning_rate=1.0,
        warmup_steps=1,
        dtype=precision.compute_dtype(wanted, CPU, network),
        output_dtype=precision.output_dtype(wanted, CPU, network),
    )
    assert options.precision == found
    assert options.dtype == torch.float32
    vectors, matrix, target = torch.randn(9, 8), torch.randn(outputs, 8), torch.arange(9) % outputs
    exact, _ = losses.smoothed_cross_entropy(vectors.double(), matrix.double(), target, smoothing=0.1)
    with outputs_in(options.output_dtype):
        loss, _ = losses.smoothed_cross_entropy(vectors, matrix, target, smoothing=0.1)
    error = abs(float(loss / exact - 1))
    assert (error > 1e-6) == (found != "float32")
    assert error < 1e-2
    again, _ = losses.smoothed_cross_entropy(vectors, matrix, target, smoothing=0.1)  # behind the block
    assert abs(float(again / exact - 1)) < 1e-6


def test_auto_precision_is_float32_where_bfloat16_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any, **__: Any) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess([], -4)

    monkeypatch.setattr(precision, "_multiplies_natively", lambda: True)
    monkeypatch.setattr(subprocess, "run", die)
    precision._survives.cache_clear()
    assert precision.compute_dtype("auto", CPU, nn.Linear(256, 256)) == torch.float32
    precision._survives.cache_clear()
    assert "time" not in precision.PROBE


def test_a_rate_is_items_over_seconds_without_bursts_and_pauses() -> None:
    now = 0.0
    rate = Rate(lambda: now)
    for _ in range(5):  # two steps a second, read in pairs
        now += 0.999
        rate.add(100)
        now += 0.001
        shown = rate.add(100)
    assert shown == pytest.approx(200)
    with rate.pause():
        now += 1000
    now += 1
    assert rate.add(200) == pytest.approx(200)
    for _ in range(11):
        now += 1
        shown = rate.add(50)
    assert shown == pytest.approx(50)  # the old ones are forgotten
