"""CUDA kernels compiled for the CPU by the system's C++ compiler, so that arithmetic and indices can be tested."""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from saccade.ops.kernels import nvrtc

HEADERS = Path(__file__).parents[1] / "cpp"
COMPILER = shutil.which("g++")
# -ffp-contract=off: only what says fmaf is fused; -Og compiles fast; each library keeps its own threads,
# which jump between stacks, as _FORTIFY_SOURCE would not let them
OPTIONS = ["-std=c++20", "-Og", "-ffp-contract=off", "-w", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-gnu-unique"]
OPTIONS += ["-U_FORTIFY_SOURCE"]


class HostModule:
    """The kernels of some sources; every thread of a block in turn."""

    has_clusters = True

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))

    def launch(
        self,
        name: str,
        grid: tuple[int, int, int],
        block: int,
        shared: int,
        arguments: Sequence[Any],
        turn: nvrtc.Turn = nvrtc.Turn.ALONE,
        cluster: int = 1,
    ) -> None:
        del turn
        given = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(x) for x in arguments))
        getattr(self._library, f"launch_{name}")((ctypes.c_int * 3)(*grid), block, cluster, shared, given)


class HostCompiler:
    """Stands in for `nvrtc.load`; libraries stay in a folder that several processes and later tests may share."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._modules = folder, dict[str, HostModule]()
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, files: tuple[Path, ...], defines: dict[str, int], device: torch.device) -> HostModule:
        assert device.type == "cpu"
        flags = [f"-D{name}={value}" for name, value in defines.items()]
        key = "_".join([*(path.stem for path in files), *flags])
        if key not in self._modules:
            self._modules[key] = HostModule(self._compile(key, nvrtc.join_sources(files), flags))
        return self._modules[key]

    def _compile(self, name: str, text: str, flags: list[str]) -> Path:
        made_of = [text, *OPTIONS, (HEADERS / "host_threads.hpp").read_text("utf-8"), str(COMPILER)]
        name += "_" + hashlib.sha256("".join(made_of).encode()).hexdigest()[:16]
        source, library = self._folder / f"{name}.cpp", self._folder / f"{name}.so"
        with FileLock(f"{library}.lock"):
            if not library.exists():
                kernels = re.findall(r"^KERNEL\([^)]*\) (\w+)\(", text, re.MULTILINE)
                source.write_text("#define HOST_THREADS\n" + text + "".join(f"\nEXPORT({one})" for one in kernels))
                assert COMPILER is not None
                draft = library.with_suffix(".draft")
                call = [COMPILER, *OPTIONS, f"-I{HEADERS}", *flags, str(source), "-o", str(draft)]
                subprocess.run(call, check=True)
                draft.rename(library)
        return library
