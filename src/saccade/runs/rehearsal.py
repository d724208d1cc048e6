"""Rehearses a training beside it, so that its kernels are compiled side by side and ahead.

Triton compiles a kernel when it is first launched: a hundred of them, one after the other, take a minute. A rehearsal
is a process that prepares the same run, takes its first steps and validates, but launches none of these kernels: it has
them compiled by several processes, and the run finds them on disk. Its numbers mean nothing, and it writes nothing.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import multiprocessing
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol, final

import torch
from torch import Tensor

import saccade
from saccade.decoding.continuous.beam_state import BeamState
from saccade.decoding.continuous.greedy_state import DecodingState, GreedyState, TopTokens
from saccade.ops.kernels.availability import HAS_TRITON
from saccade.tasks.base import Job
from saccade.training.determinism import count_cores
from saccade.training.loop import Trainer
from saccade.training.options import TrainingOptions

STEPS = 8  # fewer than may be skipped in a row
PATIENCE = 30.0  # seconds that a training waits: an accelerator's memory is for one of the two at a time
GRACE = 10.0  # seconds until it is killed
LONGEST = 20  # seconds of steps and validation
KERNELS_DEPEND_ON = {
    "task": True,
    "model": True,
    "decoding": True,
    "training": {"precision", "batches", "tokens_per_batch", "recompute"},
}
NO_ANSWER = "kernels: compiled when they are first needed; the process that compiles them ahead gave no answer"
Prepare = Callable[[], tuple[Job, TrainingOptions]]


class _Over(BaseException):
    """The rehearsal has seen what it wanted to see."""


class _Unwanted(BaseException):
    """The training has ended, or waits no longer."""


class _Compilers(Protocol):
    def __len__(self) -> int: ...
    def wait(self) -> bool: ...


@final
class Rehearsal:
    """The process, as the training sees it; without one it does nothing."""

    def __init__(self, process: BaseProcess | None = None, connection: Connection | None = None) -> None:
        self._process, self._connection = process, connection

    def begin(self) -> None:
        """Let it begin, now that the run's files are there."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.send(None)

    def wait(self) -> str | None:
        """Wait until it leaves the accelerator, and return what is to be said of it."""
        if self._connection is None:
            return None
        try:
            if self._connection.poll(PATIENCE):
                return str(self._connection.recv())
        except (EOFError, OSError):
            pass
        self.end()
        return NO_ANSWER

    def end(self) -> None:
        """End it, with all that it still compiles; it leaves the accelerator first."""
        if self._process is not None:
            self._process.terminate()
            self._process.join(GRACE)
            self._process.kill()
            self._process.join()
            self._process = self._connection = None


NONE = Rehearsal()


def start(config: Any, prepare: Prepare) -> Rehearsal:
    """Fork a process that will rehearse, before this one has anything to do with an accelerator."""
    if not pays(config):
        return NONE
    from saccade.training.kernels.ahead import cache_folder

    known = cache_folder() / f"saccade-{_fingerprint(config)}"
    if known.exists():
        return NONE
    own, other = multiprocessing.Pipe()
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_rehearse, args=(other, prepare, known), daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it says that other threads end in a fork
        process.start()
    other.close()
    return Rehearsal(process, own)


def pays(config: Any) -> bool:
    """Return whether kernels may have to be compiled, and can be beside a training."""
    return (
        config.device != "cpu"
        and HAS_TRITON
        and sys.platform == "linux"
        and count_cores() > 1
        and not torch.cuda.is_initialized()  # a fork could not use it
        and torch.version.hip is None
        and torch.cuda.device_count() > 0
        and not uses_mps()
    )


def uses_mps() -> bool:
    """Return whether processes share devices by CUDA's MPS: what ends one of them in the middle of kernels ends all."""
    return (Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")) / "control").exists()


def _fingerprint(config: Any) -> str:
    """Return what tells runs apart whose kernels may differ."""
    fields = [json.loads(config.model_dump_json(include=KERNELS_DEPEND_ON)), saccade.__version__, torch.__version__]
    return hashlib.blake2b(json.dumps(fields).encode(), digest_size=8).hexdigest()


def _rehearse(connection: Connection, prepare: Prepare, known: Path) -> None:
    """Wait for the run's files in the process, rehearse, leave the accelerator, wait for the compilers."""
    from saccade.training.kernels.ahead import Compilers, die_with_parent

    own = os.getpid()
    signal.signal(signal.SIGTERM, _raise_unwanted)
    die_with_parent(signal.SIGTERM)
    os.setsid()  # Ctrl-C is for the training
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    torch.set_num_threads(1)
    try:
        connection.recv()
    except EOFError:
        return
    at_once = count_cores() - 1
    compilers = Compilers(at_once)
    try:
        why = _play(prepare)
    finally:
        if os.getpid() != own:  # a fork in which a kernel could not be compiled
            os._exit(1)
        _leave_device()
    connection.send(_describe(len(compilers), at_once, why))
    if compilers.wait() and why is None:
        known.parent.mkdir(parents=True, exist_ok=True)
        known.touch()


def _describe(count: int, at_once: int, why: str | None) -> str:
    ahead = f"kernels: {count:,} compiled ahead, {at_once} at a time"
    return ahead if why is None else f"{ahead}; the others when they are first needed ({why})"


def _play(prepare: Prepare) -> str | None:
    """Take the first steps and validate; return the error that ended it, if there was one."""
    try:
        job, options = prepare()
        _begin_with_zeros()
        if options.device.type == "cuda":
            _end_at_limits()
        signal.signal(signal.SIGALRM, _raise_over)
        signal.alarm(LONGEST)
        options = replace(options, validate_every=STEPS, save_every=sys.maxsize)
        trainer = Trainer(job.network, job.plan, job.loss, options, Path(os.devnull) / "rehearsal")
        job.network.train()
        trainer.run(lambda: _validate(job), lambda *_: None)
    except _Over:
        return None
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} in {Path(last.filename).name}, line {last.lineno}"
    finally:
        signal.alarm(0)
    return None


def _leave_device() -> None:
    """Let nothing run on the device any more, and give its memory back."""
    gc.collect()
    if torch.cuda.is_initialized():
        with contextlib.suppress(RuntimeError):  # what went wrong there was said
            torch.cuda.synchronize()
            torch.cuda.empty_cache()


def _raise_over(*_: object) -> None:
    raise _Over


def _raise_unwanted(*_: object) -> None:
    raise _Unwanted


def _validate(job: Job) -> dict[str, float]:
    """Validate, and end before anything would be kept."""
    job.validate()
    raise _Over


def _begin_with_zeros() -> None:
    """Let what kernels would write be zeros: ids that are read there must be ids."""
    for owner, name, zeros in (
        (torch, "empty", torch.zeros),
        (torch, "empty_like", torch.zeros_like),
        (Tensor, "new_empty", Tensor.new_zeros),
    ):
        setattr(owner, name, zeros)


def _end_at_limits() -> None:
    """Let sentences end at their limits, as no kernel says that they do: fewer and fewer are left, as in a real search.

    Kernels depend on how many are decoded together.
    """

    def follow(update: Callable[[Any, TopTokens], Any]) -> Callable[[Any, TopTokens], Any]:
        def updated(state: DecodingState, found: TopTokens) -> Any:
            parents = update(state, found)
            state.place_B += state.live_B
            state.live_B &= state.place_B < state.limit_B
            return parents

        return updated

    for kind in (GreedyState, BeamState):
        setattr(kind, "update", follow(kind.update))  # noqa: B010
