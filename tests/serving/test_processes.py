"""Several processes behind one port: who is lost is replaced, what they count is added up, and they end together."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from runs import make_run
from saccade.bench.serving.http_client import RunningServer, start_server
from saccade.runs.load import load_run
from saccade.serving.http.metrics import Metrics
from saccade.serving.processes.connections import ANSWERED, ASKED, FREE, WAITS, HeldConnection, Inbox, Outbox
from saccade.serving.processes.metrics import SharedMetrics, TeamCounts
from saccade.training import checkpoints

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
    shared.write("first", TeamCounts(lost=1).describe(2))
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


Begun = list[tuple[HeldConnection, socket.socket]]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Outbox, Inbox, Begun]]:
    """The two ends of a process's connections, and those that it has begun with."""
    outbox, begun = Outbox(tmp_path / "states"), Begun()
    inbox = Inbox(outbox.theirs, outbox.path)
    yield outbox, inbox, begun
    for one in (*(connection for _, connection in begun), *outbox.held.values(), outbox.channel, inbox.channel):
        one.close()


def test_a_handle_outlives_who_answers(both: tuple[Outbox, Inbox, Begun], tmp_path: Path) -> None:
    outbox, inbox, begun = both
    clients = [socket.socketpair() for _ in range(4)]
    assert all(outbox.hand(server) for _, server in clients)
    inbox.take(lambda held, connection: begun.append((held, connection)))
    for (held, connection), state in zip(begun, (WAITS, ASKED, ANSWERED, FREE), strict=True):
        held.say(state)
        connection.send(b"x")
    begun[3][0].end()  # who answers it has closed it
    for _, connection in begun:
        connection.close()
    assert outbox.hear() == []
    assert clients[3][0].recv(9) + clients[3][0].recv(9) == b"x"
    left = outbox.close()  # the process has ended
    assert [state for _, state in left] == [WAITS, ASKED, ANSWERED]
    left[1].connection.send(b"y")
    assert clients[1][0].recv(9) == b"xy"
    assert not (tmp_path / "states").exists()
    for pair in clients:
        for one in pair:
            one.close()


def test_what_is_given_back_is_handed_on_and_its_place_is_used_again(both: tuple[Outbox, Inbox, Begun]) -> None:
    outbox, inbox, begun = both
    client, server = socket.socketpair()
    assert outbox.hand(server)
    assert outbox.retire()
    inbox.take(lambda held, connection: begun.append((held, connection)))
    assert inbox.is_retiring
    begun[0][0].is_given_back = True
    begun[0][1].close()
    begun[0][0].end()
    client.send(b"still here")
    assert outbox.hear() == [server]
    assert server.recv(99) == b"still here"
    assert not outbox.held
    assert outbox.hand(server)
    assert [*outbox.held] == [0]
    client.close()


def test_weights_are_the_bytes_of_their_file(tmp_path: Path) -> None:
    made = make_run(tmp_path / "run", "model.tied=three")
    with checkpoints.map_weights():
        mapped = load_run(made)
    copied = load_run(made)
    assert [one.line() for one in mapped.predict(["a b c"])] == [one.line() for one in copied.predict(["a b c"])]
    maps = {Path(one.path).name for one in psutil.Process().memory_maps()}
    assert "model.safetensors" in maps
    weights = dict(mapped.model.named_parameters())
    assert len(weights) == len(dict(copied.model.named_parameters()))  # what is tied is one
    del mapped, weights
    gc.collect()
    assert "model.safetensors" not in {Path(one.path).name for one in psutil.Process().memory_maps()}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("processes") / "run", "languages.source=en", "languages.target=fr")


@contextmanager
def two_processes(run: Path, log: Path) -> Iterator[RunningServer]:
    with start_server(str(run), "--processes", "2", "--reload", log=log) as found:
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


def open_states(where: RunningServer) -> list[int]:
    """The states of all connections, as the processes tell them."""
    return [state for states in states_by_process(where) for state in states]


def states_by_process(where: RunningServer) -> list[list[int]]:
    files = {Path(one.path) for pid in list_workers(where) for one in psutil.Process(pid).memory_maps()}
    return [[*filter(None, path.read_bytes())] for path in files if path.name.startswith("connections-")]


@contextmanager
def open_connections(where: RunningServer, number: int) -> Iterator[None]:
    """Open connections that wait for their clients; the same ones still answer at the end."""
    clients = [HTTPConnection(where.host, where.port, timeout=PATIENCE) for _ in range(number)]

    def ask_each() -> None:
        for client in clients:
            client.request("GET", "/health")
            answer = client.getresponse()
            assert (answer.status, answer.read()) == (200, b'{"status":"ok"}')

    ask_each()
    sockets = [client.sock for client in clients]
    yield
    ask_each()
    assert [client.sock for client in clients] == sockets
    for client in clients:
        client.close()


def check_who_is_in_a_request_is_told_and_who_waits_is_answered_by_another(where: RunningServer, log: Path) -> None:
    def get(connection: HTTPConnection, path: str) -> tuple[int, bytes]:
        connection.request("GET", path)
        found = connection.getresponse()
        return found.status, found.read()

    asking, waiting = (HTTPConnection(where.host, where.port, timeout=PATIENCE) for _ in range(2))
    assert get(waiting, "/health")[0] == get(asking, "/health")[0] == 200
    asking.putrequest("POST", "/translate")
    asking.putheader("Content-Length", "99")
    asking.endheaders(b"q=a")
    until(lambda: sorted(open_states(where)) == [WAITS, ASKED])
    for worker in list_workers(where):
        os.kill(worker, signal.SIGKILL)
    answer = asking.getresponse()
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert json.loads(answer.read())["error"] == "The process that answered this request has ended; ask again"
    assert get(waiting, "/health")[0] == 200  # the same connection
    waiting.close()
    asking.close()
    found = read(ask(where, "/metrics"))
    assert (found["saccade_requests_lost_total", ("503",)], found["saccade_requests_lost_total", ("cut",)]) == (1, 0)
    assert found["saccade_processes_lost_total", ()] == 3
    until(lambda: len(events(log, "listening")) == 5)
    assert not open_states(where)


def check_a_run_that_changes_is_loaded_anew_and_no_request_is_lost(where: RunningServer, run: Path) -> None:
    before, answers, is_over = list_workers(where), list[str](), threading.Event()

    def go_on_asking() -> None:
        connection = HTTPConnection(where.host, where.port, timeout=PATIENCE)
        body, kind = json.dumps({"q": "a b c", "source": "en", "target": "fr"}), {"Content-Type": "application/json"}
        while not is_over.is_set():
            connection.request("POST", "/translate", body, kind)
            found = connection.getresponse()
            said = json.loads(found.read())
            answers.append(said["translatedText"] if found.status == 200 else f"{found.status}: {said}")
            time.sleep(0.01)
        connection.close()

    clients = [threading.Thread(target=go_on_asking) for _ in range(3)]
    for client in clients:
        client.start()
    try:
        until(lambda: len(answers) > 20)
        (first,) = set(answers)
        network = load_run(run).model
        for weight in network.parameters():
            weight.data.neg_()
        checkpoints.save_weights(run / "model.safetensors", network)
        until(lambda: len(list_workers(where)) == 2 and not {*before} & {*list_workers(where)})
        seen = len(answers)
        until(lambda: len(answers) > seen + 20)
    finally:
        is_over.set()
        for client in clients:
            client.join()
    assert {*answers} == {first, answers[-1]}
    assert first != answers[-1]
    found = read(ask(where, "/metrics"))
    assert (found["saccade_reloads_total", ()], found["saccade_processes_lost_total", ()]) == (1, 3)


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
        with open_connections(where, 24):
            until(lambda: [len(states) for states in states_by_process(where)] == [12, 12])
            os.kill(before[0], signal.SIGKILL)
            until(lambda: len(events(log, "listening")) == 3)
            until(lambda: [len(states) for states in states_by_process(where)] == [12, 12])
        assert [one["code"] for one in events(log, "lost")] == [-9]
        translate(4)
        count_to(10)
        found = read(ask(where, "/metrics"))
        assert (found["saccade_processes", ()], found["saccade_processes_lost_total", ()]) == (2, 1)
        assert len({*before, *list_workers(where)}) == 3
        assert json.loads(ask(where, "/ready")) == {"status": "ok"}

        check_who_is_in_a_request_is_told_and_who_waits_is_answered_by_another(where, log)
        check_a_run_that_changes_is_loaded_anew_and_no_request_is_lost(where, run)
        workers = list_workers(where)
        where.process.send_signal(signal.SIGTERM)
        assert where.process.wait(PATIENCE) == 0
        assert not [one for one in workers if psutil.pid_exists(one)]
    assert len(events(log, "stopped")) == 5  # two when the run was loaded anew
    assert len(events(log, "lost")) == 3


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
