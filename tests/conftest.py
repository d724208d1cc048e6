"""What every test stands on: one thread per worker, a fixed seed, and a bfloat16 that is safe on every CPU."""

from __future__ import annotations

import gc
import importlib
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

# Triton's interpreter, too, must be asked for before anything imports triton; where there is a GPU, kernels run on it.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Some virtual machines advertise AMX and then die of it; oneDNN must be told before torch is loaded.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# One thread in each process that tests start, too: as many tests run beside each other as there are cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A compiled graph is kept by its operators' names alone: one of an earlier version would be run with other arguments.
os.environ.setdefault("TORCHINDUCTOR_FX_GRAPH_CACHE", "0")
os.environ.setdefault("TORCHINDUCTOR_AUTOGRAD_CACHE", "0")

import hypothesis
import pytest
import torch

os.fsync = lambda fd: None  # nobody cuts the power of a test; a disk waits for thousands of small files otherwise
gc.disable()  # until everything is imported and collected

# What a shell without job control starts in the background ignores Ctrl-C, and so would everything that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")
torch.set_num_threads(1)
SEED = int(os.environ.get("SACCADE_TEST_SEED", "20"))
# torch.manual_seed writes down the whole stack for every kind of accelerator that isn't there
set_seed = torch.manual_seed if torch.cuda.is_available() else torch.default_generator.manual_seed

DEVICE_TESTS = [] if torch.cuda.is_available() else sorted((Path(__file__).parent / "device").glob("test_*.py"))
collect_ignore = [str(path) for path in DEVICE_TESTS]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if DEVICE_TESTS:
        terminalreporter.write_line(f"tests/device: {len(DEVICE_TESTS)} files left out; they need a CUDA device")


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: a fifth of the time, tests wait for a browser, a server or a clock."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pytest_collectstart(collector: pytest.Collector) -> None:
    """What a module draws while it is imported depends on no other module."""
    del collector
    set_seed(SEED)


def pytest_collection_finish() -> None:
    """Keep the garbage collector away from what stays: a million objects of torch and of the tests themselves."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)  # Dynamo alone makes garbage so fast that Python's 700 cost 5% of all time
    gc.enable()


SHUFFLE = os.environ.get("SACCADE_TEST_SHUFFLE", "")


def pytest_report_header() -> list[str]:
    return [f"shuffled: SACCADE_TEST_SHUFFLE={SHUFFLE} gives this order again"] if SHUFFLE else []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffle the files, and the tests of each, if a seed is given: no test may need that another ran before it."""
    if SHUFFLE:
        chance, files = random.Random(SHUFFLE), dict[Path, list[pytest.Item]]()
        for item in items:
            files.setdefault(item.path, []).append(item)
        groups = [chance.sample(tests, len(tests)) for tests in files.values()]
        items[:] = [item for tests in chance.sample(groups, len(groups)) for item in tests]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Each test starts from the same seed."""
    del item
    set_seed(SEED)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this session that all its processes share: what the first makes (under a lock), the others find."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own  # above a lone process lie older sessions


@pytest.fixture(scope="session", autouse=True)
def packed_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what the native engine packs out of the user's cache; the library is built there once for all sessions."""
    from saccade.export.native.library import cache_folder

    with pytest.MonkeyPatch.context() as patch:
        own, built = tmp_path_factory.mktemp("cache"), cache_folder() / "native"
        built.mkdir(parents=True, exist_ok=True)
        (own / "native").symlink_to(built)
        patch.setenv("SACCADE_CACHE", str(own))
        yield


# Samples in reports. Every training ends with a report, and most of its time goes into pictures and searches for it.
BRIEF = {
    "answer.task.NUM_SAMPLES": 2,
    "caption.task.NUM_SAMPLES": 1,
    "classify.task.NUM_SAMPLES": 2,
    "glimpse.task.NUM_SAMPLES": 1,
    "point.task.NUM_DRAWN": 1,
    "remember.task.NUM_DRAWN": 2,
    "translate.hearing.NUM_DRAWN": 1,
    "translate.task.NUM_SAMPLES": 2,
    "write.task.NUM_SAMPLES": 2,
}


@pytest.fixture(scope="session", autouse=True)
def brief_reports() -> Iterator[dict[str, int]]:
    """Let reports show one or two samples, and return how many they show otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        usual = {}
        for name, number in BRIEF.items():
            module, _, constant = f"saccade.tasks.{name}".rpartition(".")
            usual[name] = getattr(importlib.import_module(module), constant)
            patch.setattr(f"saccade.tasks.{name}", number)
        yield usual


@pytest.fixture
def whole_reports(brief_reports: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let reports show as many samples as they do for users."""
    for name, number in brief_reports.items():
        monkeypatch.setattr(f"saccade.tasks.{name}", number)


@pytest.fixture
def no_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let trainings end without a report."""
    monkeypatch.setattr("saccade.runs.train._report", lambda folder, console: None)


@pytest.fixture
def quick_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Pythons that a test starts be forks of one that has imported everything."""
    if hasattr(os, "fork"):
        import forked

        forked.start_server()
        monkeypatch.setattr(subprocess, "Popen", forked.Popen)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a real Chromium. Without one its tests are skipped, but not where everything must hold (CI=true)."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is not None:
        return path
    missing = "there is no Chromium here; apt-get install chromium"
    if os.environ.get("CI") == "true":
        pytest.fail(missing)
    pytest.skip(missing)
