"""Other toolkits, each in a virtual environment of its own: how they are installed, configured, run and read."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, final

import yaml

from saccade.bench import peer_configs
from saccade.bench.peer_configs import CONFIG, OUTPUT, Job
from saccade.data.files import replacing

TIME_LIMIT = 3600.0  # seconds, for one install or one training


class Mark(NamedTuple):
    """Where a training stood: its step, a clock in seconds, and the real target tokens trained on until then."""

    step: int
    seconds: float
    tokens: float


class Trained(NamedTuple):
    """What a training's log says: its marks, and the mean of the rates that it printed itself (tokens a second)."""

    marks: list[Mark]
    printed_rate: float | None = None


class Failed(RuntimeError):
    """A peer could not be installed or run; the message says why."""


@final
@dataclass(frozen=True)
class Peer:
    """A toolkit: its package, what pip is given, its config, its command line, and its log in our terms."""

    title: str
    package: str
    requirements: tuple[str, ...]
    config: Callable[[Job], dict[str, Any]]
    command: tuple[str, ...]  # the first word lies in the environment's bin
    read: Callable[[str], Trained]


class Versions(NamedTuple):
    """Of a toolkit, and of the torch below it."""

    toolkit: str
    torch: str


@final
@dataclass(frozen=True)
class Environment:
    """A peer's virtual environment in a folder."""

    peer: Peer
    folder: Path

    @property
    def binaries(self) -> Path:
        """Where its commands are."""
        return self.folder / "venv" / ("Scripts" if os.name == "nt" else "bin")

    @property
    def is_ready(self) -> bool:
        """It holds what is wanted; half an install doesn't count."""
        done = self.folder / "installed.json"
        return done.exists() and json.loads(done.read_text("utf-8")) == list(self.peer.requirements)

    def install(self) -> None:
        """Make it, from the package index that pip is set up for."""
        self.folder.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", "--clear", str(self.folder / "venv")], self.folder)
        _run([str(self.binaries / "python"), "-m", "pip", "install", "-q", *self.peer.requirements], self.folder)
        with replacing(self.folder / "installed.json") as draft:
            draft.write_text(json.dumps(self.peer.requirements), "utf-8")

    def versions(self) -> Versions:
        """What is installed."""
        code = f"from importlib.metadata import version as v; print(v({self.peer.package!r}), v('torch'))"
        return Versions(*_run([str(self.binaries / "python"), "-c", code], self.folder).split()[-2:])

    def train(self, job: Job, data: Path, threads: int) -> Trained:
        """Train in the folder of the data, and read the log."""
        shutil.rmtree(data / OUTPUT, ignore_errors=True)  # what the one before left
        with replacing(data / CONFIG) as draft:
            draft.write_text(yaml.safe_dump(self.peer.config(job), sort_keys=False, allow_unicode=True), "utf-8")
        command = [str(self.binaries / self.peer.command[0]), *self.peer.command[1:]]
        count = str(threads)
        quiet = {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "CUDA_VISIBLE_DEVICES": ""}
        trained = self.peer.read(_run(command, data, quiet))
        if len(trained.marks) < 2:
            raise Failed(f"{self.peer.title}: its log holds {len(trained.marks)} reports of progress; 2 are needed")
        return trained


def _run(command: list[str], folder: Path, variables: dict[str, str] | None = None) -> str:
    """All that a command printed; its last line is the reason when it fails."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**clean, **(variables or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=TIME_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{Path(command[0]).name} took more than {TIME_LIMIT:,.0f} seconds") from None
    except OSError as error:
        raise Failed(f"{command[0]}: {error.strerror}") from None
    printed = done.stdout.decode("utf-8", "replace")
    if done.returncode:
        lines = printed.strip().splitlines() or ["it printed nothing"]
        raise Failed(f"{Path(command[0]).name} ended with exit code {done.returncode}: {lines[-1].strip()}")
    return printed


def _clock(text: str) -> float:
    """Seconds of a time as Python's logging writes it, to the millisecond."""
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f").timestamp()  # only differences are used


_OPENNMT_LINE = re.compile(
    r"^\[(?P<clock>[\d-]+ [\d:]+,\d+) INFO\] Step +(?P<step>\d+)/.*; bsz: +\d+/ *(?P<tokens>\d+)/ *\d+; "
    r" *\d+/ *(?P<rate>\d+) tok/s;",
    re.MULTILINE,
)


def read_opennmt(log: str) -> Trained:
    """OpenNMT-py's and Eole's lines: `bsz` is the mean of real source tokens, target tokens and sentences a batch.

    Tokens are that mean times the steps since the last line, time is the line's own clock. `tok/s` counts the same
    tokens over the time since the last line, data loading included.
    """
    marks = [Mark(0, 0.0, 0.0)]
    rates = []
    for found in _OPENNMT_LINE.finditer(log):
        step, before = int(found["step"]), marks[-1]
        tokens = before.tokens + (step - before.step) * int(found["tokens"])
        marks.append(Mark(step, _clock(found["clock"]), tokens))
        rates.append(float(found["rate"]))
    return Trained(marks[1:], _mean_rate(rates))


_JOEY_LINE = re.compile(
    r"^(?P<clock>[\d-]+ [\d:]+,\d+) - .*Epoch +\d+, Step: +(?P<step>\d+),.*Tokens per Sec: +(?P<rate>\d+),",
    re.MULTILINE,
)


def read_joeynmt(log: str) -> Trained:
    """JoeyNMT's lines say no count, but a rate: real target tokens over the time since the last line, validation apart.

    Tokens are therefore that rate times the time between the lines' clocks.
    """
    marks: list[Mark] = []
    rates = []
    for found in _JOEY_LINE.finditer(log):
        seconds, rate = _clock(found["clock"]), float(found["rate"])
        tokens = marks[-1].tokens + rate * (seconds - marks[-1].seconds) if marks else 0.0
        marks.append(Mark(int(found["step"]), seconds, tokens))
        rates.append(rate)
    return Trained(marks, _mean_rate(rates))


def _mean_rate(rates: list[float]) -> float | None:
    """Of the rates printed after the first, which holds the set-up."""
    return sum(rates[1:]) / len(rates[1:]) if len(rates) > 1 else None


PEERS = {
    "opennmt_py": Peer(
        "OpenNMT-py",
        "OpenNMT-py",
        ("OpenNMT-py", "numpy<2"),
        peer_configs.opennmt_py,
        ("onmt_train", "-config", CONFIG),
        read_opennmt,
    ),
    "eole": Peer(
        "Eole", "eole", ("eole", "aiohttp"), peer_configs.eole, ("eole", "train", "-config", CONFIG), read_opennmt
    ),
    "joeynmt": Peer(
        "JoeyNMT",
        "joeynmt",
        ("joeynmt", "importlib_metadata", "sentencepiece==0.2.0"),
        peer_configs.joeynmt,
        ("python", "-m", "joeynmt", "train", CONFIG, "--skip-test"),
        read_joeynmt,
    ),
}
