"""Windows and macOS, as far as Linux can tell: everything imports and a server answers without what only Unix has."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from runs import make_run

PROGRAM = """
import asyncio, importlib, multiprocessing.context, os, pkgutil, re, signal, socket, sys
from pathlib import Path
import uvicorn

for name in [name for name in sys.modules if name.partition(".")[0] == "saccade"]:
    del sys.modules[name]
for name in ("fcntl", "grp", "pwd", "readline", "resource", "termios", "triton", "tty", "uvloop"):
    sys.modules[name] = None
MISSING = {
    os: "fork getloadavg getuid killpg nice pidfd_open sched_getaffinity sched_getscheduler setsid sysconf uname",
    signal: "ITIMER_PROF SIGALRM SIGCHLD SIGHUP SIGKILL SIGPROF SIGUSR1 pidfd_send_signal setitimer",
    socket: "SO_REUSEPORT recv_fds send_fds",
    multiprocessing.context: "ForkServerContext ForkServerProcess",
}
for module, names in MISSING.items():
    for name in names.split():
        delattr(module, name)
for name in ("fork", "forkserver"):
    del multiprocessing.context._concrete_contexts[name]


class ProactorEventLoop(asyncio.SelectorEventLoop):
    def add_reader(self, *arguments):
        raise NotImplementedError


asyncio.ProactorEventLoop = ProactorEventLoop
uvicorn.Config.get_loop_factory = lambda self: ProactorEventLoop

import saccade
for found in pkgutil.walk_packages(saccade.__path__, "saccade."):
    source = Path(importlib.util.find_spec(found.name).origin).read_text("utf-8")
    if not re.search(r"^(import|from) triton\\b", source, re.MULTILINE):
        importlib.import_module(found.name)
saccade.__main__.main()
"""


@pytest.mark.usefixtures("quick_start")
def test_everything_imports_and_a_server_answers_and_ends(tmp_path: Path) -> None:
    run, log = make_run(tmp_path / "run", "languages.source=en", "languages.target=fr"), tmp_path / "log"
    command = [sys.executable, "-c", PROGRAM, "serve", str(run), "--port", "0", "--drain-wait", "0"]
    with log.open("wb") as errors, subprocess.Popen(command, stderr=errors) as server:
        try:
            while '"url"' not in (said := log.read_text("utf-8")):
                assert server.poll() is None, said
                time.sleep(0.01)
            url = json.loads(said.splitlines()[0])["url"]
            body = json.dumps({"q": "a b", "source": "en", "target": "fr"}).encode()
            request = urllib.request.Request(f"{url}/translate", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                assert answer.status == 200
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0
        finally:
            server.kill()
