"""Trains a run from its config: prepare, train, validate, keep the best model."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console

import saccade
from saccade import manifest
from saccade.config.base import RunSection, Section
from saccade.errors import UserError
from saccade.export.formats import describe_exports
from saccade.files import lock_folder, remove_drafts
from saccade.ops.float8 import train_in_float8
from saccade.runs import adapt, rehearsal, report
from saccade.runs import config as config_file
from saccade.runs.check import CONFIDENCE, DATA, LOG, REPORT, SUMMARY, VERSIONS, check_for_training
from saccade.runs.events import Callback, tell_callbacks
from saccade.runs.load import load_run
from saccade.runs.progress import TrainingBar
from saccade.runs.rehearsal import NONE, Rehearsal
from saccade.runs.room import TRAINED, bound_network
from saccade.tasks import TASKS, devices
from saccade.tasks import console as watch
from saccade.tasks.base import Job
from saccade.tasks.steps import describe_steps, settle_steps
from saccade.training import checkpoints
from saccade.training.determinism import use_threads, usual_threads
from saccade.training.distributed import shards
from saccade.training.distributed.team import Team, join_team
from saccade.training.loop import Trainer
from saccade.training.options import TrainingOptions
from saccade.training.signals import TrainingInterrupted

MAY_CHANGE: dict[str, Any] = {
    "device": True,
    "languages": True,
    "texts": True,
    "training": dict.fromkeys(
        ("max_steps", "patience", "validate_every", "save_every", "tensorboard", "bleu_tokenize", "capture", "shard"),
        True,
    ),
    "decoding": True,
    "data": {"test": True},
}
S = TypeVar("S", bound=Section)
LIBRARIES = ("torch", "numpy", "sentencepiece", "sacrebleu", "safetensors", "pydantic")


def train(
    config: Any,
    folder: Path,
    console: Console,
    *,
    threads: int | None = None,
    callbacks: Sequence[Callback] = (),
    reports: bool = True,
    rehearses: bool = False,
) -> checkpoints.Progress:
    """Train in `folder`, or go on with the run there. The same config gives the same weights, interrupted or not.

    On a CPU that holds for the same number of threads: `threads`, or the number that the run began with.
    Without `reports`, the report is left to a later call, and so is what is fitted once a model is trained. One that
    `rehearses` has its kernels compiled ahead, beside it, where it has an accelerator for itself.
    Under `torchrun` several processes train together; the first one writes, prints and tells the callbacks, the others
    end silently.
    """
    with join_team() as team:
        if team.is_first:
            return _train_first(config, folder, console, team, threads, callbacks, reports, rehearses)
        try:
            quiet = Console(quiet=True)
            with use_threads(_choose_threads(folder, threads, quiet)):
                _train(config, folder, quiet, team)
        except UserError:
            raise SystemExit(2) from None
        except KeyboardInterrupt:
            raise SystemExit(130) from None
        raise SystemExit(0)


def _choose_threads(folder: Path, wanted: int | None, console: Console) -> int:
    """Return the number of threads: the wanted one, or the run's own, or the usual one."""
    earlier = report.read_facts(folder / VERSIONS).get("threads") if _has_learned(folder) else None
    number = wanted or earlier or usual_threads()
    if not (wanted or earlier) and number < torch.get_num_threads() and not torch.cuda.is_available():
        said = f"a core is left to others; --threads {torch.get_num_threads()} takes all"
        watch.say(console, f"threads: {number} ({said})")
    if earlier and number != earlier:
        said = f"This run had {earlier} threads so far and goes on with {number}"
        watch.say(console, f"{said}: on a CPU its weights will differ in the last digits from those of {earlier}.")
    return int(number)


def _train_first(
    config: Any,
    folder: Path,
    console: Console,
    team: Team,
    threads: int | None,
    callbacks: Sequence[Callback],
    reports: bool,
    rehearses: bool,
) -> checkpoints.Progress:
    is_new = not folder.exists()
    rehearsing = NONE
    if rehearses and team.size == 1:
        rehearsing = rehearsal.start(config, lambda: _prepare(config, folder, Console(quiet=True), Team(rank=1))[1:])
    try:
        with lock_folder(folder):
            _make_ready(folder)
            with use_threads(_choose_threads(folder, threads, console)):
                return _train(config, folder, console, team, callbacks, rehearsing, reports)
    except Exception:
        if is_new and not _has_learned(folder):  # what ended before it learned leaves nothing behind
            shutil.rmtree(folder)
        raise
    finally:
        rehearsing.end()


def _make_ready(folder: Path) -> None:
    """Check what an earlier training left, and remove what a killed one left half written."""
    check_for_training(folder)
    for place in (folder, *(folder / name for name in manifest.INSIDE)):
        remove_drafts(place)
    if not (manifest.exists(folder) and _has_learned(folder)):
        manifest.begin(folder)


def _train(
    config: Any,
    folder: Path,
    console: Console,
    team: Team,
    callbacks: Sequence[Callback] = (),
    rehearsing: Rehearsal = NONE,
    reports: bool = True,
) -> checkpoints.Progress:
    config, job, options = team.run_first(lambda: _prepare(config, folder, console, team))
    rehearsing.begin()
    if _is_sharded(config, team):
        shards.shard(job.network, team, options.device)
    trainer = Trainer(job.network, job.plan, job.loss, options, folder, team)
    if config.base is not None and not trainer.progress.step:
        trainer.save()  # so that it needs the run it begins with no more
    if not team.is_first:
        job.network.train()
        return trainer.progress if trainer.is_finished else trainer.run(job.validate, lambda *_: None)
    if trainer.is_finished:
        watch.say(console, f"{folder} is finished: {trainer.progress.step:,} steps. Raise training.max_steps to go on.")
        if reports and (_calibrate(config, folder, console) or not (folder / REPORT).exists()):
            _report(folder, console)
        return trainer.progress
    if trainer.progress.step:
        watch.say(console, f"Going on from step {trainer.progress.step:,}.")
    _write_versions(folder, options)
    manifest.forget(folder, LOG, REPORT, CONFIDENCE)
    for name in (REPORT, CONFIDENCE):
        (folder / name).unlink(missing_ok=True)  # it will be written again
    if said := rehearsing.wait():
        watch.say(console, said)
    try:
        with TrainingBar(console, trainer, unit=job.unit, tensorboard=config.training.tensorboard) as bar:
            job.network.train()
            progress = trainer.run(job.validate, tell_callbacks(trainer, callbacks, bar.report))
    except TrainingInterrupted:
        if not trainer.must_stop:
            raise
        progress = trainer.progress
        watch.say(console, f"Stopped by a callback after step {progress.step:,}. The same call goes on.")
    finally:
        manifest.record(folder, LOG)
    if reports:
        _calibrate(config, folder, console)
        _report(folder, console)
    return progress


def _prepare(config: Any, folder: Path, console: Console, team: Team) -> tuple[Any, Job, TrainingOptions]:
    """Prepare config, job and options; the first process of a team leaves files that the others find."""
    config = _check_same_run(config, folder)
    if team.is_first:
        config_file.save_config(config, folder / "config.yaml")  # before anything that depends on it is stored
    is_whole = not (_is_sharded(config, team) or config.training.lora)
    with bound_network(TRAINED if is_whole else 1, devices.device_for(config)):
        job = TASKS[config.task].prepare(config, folder, console)
    watch.say(console, describe_exports(job.portable))
    numbers = adapt.begin(config, job, folder, console, writes=team.is_first)
    config = settle_steps(job.config or config, job.plan)
    watch.say(console, describe_steps(config, job.plan))
    options = devices.training_options(config, job.network, team)
    options = replace(options, capture=job.is_steady and is_whole)
    if config.training.precision == "float8":
        train_in_float8(shards.transformer_blocks(job.network))
    else:
        config = _set_training(config, "precision", options.precision)
    if team.is_first:
        _store(config, job, folder, numbers)
    return config, job, options


def _is_sharded(config: Any, team: Team) -> bool:
    """Return whether each of several processes keeps a part of the model."""
    return team.size > 1 and getattr(config.training, "shard", False)


def _store(config: Any, job: Job, folder: Path, numbers: adapt.NumParameters) -> None:
    """Store what a trained run needs beside its weights; a run that was refused before stays as it was."""
    _check_same_data(job.data, folder)
    for name, text in job.stored.items():
        manifest.write(folder, name, text)
    manifest.record(folder, *(path.name for path in folder.glob("tokenizer.*")))
    summary = {
        "parameters": numbers.whole,
        "trained": numbers.trained,
        "data": [count._asdict() for count in job.counts],
    }
    manifest.write(folder, SUMMARY, json.dumps(summary, indent=1))
    config_file.save_config(config, folder / "config.yaml")


def _calibrate(config: RunSection, folder: Path, console: Console) -> bool:
    """Fit what is fitted once a model is trained, if that was not done yet; return whether it was done now."""
    calibrate = TASKS[config.task].calibrate
    if calibrate is None or (folder / CONFIDENCE).exists() or not (folder / "model.safetensors").exists():
        return False
    with watch.busy(console, "fitting how sure it may be"):
        found = calibrate(config, load_run(folder))
    for name, text in found.items():
        manifest.write(folder, name, text)
    return bool(found)


def _report(folder: Path, console: Console) -> None:
    if (folder / "model.safetensors").exists():
        with watch.busy(console, "writing the report"):
            console.print(f"The report: {report.write_report(folder)}", soft_wrap=True)
        manifest.record(folder, REPORT)


def _check_same_run(config: RunSection, folder: Path) -> RunSection:
    """Refuse to go on in a folder with another model or other data; return the config with values chosen before."""
    path = folder / "config.yaml"
    if not path.exists():
        return config
    earlier = config_file.load_config(path)
    same = _choose_as_before(config, earlier) if earlier.task == config.task else config
    before, now = (c.model_dump(exclude=MAY_CHANGE) for c in (earlier, same))
    changed = [section for section in now if now[section] != before.get(section)]
    if not changed:
        return same
    if _has_learned(folder):
        what = ", ".join(changed)
        raise UserError(f"{folder} holds a run with another {what}; give this one another folder (--run), or delete it")
    for tokenizer in folder.glob("tokenizer.*"):  # nothing was learned yet: start again
        tokenizer.unlink()
    return config


def _choose_as_before(config: S, earlier: Any) -> S:
    """Return the config with the choices of an earlier start for its "auto" fields: they are part of the run."""
    update: dict[str, Any] = {}
    for name, value in config:
        before = getattr(earlier, name, value)
        kind = getattr(before, "kind", "auto")
        if hasattr(value, "of_kind") and kind != "auto":
            update[name] = value.of_kind(kind)  # the kind decides the whole section
        elif isinstance(value, Section) and isinstance(before, Section):
            update[name] = _choose_as_before(value, before)
        elif value == "auto" and name != "device":
            update[name] = before
    return config.model_copy(update=update)


def _has_learned(folder: Path) -> bool:
    return bool(checkpoints.list_checkpoints(folder / "checkpoints")) or (folder / "model.safetensors").exists()


def _set_training(config: RunSection, name: str, value: object) -> RunSection:
    training = config.training.model_copy(update={name: value})
    return config.model_copy(update={"training": training})


def _check_same_data(keys: list[str], folder: Path) -> None:
    """Refuse to go on with training files that have changed since the run began."""
    path = folder / DATA
    has_begun = bool(checkpoints.list_checkpoints(folder / "checkpoints"))
    if has_begun and path.exists() and json.loads(path.read_text("utf-8")) != keys:
        raise UserError(f"{folder}: the training data have changed since this run began; give another folder (--run)")
    manifest.write(folder, DATA, json.dumps(keys))


def _write_versions(folder: Path, options: TrainingOptions) -> None:
    """Write the versions of libraries, system and device, and the number of threads."""
    versions = {"saccade": saccade.__version__, **{name: importlib.metadata.version(name) for name in LIBRARIES}}
    device = torch.cuda.get_device_name() if options.device.type == "cuda" else platform.processor() or "cpu"
    place = {
        "python": platform.python_version(),
        "system": platform.platform(),
        "device": device,
        "threads": torch.get_num_threads(),
    }
    manifest.write(folder, VERSIONS, json.dumps({**versions, **place, "precision": str(options.dtype)}, indent=1))
