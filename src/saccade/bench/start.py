"""`saccade bench start`: how long it takes until something happens, and which imports take the time.

Every command runs in a process of its own, in turns; what is counted is the time until it has ended. Compiled modules
are kept, as an installation has them, even where PYTHONDONTWRITEBYTECODE says that they should not be.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from saccade.errors import UserError

SENTENCE = "The old cat does not sleep."
IMPORT = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \|\s+(\S+)")
Say = Callable[[str], None]
# A small process starts the command: the memory of who starts it counts as its own.
WATCHER = """
import os, sys, time
null = os.open(os.devnull, os.O_WRONLY)
start = time.perf_counter()
number = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, null, 1)])
_, status, used = os.wait4(number, 0)
seconds = time.perf_counter() - start
print(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss, os.waitstatus_to_exitcode(status))
"""


class StartRow(NamedTuple):
    """A command: seconds until it ended, those of the CPU, and the most memory that it had."""

    title: str
    seconds: float
    cpu_seconds: float
    mebibytes: float


class ImportRow(NamedTuple):
    """A package: how long the modules in it took to be imported, without what they import."""

    package: str
    seconds: float
    modules: int


def list_commands(run: Path | None, engines: Sequence[str]) -> dict[str, list[str]]:
    """Return what is started, by its title."""
    saccade = [sys.executable, "-m", "saccade"]
    commands = {
        "python": [sys.executable, "-c", "pass"],
        "import torch": [sys.executable, "-c", "import torch"],
        "import saccade, attend": [sys.executable, "-c", "import saccade; saccade.attend"],
        "saccade --help": [*saccade, "--help"],
    }
    if run is not None:
        predict = [*saccade, "predict", str(run), SENTENCE]
        commands |= {f"saccade predict, {engine}": [*predict, "--engine", engine] for engine in engines}
    return commands


def measure(commands: Mapping[str, list[str]], rounds: int, say: Say) -> list[StartRow]:
    """Run all commands in turns, once before anything counts; return medians."""
    found: dict[str, list[StartRow]] = {title: [] for title in commands}
    for number in range(rounds + 1):
        say("warming up" if not number else f"round {number} of {rounds}")
        for title, command in commands.items():
            row = _run(title, command)
            if number:
                found[title].append(row)
    return [_take_medians(rows) for rows in found.values()]


def profile_imports(command: Sequence[str]) -> list[ImportRow]:
    """Add up the times of imports by package, the slowest first; Python's own are one."""
    with_times = [command[0], "-X", "importtime", *command[1:]]
    done = subprocess.run(with_times, capture_output=True, text=True, check=False, env=_environment())
    seconds, modules = defaultdict[str, float](float), defaultdict[str, int](int)
    for own, _, name in IMPORT.findall(done.stderr):
        package = name.partition(".")[0]
        package = "(Python's own)" if package.lstrip("_") in sys.stdlib_module_names or package[0] == "_" else package
        seconds[package] += int(own) / 1e6
        modules[package] += 1
    rows = [ImportRow(name, seconds[name], modules[name]) for name in seconds]
    return sorted(rows, key=lambda row: -row.seconds)


def _run(title: str, command: Sequence[str]) -> StartRow:
    watched = [sys.executable, "-S", "-c", WATCHER, *command]
    done = subprocess.run(watched, capture_output=True, text=True, check=False, env=_environment())
    seconds, cpu_seconds, kibibytes, code = map(float, done.stdout.split())
    if code:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        raise UserError(f"{title}: it ended with {code:.0f}: {last}")
    return StartRow(title, seconds, cpu_seconds, kibibytes / 1024)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _take_medians(rows: Sequence[StartRow]) -> StartRow:
    titles, *figures = zip(*rows, strict=True)
    return StartRow(titles[0], *map(statistics.median, figures))
