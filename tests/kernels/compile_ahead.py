"""Compile two kernels ahead, one of them twice asked for, and one that can't be compiled; say how that went."""

from __future__ import annotations

import os
import tempfile

os.environ.pop("TRITON_INTERPRET", None)
os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(dir=os.environ["FOLDER"])

import torch
import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from saccade.training.kernels.ahead import Compilers, cache_folder


@triton.jit
def add(x_ptr, number, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.arange(0, WIDTH)
    tl.store(x_ptr + place, tl.load(x_ptr + place) + number)


class Driver:
    """Of a device that isn't there."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device

    def launcher_cls(self, *_: object) -> None:
        (cache_folder() / f"launcher-{os.getpid()}").touch()


driver.set_active(Driver())
compilers, x = Compilers(2), torch.zeros(256)
for number, width in ((2, 128), (16, 128), (2, 128)):  # a kernel knows whether a number is a multiple of 16
    add[1,](x, number, width)
print(len(compilers), compilers.wait(), float(x.sum()), len([*cache_folder().glob("launcher-*")]))  # noqa: T201

found: list[bool] = []
knobs.runtime.jit_cache_hook = None
knobs.compilation.listener = lambda **told: found.append(told["cache_hit"])
for number, width in ((2, 128), (16, 128), (2, 64)):
    add.warmup(x, number, width, grid=(1,))
print(found)  # noqa: T201

compilers = Compilers(1)
try:
    add[1,](x, 2, 3)  # not a power of two
except triton.CompilationError:
    os._exit(3)  # in the fork
print(compilers.wait())  # noqa: T201
