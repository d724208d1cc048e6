"""Compiles Triton's kernels side by side, in processes of their own, instead of launching them."""

from __future__ import annotations

import ctypes
import os
import signal
import warnings
from collections.abc import Hashable
from pathlib import Path
from typing import Any, final

from triton import knobs
from triton.runtime import driver

DIE_WITH_PARENT = 1  # of prctl
NICENESS = 5  # of compilers: what is rehearsed tells what else there is to compile
LONGEST = 120  # seconds for a kernel


def cache_folder() -> Path:
    """Return the folder in which Triton finds compiled kernels again."""
    return Path(knobs.cache.dir)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Have the system send this process a signal when the one that forked it ends."""
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, number)


@final
class Compilers:
    """From now on this process launches no kernel: each is compiled in a fork, and lies on disk then.

    What a kernel would write stays as it was. This is for a process whose results nobody reads.
    """

    def __init__(self, at_once: int) -> None:
        self._begun = set[Hashable]()
        self._processes = list[int]()
        self._free, self._give_back = os.pipe()  # a byte for each fork that may compile now
        os.write(self._give_back, bytes(at_once))
        knobs.runtime.jit_cache_hook = self._compile

    def __len__(self) -> int:
        return len(self._processes)

    def wait(self) -> bool:
        """Wait until all are compiled; return whether none failed."""
        status = [os.waitpid(process, 0)[1] for process in self._processes]
        return not any(status)

    def _compile(self, *, key: str, fn: Any, **_: object) -> bool:
        """Tell Triton whether to compile, and launch, a kernel that is new to this process: only a fork shall."""
        name = fn.module, fn.name, key
        if name not in self._begun:
            self._begun.add(name)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # forks of a process with threads
                process = os.fork()
            if process == 0:
                self._become_compiler()
                return False
            self._processes.append(process)
        return True

    def _become_compiler(self) -> None:
        """Wait for a place. An error would end in a thread that this fork doesn't have: then the alarm ends it."""
        die_with_parent()
        os.nice(NICENESS)
        os.read(self._free, 1)
        for number in (signal.SIGALRM, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.alarm(LONGEST)
        knobs.runtime.jit_post_compile_hook = self._leave

    def _leave(self, *, key: str, fn: Any, **told: Any) -> None:
        """Compile what launches the kernel, too, and end the fork."""
        status = 1
        try:
            kernel = fn.jit_function.device_caches[told["compile"]["device"]][0][key]
            driver.active.launcher_cls(kernel.src, kernel.metadata)
            status = 0
        finally:
            os.write(self._give_back, b"\0")
            os._exit(status)
