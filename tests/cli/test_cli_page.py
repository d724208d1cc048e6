"""docs/cli.md names every command, and only options that there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from saccade.cli import COMMANDS, load_command

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
ELSEWHERE = {"--standalone", "--nproc-per-node", "--no-python"}  # torchrun's


def options_of(command: Any) -> set[str]:
    """The options of a command, or of all commands of a group."""
    own = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return own.union(*(options_of(one) for one in getattr(command, "commands", {}).values()))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_names_a_command_and_options_that_exist(name: str) -> None:
    assert f"](#{name})" in PAGE.split("\n## ")[0]
    section = PAGE.split(f"\n## {name}\n")[1].split("\n## ")[0]
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", section)) - ELSEWHERE
    assert named <= options_of(load_command(name))
    for command in getattr(load_command(name), "commands", {}):
        assert f"saccade {name} {command}" in section
