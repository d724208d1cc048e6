"""Kernels that are compiled ahead lie on disk afterwards, and none of them was launched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.usefixtures("quick_start")
def test_kernels_are_compiled_and_not_launched(tmp_path: Path) -> None:
    script = Path(__file__).with_name("compile_ahead.py")
    environment = {**os.environ, "FOLDER": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, env=environment)
    assert run.stdout.splitlines() == ["2 True 0.0 2", "[True, True, False]", "False"], run.stderr
