"""`saccade serve` as a process: what it says, what it refuses, and how it stops."""

from __future__ import annotations

import asyncio
import json
import multiprocessing.context
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from runs import make_run
from saccade.bench.serving.http_client import Connection, RunningServer, start_server
from saccade.cli import app
from saccade.errors import UserError

RUNNER = CliRunner()
SECRET = "a b secret"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("command") / "run", "languages.source=en", "languages.target=fr")


def refused(*arguments: str) -> str:
    found = RUNNER.invoke(app, ["serve", *arguments]).exception
    assert isinstance(found, UserError)
    return str(found)


def test_mistakes_are_one_line(run: Path, tmp_path: Path) -> None:
    assert "not a run folder" in refused(str(tmp_path))
    assert "allowed: RUN=en-fr" in refused(str(run), "--languages", "en")
    assert "there is no file at" in refused(str(run), "--api-keys", str(tmp_path / "none"))
    assert "two runs have this name" in refused(str(run), str(run))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"--port: {port} on 127.0.0.1: Address already in use" in refused(str(run), "--port", str(port))
    several = "--rate: 5 given with --processes 2, which do not count together"
    assert refused(str(run), "--port", "0", "--processes", "2", "--rate", "5").startswith(several)
    assert "--host: nowhere.invalid" in refused(str(run), "--host", "nowhere.invalid")


def test_several_processes_are_refused_where_none_can_fork(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(multiprocessing.context._concrete_contexts, "forkserver")  # type: ignore[attr-defined]
    for option in (("--processes", "2"), ("--reload",)):
        assert "need Linux or macOS" in refused(str(run), "--port", "0", *option)


def test_a_library_that_is_missing_is_named(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("saccade.serving.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("saccade.serving.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert refused(str(run)) == "serving needs uvicorn: pip install 'saccade[serve]'"


@pytest.mark.usefixtures("quick_start")
def test_it_stops_when_all_that_waits_is_answered_and_its_log_tells_no_texts(run: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with start_server(str(run), "--batch-wait", "3000", "--api-keys", str(keys(tmp_path)), log=log) as where:
        answers: list[int] = []
        client = threading.Thread(target=lambda: answers.extend(asyncio.run(asked(where))))
        client.start()
        while inside(where) < 3:
            pass
        where.process.send_signal(signal.SIGTERM)
        client.join(60)
        assert answers == [200, 200, 200]
        assert where.process.wait(60) == 0
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert [line["event"] for line in lines[:1]] == ["listening"]
    posts = [line for line in lines if line.get("route") == "/translate"]
    assert [(line["method"], line["status"]) for line in posts] == [("POST", 200)] * 3
    assert "secret" not in log.read_text("utf-8")
    assert "correct" not in log.read_text("utf-8")


@pytest.mark.usefixtures("quick_start")
def test_a_second_signal_ends_it_at_once(run: Path, tmp_path: Path) -> None:
    body = json.dumps({"q": SECRET, "source": "en", "target": "fr", "api_key": "correct horse"})
    head = (
        f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    with (
        start_server(
            str(run), "--batch-wait", "60000", "--api-keys", str(keys(tmp_path)), log=tmp_path / "log"
        ) as where,
        socket.create_connection((where.host, where.port)) as client,
    ):
        client.sendall(f"{head}\r\n\r\n{body}".encode())
        while inside(where) < 1:
            pass
        where.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            where.process.wait(1)
        where.process.send_signal(signal.SIGTERM)
        where.process.wait(20)


@pytest.mark.usefixtures("quick_start")
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGHUP])
def test_it_ends_in_the_stated_time_whatever_it_computes(run: Path, tmp_path: Path, sign: signal.Signals) -> None:
    text = "a b c d e f g h " * 1200  # it would take minutes
    body = json.dumps({"q": text, "source": "en", "target": "fr"}).encode()
    answers: list[int] = []
    limits = ("--drain-timeout", "0.5", "--max-body", "100000")
    with start_server(str(run), *limits, log=tmp_path / "log") as where:

        async def ask() -> None:
            connection = await Connection.open(where.host, where.port)
            answers.append((await connection.post("/translate", body)).status)
            connection.close()

        client = threading.Thread(target=lambda: asyncio.run(ask()))
        client.start()
        while "saccade_queue_seconds_count{" not in metrics(where) or inside(where) < 1:
            pass
        where.process.send_signal(sign)
        assert where.process.wait(60) == 0
        client.join(30)
    assert answers == [503]
    log = (tmp_path / "log").read_text("utf-8")
    assert '"draining", "requests": 1' in log
    assert "terminate called" not in log


def keys(folder: Path) -> Path:
    path = folder / "keys"
    path.write_text("correct horse\n", encoding="utf-8")
    return path


async def asked(where: RunningServer) -> list[int]:
    async def one() -> int:
        body = {"q": SECRET, "source": "en", "target": "fr", "api_key": "correct horse"}
        connection = await Connection.open(where.host, where.port)
        status = (await connection.post("/translate", json.dumps(body).encode())).status
        connection.close()
        return status

    return list(await asyncio.gather(*(one() for _ in range(3))))


def inside(where: RunningServer) -> float:
    """How many wait; three seconds long, for others."""
    lines = metrics(where).splitlines()
    return max((float(line.split()[-1]) for line in lines if line.startswith("saccade_queue_length{")), default=0)


def metrics(where: RunningServer) -> str:
    address = f"http://{where.host}:{where.port}/metrics"
    request = urllib.request.Request(address, headers={"Authorization": "Bearer correct horse"})
    with urllib.request.urlopen(request, timeout=30) as found:
        return found.read().decode()
