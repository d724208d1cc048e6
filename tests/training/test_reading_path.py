"""A reader who follows a training step meets few files and never climbs: walked with a profiler."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from rich.console import Console
from torch.utils._python_dispatch import TorchDispatchMode

import saccade
from floors import floor_of
from saccade.runs import config as config_file
from saccade.tasks import TASKS
from saccade.training.loop import Trainer
from saccade.training.options import TrainingOptions

PACKAGE = Path(saccade.__file__).parent
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "scaled_dot_product", "linear_cross_entropy", "gru", "lstm")
# A loop's weights get their gradients once, after its last step, from a function that the model hands down.
CALLBACKS = {("ops/shared_gradients.py", "models/seq2seq_attention.py")}
TRANSFORMER = [
    "training/loop.py",
    "training/losses.py",
    "models/transformer.py",
    "attention/multihead.py",
    "attention/attend.py",
    "attention/kernels/sdpa.py",
]


def own_file(code: CodeType) -> str | None:
    """The path inside the package, if this is its code."""
    path = Path(code.co_filename)
    return str(path.relative_to(PACKAGE)) if path.is_relative_to(PACKAGE) else None


def own_files(frame: FrameType | None) -> Iterator[str]:
    """The package's files on the stack, from the innermost out."""
    while frame is not None:
        if (name := own_file(frame.f_code)) is not None:
            yield name
        frame = frame.f_back


class Spines(TorchDispatchMode):
    """Notes which files lie between the loop and each matrix product."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[tuple[str, ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(name in str(func) for name in PRODUCTS):
            files = list(own_files(sys._getframe(1)))[::-1]
            self.found.add(tuple(dict.fromkeys(files)))
        return func(*args, **(kwargs or {}))


def trainer(folder: Path, **model: object) -> tuple[Trainer, Any]:
    """A trainer of a small run, and one of its batches."""
    words = ["a b c", "b c d e", "c a", "e d c b a"] * 4
    for name in ("source", "target"):
        (folder / name).write_text("\n".join(words) + "\n", encoding="utf-8")
    files = {"source": str(folder / "source"), "target": str(folder / "target")}
    content = {
        "task": "translate",
        "device": "cpu",
        "data": {"train": files, "valid": files},
        "tokenizer": {"kind": "words", "vocabulary_size": 20},
        "model": {"num_layers": 2, **model},
        "training": {"precision": "float32"},
    }
    config = config_file.check_config(json.loads(json.dumps(content)), "test")
    job = TASKS[config.task].prepare(config, folder / "run", Console(quiet=True))
    options = TrainingOptions(max_steps=3, learning_rate=1e-3, warmup_steps=1)
    made = Trainer(job.network, job.plan, job.loss, options, folder / "run")
    job.network.train()
    return made, job.plan.load(job.plan.epoch(0)[0])


@pytest.mark.parametrize("positions", ["rotary", "sinusoidal", "learned", "relative"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_six_files_lie_between_the_loop_and_a_matrix_product(tmp_path: Path, positions: str, norm: str) -> None:
    made, batch = trainer(tmp_path, kind="transformer", positions=positions, norm=norm)
    with Spines() as spines:
        made.step([batch])
    assert max(map(len, spines.found)) <= 6
    assert tuple(TRANSFORMER) in spines.found or positions == "relative"  # a bias is added by the equation itself


@pytest.mark.parametrize("attention", ["none", "bahdanau", "luong"])
def test_eight_where_the_score_has_products_of_its_own(tmp_path: Path, attention: str) -> None:
    made, batch = trainer(tmp_path, kind="rnn", attention=attention)
    with Spines() as spines:
        made.step([batch])
    longest = max(spines.found, key=len)
    assert len(longest) <= 8, longest


@pytest.mark.parametrize(
    "model",
    [{"kind": "transformer", "positions": "rotary"}, {"kind": "transformer", "positions": "relative"}]
    + [{"kind": "rnn", "attention": name} for name in ("none", "bahdanau", "luong")],
    ids=str,
)
def test_no_call_of_a_step_climbs_to_a_higher_floor(tmp_path: Path, model: dict[str, object]) -> None:
    made, batch = trainer(tmp_path, **model)
    climbs: set[tuple[str, str]] = set()

    def watch(frame: FrameType, event: str, argument: object) -> None:
        del argument
        callee = own_file(frame.f_code) if event == "call" else None
        if callee is None:
            return
        caller = next(own_files(frame.f_back), None)
        if caller is not None and floor_of(callee) > floor_of(caller):
            climbs.add((caller, callee))

    sys.setprofile(watch)
    try:
        made.step([batch])
    finally:
        sys.setprofile(None)
    assert climbs <= CALLBACKS


def test_the_walk_sees_a_longer_way(tmp_path: Path) -> None:
    made, batch = trainer(tmp_path, kind="transformer", positions="sinusoidal", score="cosine", normalizer="entmax15")
    with Spines() as spines:
        made.step([batch])
    assert not any(files[-1] == "attention/kernels/sdpa.py" for files in spines.found)
    assert any("attention/reference.py" in files for files in spines.found)
