"""Virtual environments in which peers are installed and run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from saccade.files import replace_file

TIME_LIMIT = 3600.0  # seconds, for one command


class PeerError(RuntimeError):
    """Raised when a peer can't be installed or run; the message says why."""


@final
@dataclass(frozen=True)
class Environment:
    """A virtual environment in a folder, and the requirements that pip installs in it."""

    folder: Path
    requirements: tuple[str, ...]

    @property
    def binaries(self) -> Path:
        return self.folder / "venv" / ("Scripts" if os.name == "nt" else "bin")

    @property
    def is_ready(self) -> bool:
        """Return whether the installation is complete."""
        done = self.folder / "installed.json"
        return done.exists() and json.loads(done.read_text("utf-8")) == list(self.requirements)

    def install(self) -> None:
        """Create the environment; pip uses the package index it is set up for."""
        self.folder.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", "--clear", str(self.folder / "venv")], self.folder)
        self.run(["python", "-m", "pip", "install", "-q", *self.requirements], self.folder)
        with replace_file(self.folder / "installed.json") as draft:
            draft.write_text(json.dumps(self.requirements), "utf-8")

    def versions(self, *packages: str) -> list[str]:
        code = f"from importlib.metadata import version; print(*map(version, {list(packages)!r}))"
        return self.run(["python", "-c", code], self.folder).split()[-len(packages) :]

    def run(self, command: Sequence[str], folder: Path, variables: Mapping[str, str] | None = None) -> str:
        """Run a command in a folder and return its output; if it fails, the last line is the reason."""
        return _run([str(self.binaries / command[0]), *command[1:]], folder, variables)


def _run(command: list[str], folder: Path, variables: Mapping[str, str] | None = None) -> str:
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
        raise PeerError(f"{Path(command[0]).name} took more than {TIME_LIMIT:,.0f} seconds") from None
    except OSError as error:
        raise PeerError(f"{command[0]}: {error.strerror}") from None
    printed = done.stdout.decode("utf-8", "replace")
    if done.returncode:
        lines = printed.strip().splitlines() or ["it printed nothing"]
        raise PeerError(f"{Path(command[0]).name} ended with exit code {done.returncode}: {lines[-1].strip()}")
    return printed
