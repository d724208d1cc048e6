"""Begins a run with another one (`from`): takes the rest of its config and its weights, and chooses what trains.

A run takes what it needs when it begins, so the other one may then change or go.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from saccade import manifest
from saccade.config.base import RunSection
from saccade.config.load import list_sections
from saccade.errors import UserError
from saccade.runs import config as config_file
from saccade.runs.check import BASE, CONFIG, MODEL
from saccade.runs.load import read_trained
from saccade.runs.report import read_facts
from saccade.tasks import TASKS
from saccade.tasks import console as watch
from saccade.tasks.base import InheritedFields, Job, Rows
from saccade.training import adaptation, checkpoints

Content = dict[str, Any]
ABSENT: Any = object()
ONLY_SOME = {  # fields that not all tasks have, and why
    "tokenizer.grow": "vocabularies of the task {task} do not grow, so leave it out",
    "data.old_share": "the task {task} mixes nothing in, so put old examples among those of data.train",
}


class NumParameters(NamedTuple):
    """The number of a model's weights, and of the numbers that train: adapters are no part of the model."""

    whole: int
    trained: int


def fill_in(content: Mapping[str, Any], run: Path) -> Content:
    """Return the content of a config with what it leaves to the run it begins with; one that goes on has it itself."""
    base = content.get("from")
    base = os.fspath(base) if isinstance(base, os.PathLike) else base
    if not isinstance(base, str) or not base:  # the checks of fields say what is wrong
        return dict(content)
    if Path(base).resolve() == run.resolve():
        raise UserError(f"from: {base} given, which is the run's own folder; give the new run another one (--run)")
    earlier = _read_begun(base, run) or read_trained(Path(base), "from: ")
    task = content.get("task", earlier.task)
    if task != earlier.task:
        raise UserError(f"task: {task!r} given, but {base} is a run of the task {earlier.task}")
    old, filled = earlier.model_dump(), copy.deepcopy({**content, "task": task})
    inherited = TASKS[task].inherited
    if inherited is None:
        raise UserError(f"from: {base} given; runs of the task {task} begin with no other run")
    _refuse_absent(filled)
    for name in inherited.anew:
        _remove(old, name)
    for name in (*inherited.same, *inherited.usual):
        given, other = _find(filled, name), _find(old, name)
        if name in inherited.same:
            _refuse_others(name, given, other, inherited, base)
        if other is not ABSENT:
            _put(filled, name, _over(other, given))
    return filled


def _refuse_absent(content: Content) -> None:
    """Refuse, with the reason, what only some tasks do when a run begins with another one."""
    task = content["task"]
    fields = TASKS[task].config.model_fields
    for name, reason in ONLY_SOME.items():
        section, field = name.split(".")
        sections = list_sections(fields[section].annotation) if section in fields else []
        given = _find(content, name)
        if given is not ABSENT and not any(field in one.model_fields for one in sections):
            raise UserError(f"{name}: {given!r} given; {reason.format(task=task)}")


def _read_begun(base: str, run: Path) -> Any:
    """Return the config of a run that began with this one and goes on; None if there is none."""
    if not (run / BASE).exists() or not checkpoints.list_checkpoints(run / "checkpoints"):
        return None
    config = config_file.load_config(run / CONFIG)
    return config if config.base == base else None


def _refuse_others(name: str, given: Any, other: Any, inherited: InheritedFields, base: str) -> None:
    """Refuse a value that is not the other run's, unless the field is free to differ."""
    if _is_open(given) or other is ABSENT or name in inherited.free:  # the checks of fields refuse unknown names
        return
    if isinstance(given, Mapping) and isinstance(other, Mapping):
        for field, value in given.items():
            _refuse_others(f"{name}.{field}", value, other.get(field, ABSENT), inherited, base)
    elif given != other and not (given is None and isinstance(other, Mapping)):
        said = f"{name}: {given!r} given, but {base}, which this run begins with, has {other!r}"
        free = [field for field in inherited.free if field.split(".")[0] == name.split(".")[0]]
        raise UserError(f"{said}; leave it out" + (f" (what may differ: {', '.join(free)})" if free else ""))


def _over(other: Any, given: Any) -> Any:
    """Put what is given over what the other run has."""
    if isinstance(other, Mapping) and isinstance(given, Mapping):
        return {**other, **{name: _over(other.get(name, ABSENT), value) for name, value in given.items()}}
    return other if other is not ABSENT and (_is_open(given) or given is None) else given


def _is_open(given: Any) -> bool:
    """Tell whether a field is left to the other run."""
    return given is ABSENT or given == "auto"


def _find(content: Mapping[str, Any], name: str) -> Any:
    found: Any = content
    for part in name.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return ABSENT
        found = found[part]
    return found


def _put(content: Content, name: str, value: Any) -> None:
    *sections, field = name.split(".")
    for section in sections:
        content = content.setdefault(section, {})
        if not isinstance(content, dict):  # the checks of fields refuse it
            return
    content[field] = value


def _remove(content: Content, name: str) -> None:
    section, _, field = name.rpartition(".")
    holder = _find(content, section) if section else content
    if isinstance(holder, dict):
        holder.pop(field, None)


def begin(config: RunSection, job: Job, folder: Path, console: Console, *, writes: bool) -> NumParameters:
    """Take over the weights of the run that this one begins with, and choose what trains; a resumed run has weights.

    Of several processes the first one `writes`.
    """
    new = [] if config.base is None else _take_over(Path(config.base), job, folder, console, writes=writes)
    network, training = job.network, config.training
    whole = sum(parameter.numel() for parameter in network.parameters())
    adaptation.freeze_parts(network, training.freeze)
    said = f"parameters: {whole:,}"
    if training.lora:
        _check_adapters(config)
        count = adaptation.add_adapters(network, training.lora, config.seed, new)
        said += f", and {count} adapters of rank {training.lora}"
    trained = sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)
    if not trained:
        raise UserError(f"training.freeze: {', '.join(training.freeze)} given; it leaves nothing to train")
    watch.say(console, f"{said}; {'all' if trained == whole else f'{trained:,}'} train")
    return NumParameters(whole, trained)


def _take_over(base: Path, job: Job, folder: Path, console: Console, *, writes: bool) -> list[str]:
    """Give the network the other run's weights, as training begins; return the names of those with new rows."""
    weights = base / MODEL
    if checkpoints.list_checkpoints(folder / "checkpoints"):
        facts = read_facts(folder / BASE)
        if "new" not in facts:
            raise UserError(f"{folder / BASE}: this file of the run is missing or damaged; put it back, or begin again")
        if weights.exists() and _checksum(weights) != facts.get("weights"):
            said = f"from: {base} has other weights now than when this run began with it"
            watch.say(console, f"{said}; this run goes on with those that it has", style="yellow")
        return list(facts["new"])
    rows, other = job.rows(base), checkpoints.read_weights(weights)
    new = adaptation.inherit_weights(job.network, other, rows, str(base))
    watch.say(console, f"from: begins with the weights of {base}")
    for name in new:
        axes = rows[name]
        assert axes is not None
        watch.say(console, f"rows of {name}: {_describe_rows(axes[0])}")
    if writes:
        facts = {"run": str(base), "weights": _checksum(weights), "new": new}
        manifest.write(folder, BASE, json.dumps(facts, indent=1))
    return new


def _describe_rows(rows: Rows) -> str:
    """Say how many rows are the other run's, are made of such ones, or are new."""
    made = [tuple(places) for places in rows if len(places)]
    kept = len({places for places in made if len(places) == 1})
    counts = {"kept": kept, "begin as means of these": len(made) - kept, "new": len(rows) - len(made)}
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)


def _check_adapters(config: RunSection) -> None:
    """Refuse what adapters do not go with."""
    given = {"precision": "float8", "shard": True}
    for name, value in given.items():
        if getattr(config.training, name, None) == value:
            raise UserError(
                f"training.lora: {config.training.lora} given; it does not go with training.{name}: {value}"
            )


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
