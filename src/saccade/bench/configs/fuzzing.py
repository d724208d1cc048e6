"""Train with mutated configs and data files, and use runs with mutated inputs, in this process.

Each must be refused in one line, or do its work; what is refused leaves nothing, and what uses a run changes nothing.
"""

from __future__ import annotations

import contextlib
import io
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import yaml

from saccade.bench.configs import mutations, samples
from saccade.cli import main
from saccade.errors import UserError

PATIENCE = 60.0  # seconds of work, which a busy machine does not lengthen; more is a hang
LONGEST = 600.0  # seconds by the clock, for what waits for ever
MAX_BYTES = 12 << 30  # of memory: more is refused by the system
RUN = Path("runs", "case")  # in the folder of a case
ALWAYS = ("training.max_steps=2", "training.validate_every=2", "training.tensorboard=false", "device=cpu")


class CaseResult(NamedTuple):
    """A mutated case: what was changed, the exit code, the seconds of work, and what was wrong with the answer."""

    what: str
    code: int | None
    seconds: float
    problem: str | None


class ConfigFuzzReport(NamedTuple):
    """The exit codes of all cases, the slowest (seconds), and the cases that did harm."""

    codes: Counter[int | None]
    slowest: float
    bad: list[CaseResult]

    def as_dict(self) -> dict[str, Any]:
        codes = {str(code): count for code, count in self.codes.items()}
        return {"codes": codes, "slowest": self.slowest, "bad": [one._asdict() for one in self.bad]}


def fuzz_configs(
    count: int, *, seed: int = 1, keep: Path | None = None, say: Callable[[CaseResult], None] = lambda case: None
) -> ConfigFuzzReport:
    """Train `count` mutated cases; the same seed gives the same ones. Harmful ones are kept in a folder."""
    if not hasattr(signal, "SIGPROF"):
        raise UserError("fuzz: needs Linux or macOS, which can limit a case's time and memory")
    codes, bad, slowest = Counter[int | None](), list[CaseResult](), 0.0
    for number in range(count):
        with tempfile.TemporaryDirectory() as name:
            found = _try_case(Path(name), random.Random(f"{seed} {number}"))
            say(found)
            if found.problem is not None:
                bad.append(found)
                if keep is not None:
                    shutil.copytree(name, keep / f"case{number}", dirs_exist_ok=True)
        codes[found.code] += 1
        slowest = max(slowest, found.seconds)
    return ConfigFuzzReport(codes, slowest, bad)


def _try_case(folder: Path, chance: random.Random) -> CaseResult:
    name = chance.choice(sorted(samples.SAMPLES))
    content = samples.SAMPLES[name](folder)
    way = chance.random()
    files = sorted(path for path in folder.iterdir() if path.is_file())
    began = time.process_time()
    if way < 0.2:
        what, code, problem = _use(folder, content, chance)
    elif way < 0.45 and files:
        what = mutations.change_file(chance.choice(files), chance)
        code, problem = _train(folder, yaml.safe_dump(content).encode())
    else:
        config, what = mutations.change_config(content, samples.known_fields(content), chance)
        code, problem = _train(folder, config)
    return CaseResult(f"{name}: {what}", code, time.process_time() - began, problem)


def _train(folder: Path, config: bytes) -> tuple[int | None, str | None]:
    """Train; return the exit code, and what was wrong with how it ended."""
    (folder / "case.yaml").write_bytes(config)
    before = set(folder.rglob("*"))
    code, problem = _command("train", str(folder / "case.yaml"), *ALWAYS, "--run", str(folder / RUN))
    return code, problem or _leftovers(folder, before, code)


def _use(folder: Path, content: dict[str, Any], chance: random.Random) -> tuple[str, int | None, str | None]:
    """Train as the sample says, change one of the files that it leaves or has learned from, and use the run."""
    code, problem = _train(folder, yaml.safe_dump(content).encode())
    run = folder / RUN
    if code or problem is not None:
        return "before any change", code, problem or "a valid config is refused"
    changed = chance.choice(sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size))
    what = mutations.change_file(changed, chance)
    inputs = ("--input", str(chance.choice(sorted(path for path in folder.iterdir() if path.is_file()))))
    for command in (("predict", *inputs, "--json"), ("evaluate", "--json"), ("look", *inputs)):
        before = _contents(run)
        code, problem = _command(command[0], str(run), *command[1:])
        if problem is None and _contents(run) != before:
            problem = "it wrote into the run"
        if problem is not None:
            break
    return f"{command[0]}, {what}", code, problem


def _contents(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


def _command(*arguments: str) -> tuple[int | None, str | None]:
    """Run a command; return its exit code, and what was wrong with how it ended."""
    said, errors = io.StringIO(), io.StringIO()
    with (
        _limits(),
        _argv(["saccade", *arguments]),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(errors),
    ):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        except _TooSlow:
            return None, f"no end after {PATIENCE:g} seconds of work, or {LONGEST:g} by the clock"
        except Exception:
            return None, traceback.format_exc()
    lines = errors.getvalue().splitlines()
    is_one = len(lines) == 1 or (arguments[0] != "train" and lines and lines[-1].startswith("saccade: "))
    if code == 2 and not is_one:
        return code, f"{len(lines)} lines instead of one: {errors.getvalue()}"
    if code not in (0, 2) and "the loss" not in errors.getvalue():
        return code, f"exit code {code}: {errors.getvalue()}"
    return code, None


def _leftovers(folder: Path, before: set[Path], code: int | None) -> str | None:
    """Name what a refused run leaves, what a trained one lacks, and drafts."""
    drafts = [path for path in folder.rglob(".*-*") if path not in before]
    if drafts:
        return f"half-written: {drafts[0]}"
    run = folder / RUN
    if code == 2 and run.exists():
        return f"a refused run left {sorted(path.name for path in run.iterdir())}"
    wanted = ("model.safetensors", "config.yaml", "report.html")
    missing = [name for name in wanted if code == 0 and not (run / name).exists()]
    return f"a trained run lacks {missing}" if missing else None


class _TooSlow(BaseException):
    """Raised by the alarm when a config takes too long."""


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    """Limit time and memory within the block."""
    import resource  # which Windows lacks

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise _TooSlow

    earlier = {number: signal.signal(number, stop) for number in (signal.SIGPROF, signal.SIGALRM)}
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, hard))
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        for number, handler in earlier.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _argv(arguments: list[str]) -> Iterator[None]:
    earlier, sys.argv = sys.argv, arguments
    try:
        yield
    finally:
        sys.argv = earlier
