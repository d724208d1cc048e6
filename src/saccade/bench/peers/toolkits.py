"""Other toolkits, each in its own virtual environment: their configs, commands and logs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, final

import yaml

from saccade.bench.peers import configs
from saccade.bench.peers.configs import CONFIG, OUTPUT, ToolkitJob
from saccade.bench.peers.environments import Environment, PeerError
from saccade.files import replace_file


class Mark(NamedTuple):
    """A point of a training: its step, a clock in seconds, and the number of real target tokens so far."""

    step: int
    seconds: float
    tokens: float


class ToolkitOutcome(NamedTuple):
    """The marks in a training's log, and the mean of the rates that the toolkit printed (tokens a second)."""

    marks: list[Mark]
    printed_rate: float | None = None


@final
@dataclass(frozen=True)
class ToolkitPeer:
    """A toolkit: its package, requirements, config and command, and a function that reads its log."""

    title: str
    package: str
    requirements: tuple[str, ...]
    config: Callable[[ToolkitJob], dict[str, Any]]
    command: tuple[str, ...]  # the first word lies in the environment's bin
    read: Callable[[str], ToolkitOutcome]


class Versions(NamedTuple):
    """The versions of a toolkit and of the torch it uses."""

    toolkit: str
    torch: str


@final
@dataclass(frozen=True)
class Toolkit:
    """A peer in its own virtual environment."""

    peer: ToolkitPeer
    environment: Environment

    @classmethod
    def at(cls, peer: ToolkitPeer, folder: Path) -> Toolkit:
        """Return the toolkit in a folder, where it may already be installed."""
        return cls(peer, Environment(folder, peer.requirements))

    def versions(self) -> Versions:
        return Versions(*self.environment.versions(self.peer.package, "torch"))

    def train(self, job: ToolkitJob, data: Path, threads: int) -> ToolkitOutcome:
        """Train in the folder of the data, and read the log."""
        shutil.rmtree(data / OUTPUT, ignore_errors=True)  # what the one before left
        with replace_file(data / CONFIG) as draft:
            draft.write_text(yaml.safe_dump(self.peer.config(job), sort_keys=False, allow_unicode=True), "utf-8")
        count = str(threads)
        quiet = {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "CUDA_VISIBLE_DEVICES": ""}
        trained = self.peer.read(self.environment.run(self.peer.command, data, quiet))
        if len(trained.marks) < 2:
            raise PeerError(f"{self.peer.title}: its log holds {len(trained.marks)} reports of progress; 2 are needed")
        return trained


def _clock(text: str) -> float:
    """Return the seconds of a time as Python's logging writes it, to the millisecond."""
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f").timestamp()  # only differences are used


_OPENNMT_LINE = re.compile(
    r"^\[(?P<clock>[\d-]+ [\d:]+,\d+) INFO\] Step +(?P<step>\d+)/.*; bsz: +\d+/ *(?P<tokens>\d+)/ *\d+; "
    r" *\d+/ *(?P<rate>\d+) tok/s;",
    re.MULTILINE,
)


def read_opennmt(log: str) -> ToolkitOutcome:
    """Read the log of OpenNMT-py or Eole: `bsz` is the mean of source tokens, target tokens and sentences a batch.

    The number of tokens is that mean times the steps since the last line; the time is the line's clock. `tok/s` divides
    the same tokens by the time since the last line, which includes the loading of data.
    """
    marks = [Mark(0, 0.0, 0.0)]
    rates = []
    for found in _OPENNMT_LINE.finditer(log):
        step, before = int(found["step"]), marks[-1]
        tokens = before.tokens + (step - before.step) * int(found["tokens"])
        marks.append(Mark(step, _clock(found["clock"]), tokens))
        rates.append(float(found["rate"]))
    return ToolkitOutcome(marks[1:], _mean_rate(rates))


_JOEY_LINE = re.compile(
    r"^(?P<clock>[\d-]+ [\d:]+,\d+) - .*Epoch +\d+, Step: +(?P<step>\d+),.*Tokens per Sec: +(?P<rate>\d+),",
    re.MULTILINE,
)


def read_joeynmt(log: str) -> ToolkitOutcome:
    """Read JoeyNMT's log, which has no token counts but rates: target tokens a second since the last line.

    The number of tokens is that rate times the time between two lines.
    """
    marks: list[Mark] = []
    rates = []
    for found in _JOEY_LINE.finditer(log):
        seconds, rate = _clock(found["clock"]), float(found["rate"])
        tokens = marks[-1].tokens + rate * (seconds - marks[-1].seconds) if marks else 0.0
        marks.append(Mark(int(found["step"]), seconds, tokens))
        rates.append(rate)
    return ToolkitOutcome(marks, _mean_rate(rates))


def _mean_rate(rates: list[float]) -> float | None:
    """Return the mean of the printed rates without the first, which includes the set-up."""
    return sum(rates[1:]) / len(rates[1:]) if len(rates) > 1 else None


PEERS = {
    "opennmt_py": ToolkitPeer(
        "OpenNMT-py",
        "OpenNMT-py",
        ("OpenNMT-py", "numpy<2"),
        configs.opennmt_py,
        ("onmt_train", "-config", CONFIG),
        read_opennmt,
    ),
    "eole": ToolkitPeer(
        "Eole", "eole", ("eole", "aiohttp"), configs.eole, ("eole", "train", "-config", CONFIG), read_opennmt
    ),
    "joeynmt": ToolkitPeer(
        "JoeyNMT",
        "joeynmt",
        ("joeynmt", "importlib_metadata", "sentencepiece==0.2.0"),
        configs.joeynmt,
        ("python", "-m", "joeynmt", "train", CONFIG, "--skip-test"),
        read_joeynmt,
    ),
}
