"""Compiles the native library: when a wheel is built, or once where there is none in the package.

This file imports nothing of the package, so that the build can run it by itself.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).parent / "csrc"
LIBRARY = "native.so"
COMPILERS = ("cc", "gcc", "clang")
WIDE = ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma")
COMMON = ("-std=gnu11", "-fPIC", "-fvisibility=hidden", "-w")
SECONDS = 300
OLDEST_GLIBC = 17  # 2.17, the oldest that a wheel can name


class InstructionSet(NamedTuple):
    """Kernels for some processors: the compiler's flags, and what Linux calls the processor's features."""

    flags: tuple[str, ...]
    features: frozenset[str]


X86: Mapping[str, InstructionSet] = {  # the best first
    "avx512vnni": InstructionSet((*WIDE, "-mavx512vnni"), frozenset({"avx512bw", "avx512vl", "avx512_vnni"})),
    "avxvnni": InstructionSet(("-mavx2", "-mfma", "-mavxvnni"), frozenset({"avx2", "fma", "avx_vnni"})),
    "avx512": InstructionSet(WIDE, frozenset({"avx512bw", "avx512vl", "avx512dq"})),
    "avx2": InstructionSet(("-mavx2", "-mfma"), frozenset({"avx2", "fma"})),
}
ARM: Mapping[str, InstructionSet] = {
    "dotprod": InstructionSet(("-march=armv8.2-a+dotprod",), frozenset({"asimddp"})),
}


class BuildError(Exception):
    """The reason why there is no library."""


def list_instruction_sets() -> Mapping[str, InstructionSet]:
    """Return the kernels that this kind of processor may have, the best first; `plain` ones run on all."""
    known = {"x86_64": X86, "AMD64": X86, "aarch64": ARM, "arm64": ARM}.get(platform.machine(), {})
    return {**known, "plain": InstructionSet((), frozenset())}


def find_compiler() -> str:
    """Return the C compiler: $CC, or the first that is installed."""
    named = os.environ.get("CC")
    for name in [named] if named else COMPILERS:
        if (found := shutil.which(name)) is not None:
            return found
    raise BuildError(f"no C compiler was found ({named or ', '.join(COMPILERS)})")


def build(out: Path, *more: str) -> None:
    """Compile and link the library; kernels that the compiler doesn't know are left out."""
    compiler = find_compiler()
    with tempfile.TemporaryDirectory(prefix="saccade-build-") as place:

        def compile_kernels(named: tuple[str, InstructionSet]) -> tuple[str, Path] | None:
            name, instructions = named
            object_file = Path(place) / f"{name}.o"
            options = ["-O3", f"-DKERNELS={name}", *COMMON, *instructions.flags, *more]
            done = _run([compiler, *options, "-c", str(SOURCES / "kernels.c"), "-o", str(object_file)])
            return None if done else (name, object_file)

        with ThreadPoolExecutor() as pool:
            found = [one for one in pool.map(compile_kernels, list_instruction_sets().items()) if one is not None]
        others = [str(path) for path in sorted(SOURCES.glob("*.c")) if path.name != "kernels.c"]
        has = [f"-DHAVE_{name}" for name, _ in found]
        objects = [str(path) for _, path in found]
        command = [
            compiler,
            "-O2",
            *COMMON,
            *has,
            *more,
            "-shared",
            *others,
            *objects,
            "-o",
            str(out),
            "-lm",
            "-pthread",
        ]
        if problem := _run(command):
            raise BuildError(f"{compiler} could not compile it: {problem}")


def name_wheel(library: Path) -> str:
    """Return the tag of a wheel with a library of this machine, which is for any Python 3.

    The library needs the C library alone, so with glibc its tag is the newest glibc that it names (PEP 600).
    """
    system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    versions = [int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", library.read_bytes())]
    if versions and system.startswith("linux_"):
        system = system.replace("linux_", f"manylinux_2_{max(OLDEST_GLIBC, *versions)}_", 1)
    return f"py3-none-{system}"


def _run(command: list[str]) -> str | None:
    """Run a command; return the first line of its errors if it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if not done.returncode:
        return None
    return next((line for line in done.stderr.splitlines() if "error" in line), f"exit code {done.returncode}")
