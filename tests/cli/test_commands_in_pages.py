"""Every command that a page shows is one that saccade takes: its options exist, its config knows the fields it sets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from saccade.cli import COMMANDS, load_command
from saccade.config.load import read_config
from saccade.runs import config as config_file
from saccade.runs.recipes import find_config

ROOT = Path(__file__).parents[2]
HISTORY = {ROOT / "docs" / "log.md", ROOT / "docs" / "licences.md"}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LEFT_OUT = ("...", "[")  # words that begin so stand for the reader's own, or for options that may be given


def commands_of(path: Path) -> Iterator[str]:
    """The lines of a page's code blocks that begin with `saccade`; a backslash continues a line."""
    for block in re.findall(r"^ *```[a-z]*\n(.*?)^ *```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r" (?:&&|\||;) ", line.strip()):
                if part.startswith("saccade ") and not re.match(r"saccade [\d.]+ ", part):
                    yield part


def words_of(command: str) -> list[str]:
    """The words behind `saccade`: no comment, no redirection, no `&`."""
    words = shlex.split(command, comments=True)[1:]
    ends = [words.index(word) for word in words if re.fullmatch(r"[12&]?>+.*|<.*|&", word)]
    return words[: min(ends, default=len(words))]


def parse(command: Any, words: list[str]) -> dict[str, Any]:
    """The values of the arguments and options, of the innermost command."""
    context = command.make_context("saccade", list(words), resilient_parsing=False)
    if hasattr(command, "resolve_command") and (rest := [*context._protected_args, *context.args]):
        _, inner, left = command.resolve_command(context, rest)
        return parse(inner, left)
    return dict(context.params)


@pytest.mark.parametrize(
    "path", [path for path in PAGES if path not in HISTORY], ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_command_of_a_page_is_one(path: Path) -> None:
    for line in commands_of(path):
        words = words_of(line)
        if words[0].startswith("-") or any(word.startswith(LEFT_OUT) for word in words):
            continue
        assert words[0] in COMMANDS, f"{path.name}: {line}"
        try:
            given = parse(load_command(words[0]), words[1:])
        except typer.Exit:
            continue  # --help
        except Exception as error:
            pytest.fail(f"{path.name}: {line}: {getattr(error, 'message', error)}")
        check_fields(words[0], given, f"{path.name}: {line}")


def check_fields(name: str, given: dict[str, Any], where: str) -> None:
    """A recipe that is trained or compared must know the fields that are set."""
    if name not in ("train", "compare") or any(word.startswith("from=") for word in given["overrides"] or ()):
        return
    recipe = find_config(given["config"])
    if recipe.exists():
        config_file.check_config(read_config(recipe, given["overrides"] or ()), where)
