"""Python processes that start at once: forks of one that has imported everything.

A fresh one needs three seconds to import torch, and two more for its first optimizer. These are processes all the
same: with their own output, signals and exit code.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from multiprocessing import forkserver, reduction
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, NamedTuple

from saccade.cli import COMMANDS

FORKING = multiprocessing.get_context("forkserver")
IMPORTED = [
    "saccade.serving.server",
    "torch._dynamo",
    "matplotlib.pyplot",
    *(f"saccade.cli.{name}" for name in COMMANDS),
]
FORKING.set_forkserver_preload(IMPORTED)


class Descriptor:
    """A file descriptor that is handed to a process as it starts."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _receive, (reduction.DupFd(self.number),)


def _receive(sent: Any) -> int:
    return sent.detach()


class Start(NamedTuple):
    """What a process is given: arguments of Python, a folder, an environment, and its standard streams (or None)."""

    arguments: list[str]
    folder: str | None
    environment: dict[str, str] | None
    streams: list[Descriptor]
    is_session: bool

    def run(self) -> None:
        """In the new process: do what a fresh one would do."""
        gc.freeze()  # what was imported stays
        if self.is_session:
            os.setsid()
        multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
        vars(forkserver._forkserver)["ensure_running"] = lambda: None  # its own forks are the same server's
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup may have started the tests
        if self.environment is not None:
            os.environ.clear()
            os.environ.update(self.environment)
        os.chdir(self.folder or ".")
        self._open_streams()
        first, *rest = [one for one in self.arguments if one != "-u"]  # nobody reads before it ends
        if first in ("-c", "-m"):
            what, *rest = rest
        sys.argv = [first, *rest]
        if first == "-c":
            exec(what, {"__name__": "__main__"})
        elif first == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(first).parent))
            runpy.run_path(first, run_name="__main__")

    def _open_streams(self) -> None:
        for number, stream in enumerate(self.streams):
            os.dup2(stream, number)  # type: ignore[arg-type]
            os.close(stream)  # type: ignore[arg-type]
        encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
        sys.stdin, sys.stdout = open(0, encoding=encoding), open(1, "w", encoding=encoding)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding=encoding, errors="backslashreplace", buffering=1)  # noqa: SIM115


class Popen(subprocess.Popen[Any]):
    """`subprocess.Popen` that forks this Python and starts everything else as usual."""

    _forked: ForkServerProcess | None = None

    def _execute_child(
        self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any, env: Any,
        startupinfo: Any, creationflags: Any, shell: Any, *others: Any
    ) -> None:  # fmt: skip
        if shell or args[0] != sys.executable:
            settings = (executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell)
            super()._execute_child(args, *settings, *others)  # type: ignore[misc]
            return
        pipes = others[:6]
        streams = [Descriptor(own if pipes[i] == -1 else pipes[i]) for own, i in enumerate((0, 3, 5))]
        folder = None if cwd is None else os.fspath(cwd)
        start = Start([os.fspath(x) for x in args[1:]], folder, env, streams, is_session=bool(others[11]))
        forked = FORKING.Process(target=start.run, daemon=True)
        forked.start()
        assert forked.pid is not None
        self._forked, self.pid, self._child_created = forked, forked.pid, True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _internal_poll(self, *options: Any, **more: Any) -> int | None:
        if self._forked is None:
            return super()._internal_poll(*options, **more)  # type: ignore[misc]
        if self.returncode is None:
            self.returncode = self._forked.exitcode
        return self.returncode

    def _wait(self, timeout: float | None) -> int | None:
        if self._forked is None:
            return super()._wait(timeout=timeout)  # type: ignore[misc]
        self._forked.join(timeout)
        if self._internal_poll() is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode


def torchrun(*arguments: str) -> list[str]:
    """Return a command for torchrun with two processes. Each of them leaves its number in a file: rank0, rank1."""
    own = [sys.executable, "-c", "import forked; forked.run_torchrun()"]
    return [*own, "--standalone", "--nproc-per-node", "2", *arguments]


def run_torchrun() -> None:
    """In a fork: torchrun, whose processes are forks of the same server."""
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler
    from torch.distributed.run import main

    class Rank(Popen):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            Path(f"rank{options['env']['RANK']}").write_text(str(self.pid), encoding="utf-8")

    vars(subprocess_handler)["Popen"] = Rank
    main()


def start_server() -> None:
    """Import everything in the process that is forked, without Triton's interpreter: its forks may compile."""
    interpreted = os.environ.pop("TRITON_INTERPRET", None)
    forkserver.ensure_running()
    if interpreted is not None:
        os.environ["TRITON_INTERPRET"] = interpreted
