"""Every shipped configuration of the fused kernels compiles for Hopper and keeps its numbers in registers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.usefixtures("quick_start")
def test_the_compiler_takes_them() -> None:
    script = Path(__file__).with_name("compile_fused.py")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stderr
    assert run.stdout == ""
