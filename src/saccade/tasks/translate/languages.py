"""Which languages a run translates between."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from saccade.tasks.translate.config import TranslateConfig

ENDINGS = (".gz", ".txt")  # of files, behind the language


def find_languages(config: TranslateConfig, known: Collection[str]) -> tuple[str, str] | None:
    """Return the codes that the config says, or the endings of its files, if these are codes that are known."""
    if config.languages is not None:
        return config.languages.source, config.languages.target
    files = next(iter(config.data.corpora.values()))
    source, target = _ending(files.source), _ending(files.target or "")
    return (source, target) if source != target and source in known and target in known else None


def _ending(name: str) -> str:
    """train.en.gz: en."""
    path = Path(name)
    while path.suffix in ENDINGS:
        path = path.with_suffix("")
    return path.suffix.removeprefix(".")
