"""Several processes behind one port: who is lost is replaced, what they count is added up, and they end together."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from runs import make_run
from saccade.bench.serving.http_client import RunningServer, start_server
from saccade.serving.http.metrics import Metrics
from saccade.serving.processes.metrics import SharedMetrics, describe_processes

PATIENCE = 60.0


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def read(text: bytes) -> dict[tuple[str, tuple[str, ...]], float]:
    """The samples of a text, by name and labels."""
    families = text_string_to_metric_families(text.decode())
    return {
        (one.name, tuple(value for _, value in sorted(one.labels.items()))): one.value
        for family in families
        for one in family.samples
        if not one.name.endswith("_created")
    }


def counted(number: int) -> bytes:
    """The metrics of a process that has answered so many requests."""
    metrics = Metrics()
    metrics.requests.labels("/a", 200).inc(number)
    metrics.requests.labels('/"b\\', 200 + number).inc()
    for _ in range(number):
        metrics.latency.labels("/a").observe(0.03)
    metrics.connections.set(number)
    return metrics.text()


def test_counters_are_added_up_and_outlive_their_process(tmp_path: Path) -> None:
    shared = SharedMetrics(tmp_path)
    shared.write("process1-7", counted(3))
    shared.write("first", describe_processes(2, 1))
    found = read(shared.add_up("process0-6", counted(2)))
    assert found["saccade_requests_total", ("/a", "200")] == 5
    assert found["saccade_requests_total", ('/"b\\', "203")] == 1
    assert found["saccade_request_seconds_count", ("/a",)] == 5
    assert found["saccade_request_seconds_bucket", ("0.05", "/a")] == 5
    assert found["saccade_request_seconds_bucket", ("0.025", "/a")] == 0
    assert found["saccade_connections", ()] == 5
    assert found["saccade_processes_lost_total", ()] == 1
    assert found["process_start_time_seconds", ()] < time.time() + 1
    shared.retire("process1-7")
    shared.write("process1-8", counted(1))
    found = read(shared.add_up("process0-6", counted(2)))
    assert found["saccade_requests_total", ("/a", "200")] == 6
    assert found["saccade_request_seconds_sum", ("/a",)] == pytest.approx(6 * 0.03)
    assert found["saccade_connections", ()] == 3


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("processes") / "run", "languages.source=en", "languages.target=fr")


@contextmanager
def two_processes(run: Path, log: Path) -> Iterator[RunningServer]:
    with start_server(str(run), "--processes", "2", log=log) as found:
        until(lambda: len(events(log, "listening")) == 2)
        yield found


def events(log: Path, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines(keepends=True) if line.endswith("\n")]
    return [line for line in lines if line["event"] == name]


def ask(where: RunningServer, path: str, **body: Any) -> Any:
    address = f"http://{where.host}:{where.port}{path}"
    data = json.dumps(body).encode() if body else None
    asked = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=30) as found:
        return found.read()


def list_workers(where: RunningServer) -> list[int]:
    """The processes that serve: children of the one that starts them for the first."""
    starters = psutil.Process(where.process.pid).children()
    return [one.pid for starter in starters for one in starter.children()]


def test_one_that_is_killed_is_replaced_nothing_counted_is_forgotten_and_they_end_together(
    run: Path, tmp_path: Path
) -> None:
    def translate(times: int) -> None:
        for _ in range(times):
            ask(where, "/translate", q="a b", source="en", target="fr")

    def translated() -> float:
        return read(ask(where, "/metrics")).get(("saccade_requests_total", ("/translate", "200")), 0.0)

    def count_to(number: int) -> None:
        time.sleep(1.2)  # each process writes every second what it has counted
        until(lambda: all(translated() == number for _ in range(5)))

    with two_processes(run, log := tmp_path / "log") as where:
        translate(6)
        count_to(6)
        before = list_workers(where)
        assert len(before) == 2
        os.kill(before[0], signal.SIGKILL)
        until(lambda: len(events(log, "listening")) == 3)
        assert [one["code"] for one in events(log, "lost")] == [-9]
        translate(4)
        count_to(10)
        found = read(ask(where, "/metrics"))
        assert (found["saccade_processes", ()], found["saccade_processes_lost_total", ()]) == (2, 1)
        workers = list_workers(where)
        assert len({*before, *workers}) == 3
        assert json.loads(ask(where, "/ready")) == {"status": "ok"}

        where.process.send_signal(signal.SIGTERM)
        assert where.process.wait(PATIENCE) == 0
        assert not [one for one in workers if psutil.pid_exists(one)]
    assert len(events(log, "stopped")) == 3
    assert len(events(log, "lost")) == 1


def test_they_end_when_the_first_one_is_killed(run: Path, tmp_path: Path) -> None:
    with two_processes(run, tmp_path / "log") as where:
        workers = list_workers(where)
        assert len(workers) == 2
        where.process.kill()
        until(lambda: not [one for one in workers if psutil.pid_exists(one)])


def test_a_mistake_is_one_line(run: Path) -> None:
    command = [sys.executable, "-c", "from saccade.cli import main; main()", "serve", str(run), "--port", "0"]
    options = ["--processes", "2", "--languages", "en"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("saccade: --languages: 'en' given; allowed: RUN=en-fr")
    assert "Traceback" not in done.stderr
