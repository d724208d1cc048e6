"""Trains in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from saccade.errors import UserError


def train_command(arguments: list[str], folder: Path) -> list[str]:
    """Return the command `saccade train ARGUMENTS --run FOLDER` for this Python; several may share an accelerator."""
    return [sys.executable, "-m", "saccade", "train", *arguments, "--run", str(folder), "--no-rehearse"]


def train_in_process(arguments: list[str], folder: Path) -> None:
    """Train to the end in a child process; raise its error here."""
    done = subprocess.run(train_command(arguments, folder), capture_output=True, text=True, check=False)
    if done.returncode == 2:
        raise UserError(f"{folder}: {done.stderr.strip().removeprefix('saccade: ')}")
    if done.returncode:
        raise RuntimeError(f"{folder}: training ended with exit code {done.returncode}:\n{done.stderr}")
