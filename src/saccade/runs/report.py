"""Writes a run's report.html: its curves, its scores, and its task's own part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from saccade.errors import UserError
from saccade.inspection.pages import report
from saccade.runs import config as config_file
from saccade.runs.check import LOG, REPORT, SUMMARY, VERSIONS
from saccade.runs.load import load_run
from saccade.tasks import TASKS


def write_report(folder: Path) -> Path:
    """Write the report of a trained run's best model."""
    config, path = config_file.load_config(folder / "config.yaml"), folder / REPORT
    examine = TASKS[config.task].examine
    found = None if examine is None else examine(config, load_run(folder))
    log, summary = read_log(folder / LOG), read_facts(folder / SUMMARY)
    report.write(
        path,
        title=folder.name,
        config=config.model_dump(),
        versions=read_facts(folder / VERSIONS),
        log=log,
        parameters=summary.get("parameters"),
        data=summary.get("data", ()),
        scores=None if found is None else {found.name: found.scores},
        sections=() if found is None else found.sections,
        seconds=sum(row.get("seconds") or 0.0 for row in log) or None,
    )
    return path


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a run's log; there is none where it was damaged and put aside."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    try:
        return [json.loads(line) for line in lines]
    except ValueError:
        raise UserError(f"{path} is damaged: one of its lines is not JSON") from None


def read_facts(path: Path) -> dict[str, Any]:
    """Return what training stored about a run; runs of old lack some, and a damaged file tells nothing."""
    try:
        found = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
