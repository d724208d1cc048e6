"""Writes a run's report.html: its curves, its scores, and its task's own part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from saccade.inspection.pages import report
from saccade.runs import config as config_file
from saccade.runs.load import load_run
from saccade.tasks import TASKS


def write_report(folder: Path) -> Path:
    """Write the report of a trained run's best model."""
    config, path = config_file.load_config(folder / "config.yaml"), folder / "report.html"
    examine = TASKS[config.task].examine
    found = None if examine is None else examine(config, load_run(folder))
    log, summary = read_log(folder / "log.jsonl"), _read_summary(folder / "summary.json")
    report.write(
        path,
        title=folder.name,
        config=config.model_dump(),
        versions=json.loads((folder / "versions.json").read_text("utf-8")),
        log=log,
        parameters=summary.get("parameters"),
        data=summary.get("data", ()),
        scores=None if found is None else {found.name: found.scores},
        sections=() if found is None else found.sections,
        seconds=sum(row.get("seconds") or 0.0 for row in log) or None,
    )
    return path


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a run's log."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def _read_summary(path: Path) -> dict[str, Any]:
    """Return the counts that training stored; runs of old have none."""
    return json.loads(path.read_text("utf-8")) if path.exists() else {}
