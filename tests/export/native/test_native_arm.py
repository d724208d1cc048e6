"""The native library for ARM: what it finds, in an emulator, is what the library of this machine finds.

It needs gcc-aarch64-linux-gnu and qemu-user, and is left out where they aren't installed.
"""

from __future__ import annotations

import platform
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from exports import SOURCE, TARGET, recurrent, transformer
from saccade.export.native import build, pack
from saccade.export.native.library import list_kernels

COMPILER = shutil.which("aarch64-linux-gnu-gcc")
EMULATOR = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
NETWORKS: dict[str, Any] = {
    "rotary": lambda: transformer(positions="rotary", activation="swiglu"),
    "relative": lambda: transformer(positions="relative", activation="gelu", norm="post"),
    "gru": recurrent,
    "lstm": lambda: recurrent(attention="luong", cell="lstm", layers=2, options={"score": "dot"}),
}
PROGRAM = Path(__file__).with_name("search.c")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The program that searches, compiled for this machine and for the other one."""
    if COMPILER is None or EMULATOR is None:
        pytest.skip("no compiler for ARM, or no emulator")
    here, other = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("other")
    prefix = subprocess.run([COMPILER, "-print-file-name=libc.so.6"], capture_output=True, text=True, check=True)
    root = Path(prefix.stdout.strip()).resolve().parents[1]
    with pytest.MonkeyPatch.context() as patch:
        commands = {"here": [*_compile(build.find_compiler(), here)]}
        patch.setattr(platform, "machine", lambda: "aarch64")
        patch.setenv("CC", COMPILER)
        commands["other"] = [EMULATOR, "-L", str(root), *_compile(COMPILER, other)]
    return commands


def _compile(compiler: str, folder: Path) -> list[str]:
    build.build(folder / "native.so")
    program = folder / "search"
    library = f"{folder}/native.so"
    parts = [f"-I{build.SOURCES}", str(PROGRAM), library, f"-Wl,-rpath,{folder}", "-o", str(program)]
    subprocess.run([compiler, *parts], check=True)
    return [str(program)]


def _search(command: list[str], packed: Path, kernels: str, lines: str, width: int) -> list[list[float]]:
    arguments = [*command, str(packed), kernels, "2", str(width)]
    done = subprocess.run(arguments, input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [[float.fromhex(word) for word in line.split()] for line in done.stdout.splitlines()]


def _draw_ids(draw: random.Random, size: int, longest: int) -> str:
    """A count, and as many ids."""
    count = draw.randint(1, longest)
    return " ".join(map(str, [count, *(draw.randrange(3, size) for _ in range(count))]))


@pytest.mark.parametrize("quantization", ["float32", "int8"])
@pytest.mark.parametrize("kind", NETWORKS)
@torch.inference_mode()
def test_it_finds_what_is_found_here(
    tmp_path: Path, programs: dict[str, list[str]], kind: str, quantization: str
) -> None:
    torch.manual_seed(3)
    packed = tmp_path / "packed"
    pack.write(NETWORKS[kind](), packed, quantization)
    draw = random.Random(1)
    lines = "".join(f"{_draw_ids(draw, SOURCE.size, 29)} {_draw_ids(draw, TARGET.size, 9)}\n" for _ in range(9))
    for width in (1, 4):
        expected = _search(programs["here"], packed, list_kernels()[0], lines, width)
        plain, fast = (_search(programs["other"], packed, name, lines, width) for name in ("plain", "dotprod"))
        assert plain == fast  # bit by bit
        assert len(fast) == 9
        for row, other in zip(expected, fast, strict=True):
            assert row[1::2] == other[1::2]  # ids
            assert row == pytest.approx(other, abs=1e-5 if quantization == "float32" else 0.05)  # a byte more or less
