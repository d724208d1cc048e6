"""What an accelerator runs, on one that has shapes and no numbers: devices meet, and the host waits for nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SUPPORT, TORCH = Path(__file__).parents[1] / "support", Path(torch.__file__).parent
COMPILER = shutil.which("g++")
CAPTURED = {"additive", "bahdanau", "luong", "none", "copies rnn"}


@pytest.mark.skipif(COMPILER is None or sys.platform != "linux", reason="needs g++ on Linux: apt-get install g++")
def test_training_and_writing_go_through(tmp_path: Path) -> None:
    library = tmp_path / "pretended_cuda.so"
    flags = ["-std=c++20", "-w", "-shared", "-fPIC", f"-I{TORCH / 'include'}", f"-L{TORCH / 'lib'}"]
    linked = ["-lc10", "-ltorch_cpu", f"-Wl,-rpath,{TORCH / 'lib'}", "-o", str(library)]
    subprocess.run([str(COMPILER), *flags, str(SUPPORT / "cpp" / "pretended_cuda.cpp"), *linked], check=True)
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SUPPORT / "pretended_cuda.py")],
        env={**kept, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = dict(line.split(": ") for line in done.stdout.splitlines())
    packed = {name for name in found if name.startswith("packed") and name != "packed recomputed"}
    assert {name for name, way in found.items() if way.endswith(", captured")} == packed | CAPTURED
    assert {"greedy", "beam", "text", "text lstm", "text key-value", "text lstmn"} <= found.keys()
