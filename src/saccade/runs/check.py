"""Checks the files of a run folder before they are used: none may have changed since training wrote it."""

from __future__ import annotations

import warnings
from pathlib import Path

from saccade import manifest
from saccade.errors import UserError
from saccade.inspection.align import chosen_head

BASE, CONFIDENCE, CONFIG, DATA, LOG, MODEL, REPORT, SUMMARY, VERSIONS = (
    "base.json", "confidence.json", "config.yaml", "data.json", "log.jsonl", "model.safetensors", "report.html",
    "summary.json", "versions.json",
)  # fmt: skip
ADVICE = {
    CONFIDENCE: "delete it, and call saccade train again: it is fitted anew",
    chosen_head.NAME: "delete it, and choose the head again (saccade look --align)",
}
FOR_PEOPLE = (LOG, REPORT, SUMMARY, VERSIONS)  # a model does not depend on them


def check_for_use(folder: Path) -> None:
    """Refuse a run that is not as training left it; of a file that answers do not depend on, warn."""
    manifest.refuse_strange_places(folder)
    if not manifest.exists(folder):
        _warn(f"{folder}: its files are not checked, as a run of an earlier version has no {manifest.NAME}")
    for path in manifest.find_changed(folder):
        if path.name not in (*FOR_PEOPLE, BASE, DATA):
            raise _changed(path)
        _warn(f"{path} has changed since it was written; it is not used here")


def check_for_training(folder: Path) -> None:
    """Refuse to go on with files that have changed; those that training writes anew are put aside."""
    manifest.refuse_strange_places(folder)
    for path in manifest.find_changed(folder):
        if path.name not in FOR_PEOPLE:
            raise _changed(path)
        aside = path.rename(path.with_name(f"damaged-{path.name}"))
        manifest.forget(folder, path.name)
        _warn(f"{path} has changed since it was written; it is {aside.name} now, and another is begun")


def accept_config(folder: Path) -> bool:
    """Record the config of a run as it is now; return whether it had changed."""
    is_new = folder / CONFIG in manifest.find_changed(folder)
    manifest.record(folder, CONFIG)
    return is_new


def _changed(path: Path) -> UserError:
    if path.name == CONFIG:
        what = f"{path} has changed since it was written"
        return UserError(f"{what}; if you edited it on purpose: saccade config accept {path.parent}")
    advice = ADVICE.get(path.name, "copy it again, or train again")
    return UserError(f"{path} is damaged: it has changed since it was written; {advice}")


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=4)
