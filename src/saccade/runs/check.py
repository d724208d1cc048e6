"""Checks the files of a run folder before they are used: none may have changed since training wrote it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from saccade import manifest
from saccade.data.text.corpus import read_lines
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
EXAMPLES, PICTURE = "examples.txt", "alignment.png"
FOR_PEOPLE = (LOG, REPORT, SUMMARY, VERSIONS)  # a model does not depend on them
KEPT = (EXAMPLES, PICTURE)  # nor on these, which training does not write anew


def check_for_use(folder: Path) -> None:
    """Refuse a run that is not as training left it; of a file that answers do not depend on, warn."""
    manifest.refuse_strange_places(folder)
    if not manifest.exists(folder):
        _warn(f"{folder}: its files are not checked, as a run of an earlier version has no {manifest.NAME}")
    for path in manifest.find_changed(folder):
        if path.parent == folder and path.name not in (*FOR_PEOPLE, *KEPT, BASE, DATA):
            raise _change_error(path)
        _warn(_describe_unused(path))


def check_for_training(folder: Path) -> None:
    """Refuse to go on with files that have changed; those that training writes anew are put aside."""
    manifest.refuse_strange_places(folder)
    for path in manifest.find_changed(folder):
        if path.parent == folder and path.name in KEPT:
            _warn(_describe_unused(path))
            continue
        if path.name not in FOR_PEOPLE:
            raise _change_error(path)
        aside = path.rename(path.with_name(f"damaged-{path.name}"))
        manifest.forget(folder, path.name)
        _warn(f"{path} has changed since it was written; it is {aside.name} now, and another is begun")


def read_examples(folder: Path) -> list[str]:
    """Return the lines of examples.txt: the owner of a run chooses what the page may show of it."""
    path = folder / EXAMPLES
    if not path.exists() or path in manifest.find_changed(folder):  # loading the run has said so
        return []
    if manifest.exists(folder) and not manifest.is_recorded(folder, EXAMPLES):
        _warn(f"{path} is shown as it is, as it was not there when the run was made{_accepts(folder)}")
    return list(filter(None, read_lines(path)))


def refuse_changed(paths: Sequence[Path], folder: Path) -> None:
    """Refuse data that a run brought with it and that have changed since."""
    for path in manifest.find_changed(folder):
        if path.resolve() in [one.resolve() for one in paths]:
            raise _change_error(path)


def accept_edits(folder: Path) -> list[Path]:
    """Record the config and the examples of a run as they are now; return those that had changed or were not known."""
    if not manifest.exists(folder):
        return []
    paths = [folder / name for name in (CONFIG, EXAMPLES) if (folder / name).exists()]
    changed = manifest.find_changed(folder)
    new = [path for path in paths if path in changed or not manifest.is_recorded(folder, path.name)]
    manifest.record(folder, CONFIG, EXAMPLES)
    return new


def _change_error(path: Path) -> UserError:
    if path.name == CONFIG:
        what = f"{path} has changed since it was written"
        return UserError(f"{what}{_accepts(path.parent)}")
    advice = ADVICE.get(path.name, "copy it again, or train again")
    return UserError(f"{path} is damaged: it has changed since it was written; {advice}")


def _describe_unused(path: Path) -> str:
    if path.parent.name == manifest.DATA.rstrip("/"):
        return f"{path} has changed since it was written; the model does not depend on it"
    accepts = _accepts(path.parent) if path.name == EXAMPLES else ""
    return f"{path} has changed since it was written; it is not used here{accepts}"


def _accepts(folder: Path) -> str:
    return f"; if you edited it on purpose: saccade config accept {folder}"


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=4)
