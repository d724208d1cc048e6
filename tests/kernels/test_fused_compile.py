"""Every shipped configuration of the fused kernels compiles for Hopper and keeps its numbers in registers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_the_compiler_takes_them(tmp_path: Path) -> None:
    script = Path(__file__).with_name("compile_fused.py")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stderr
    assert run.stdout == ""
