"""`saccade config`: about config files."""

from __future__ import annotations

import json
from typing import Any, Union

import typer
from pydantic import TypeAdapter

from saccade.tasks import TASKS

app = typer.Typer(help="Describe config files.", no_args_is_help=True)


@app.command("schema")
def config_schema() -> None:
    """Print the JSON schema of config files: every field, its default and meaning. Editors complete from it."""
    any_of: Any = Union[tuple(task.config for task in TASKS.values())]  # noqa: UP007
    schema = TypeAdapter(any_of).json_schema()
    typer.echo(json.dumps(schema, indent=2, ensure_ascii=False))
