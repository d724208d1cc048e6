"""CUDA C++ compiled where it runs, at first use: NVRTC, which every CUDA build of torch brings, and the driver."""

from __future__ import annotations

import ctypes
import enum
import functools
import importlib.util
import math
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, final

import torch
from torch import Tensor

LARGEST_STATIC_SHARED = 48 << 10  # more shared memory than this a kernel has to ask for
LEAST_CAPABILITY = (8, 0)  # asynchronous copies, TF32
LEAST_HOPPER = (9, 0)  # a kernel can begin while the one before it runs, and blocks join to clusters
_MAX_DYNAMIC_SHARED, _CARVEOUT = 8, 9  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, .._PREFERRED_SHARED_MEMORY_..
_CLUSTER, _PROGRAMMATIC = 4, 6  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .._PROGRAMMATIC_STREAM_SERIALIZATION
_MODULES: dict[tuple[object, ...], Module] = {}
_REFUSALS: dict[torch.device, str | None] = {}
_THREAD = threading.local()  # has_context: the driver keeps a current context for each thread

Arguments = Sequence[Any]  # ctypes values and structures


class Turn(enum.Enum):
    """Kernels of which the second begins beside the first: both leave each other room, and it waits inside."""

    ALONE = 0
    FIRST = 1
    SECOND = 2


class Module(Protocol):
    """The compiled kernels of some sources, by name."""

    @property
    def has_clusters(self) -> bool:
        """True if blocks can form clusters."""

    def launch(
        self,
        name: str,
        grid: tuple[int, int, int],
        block: int,
        shared: int,
        arguments: Arguments,
        turn: Turn = Turn.ALONE,
        cluster: int = 1,
    ) -> None:
        """Run a kernel over grid x block threads with so many bytes of shared memory, in clusters of blocks along y."""


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: its value is a union of 64 bytes."""

    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16)]


class _Launch(ctypes.Structure):
    """CUlaunchConfig of CUDA's driver API."""

    _fields_ = [
        ("sizes", ctypes.c_uint * 7),  # grid, block, bytes of shared memory
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    ]


_EARLY = _Attribute(_PROGRAMMATIC, 0, (1,))


@functools.lru_cache(1024)
def _configure(sizes: tuple[int, ...], stream: int, cluster: int, early: bool) -> _Launch:
    """Make the configuration of a launch with attributes; that takes longer than the launch, so it is kept."""
    join_sources = [_Attribute(_CLUSTER, 0, (1, cluster, 1))] if cluster > 1 else []
    given = [*join_sources, *([_EARLY] if early else [])]
    return _Launch(sizes, stream, (_Attribute * len(given))(*given), len(given))


def pointer(tensor: Tensor | None) -> ctypes.c_void_p:
    """Return a tensor's address; for None, the null pointer."""
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def refuses(device: torch.device) -> str | None:
    """Return why kernels can't be compiled for the device, or None."""
    if device.type != "cuda" or torch.version.cuda is None:
        return f"the device is {device.type}, not an NVIDIA one"
    if device not in _REFUSALS:
        _REFUSALS[device] = _refusal(device)
    return _REFUSALS[device]


# What torch.compiler.assume_constant_result does; but that imports all of dynamo, a second before anything happens.
refuses._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _refusal(device: torch.device) -> str | None:
    if torch.cuda.get_device_capability(device) < LEAST_CAPABILITY:
        return "the device is older than compute capability 8.0"
    return None if _nvrtc() is not None else "NVRTC, torch's own compiler for CUDA, was not found"


def load(files: tuple[Path, ...], defines: dict[str, int], device: torch.device) -> Module:
    """Return the kernels in these sources (joined in this order), compiled once for the device's architecture."""
    key = (files, *defines.items(), device.index)
    if key not in _MODULES:
        major, minor = torch.cuda.get_device_capability(device)
        options = [f"--gpu-architecture=sm_{major}{minor}", *(f"-D{name}={x}" for name, x in defines.items())]
        with torch.cuda.device(device):
            _MODULES[key] = _Loaded(compile_cubin(join_sources(files), options), torch.cuda.current_device())
    return _MODULES[key]


def join_sources(files: tuple[Path, ...]) -> str:
    """Join several sources to one, with lines that say where an error is."""
    return "\n".join(f'#line 1 "{path.name}"\n{path.read_text("utf-8")}' for path in files)


def compile_cubin(source: str, options: Sequence[str]) -> bytes:
    """Compile a source to machine code by NVRTC; RuntimeError with its log if it can't."""
    nvrtc = _nvrtc()
    assert nvrtc is not None
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"saccade.cu", 0, None, None)
    flags = [option.encode() for option in ("--std=c++17", *options)]
    failed = nvrtc.nvrtcCompileProgram(program, len(flags), (ctypes.c_char_p * len(flags))(*flags))
    if failed:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(f"NVRTC could not compile a kernel:\n{log.value.decode()}")
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, code)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return code.raw


@functools.cache
def _array(size: int) -> type[ctypes.Array[ctypes.c_void_p]]:
    """Return the type of an array of pointers; ctypes would make it anew each time, which is slower than a launch."""
    return ctypes.c_void_p * size


@final
class _Loaded:
    """A module in the driver; kernels run on torch's current stream, so that they can be captured in a graph."""

    def __init__(self, code: bytes, device: int) -> None:
        self._device = device
        self._driver = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
        self._module = ctypes.c_void_p()
        self._launch, self._launch_configured = self._driver.cuLaunchKernel, self._driver.cuLaunchKernelEx
        self.has_clusters = self._overlaps = torch.cuda.get_device_capability(device) >= LEAST_HOPPER
        self._found: dict[str, ctypes.c_void_p] = {}
        self._kernels: dict[tuple[str, int], ctypes.c_void_p] = {}  # ready for so much shared memory
        self._shared: dict[str, int] = {}  # the most that each kernel has asked for
        self._make_current()
        self._check(self._driver.cuModuleLoadData(ctypes.byref(self._module), code))

    def launch(
        self,
        name: str,
        grid: tuple[int, int, int],
        block: int,
        shared: int,
        arguments: Arguments,
        turn: Turn = Turn.ALONE,
        cluster: int = 1,
    ) -> None:
        """Run a kernel; 0 blocks are none."""
        if not math.prod(grid):
            return
        given = _array(len(arguments))(*map(ctypes.addressof, arguments))
        kernel = self._kernels.get((name, shared)) or self._kernel(name, shared, turn)
        early = turn is Turn.SECOND and self._overlaps
        if torch._C._cuda_getDevice() == self._device:
            self._run(kernel, (*grid, block, 1, 1, shared), given, cluster, early)
        else:
            with torch.cuda.device(self._device):
                self._run(kernel, (*grid, block, 1, 1, shared), given, cluster, early)

    def _run(
        self, kernel: ctypes.c_void_p, sizes: tuple[int, ...], given: ctypes.Array[Any], cluster: int, early: bool
    ) -> None:
        stream: int = torch._C._cuda_getCurrentRawStream(self._device)
        if not getattr(_THREAD, "has_context", False):  # one that runs backward passes may not have it yet
            self._make_current()
            _THREAD.has_context = True
        if early or cluster > 1:
            launch = _configure(sizes, stream, cluster, early)
            self._check(self._launch_configured(ctypes.byref(launch), kernel, given, None))
        else:
            self._check(self._launch(kernel, *sizes, ctypes.c_void_p(stream), given, None))

    def _make_current(self) -> None:
        """Make the device's context this thread's, if the thread has none."""
        context = ctypes.c_void_p()
        self._check(self._driver.cuCtxGetCurrent(ctypes.byref(context)))
        if not context:
            self._check(self._driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), self._device))
            self._check(self._driver.cuCtxSetCurrent(context))

    def _kernel(self, name: str, shared: int, turn: Turn) -> ctypes.c_void_p:
        self._make_current()
        if name not in self._found:
            found = ctypes.c_void_p()
            self._check(self._driver.cuModuleGetFunction(ctypes.byref(found), self._module, name.encode()))
            self._found[name] = found
        kernel = self._kernels[name, shared] = self._found[name]
        if shared > self._shared.get(name, LARGEST_STATIC_SHARED):
            self._check(self._driver.cuFuncSetAttribute(kernel, _MAX_DYNAMIC_SHARED, shared))
            self._shared[name] = shared
        if turn is not Turn.ALONE:  # a multiprocessor that has to be divided anew would finish the first kernel before
            self._check(self._driver.cuFuncSetAttribute(kernel, _CARVEOUT, 100))
        return kernel

    def _check(self, status: int) -> None:
        if status:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorString(status, ctypes.byref(text))
            raise RuntimeError(f"CUDA driver: {(text.value or b'unknown error').decode()}")


_FOUND: list[ctypes.CDLL | None] = []


def _nvrtc() -> ctypes.CDLL | None:
    if not _FOUND:
        _FOUND.append(next((library for library in _libraries() if _can_compile(library)), None))
    return _FOUND[0]


def _libraries() -> Iterator[ctypes.CDLL]:
    """Find NVRTC of torch's CUDA version: in packages that came with torch, in a toolkit, or where the loader looks."""
    major = "*" if torch.version.cuda is None else torch.version.cuda.split(".")[0]
    names = (f"nvrtc64_{major}0_0.dll",) if os.name == "nt" else (f"libnvrtc.so.{major}",)
    spec = importlib.util.find_spec("nvidia")
    packages = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    toolkits = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    places = [(folder, "*/*/") for folder in packages] + [(folder, "*/") for folder in toolkits]
    found = (path for folder, depth in places for name in names for path in sorted(folder.glob(depth + name)))
    for path in (*map(str, found), *names):
        try:
            for builtins in sorted(Path(path).parent.glob("*nvrtc-builtins*")):  # it looks for them by name alone
                ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)
            yield ctypes.CDLL(path)
        except OSError:
            continue


def _can_compile(nvrtc: ctypes.CDLL) -> bool:
    """Return True if it compiles an empty kernel: a library without its parts loads, and fails only then."""
    program, flag = ctypes.c_void_p(), b"--gpu-architecture=sm_80"
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), b"__global__ void empty() {}", b"empty.cu", 0, None, None)
    failed = nvrtc.nvrtcCompileProgram(program, 1, (ctypes.c_char_p * 1)(flag))
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return not failed
