"""`saccade config`: about config files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Union

import typer
from pydantic import TypeAdapter

from saccade.runs import check
from saccade.runs import config as config_file
from saccade.tasks import TASKS

app = typer.Typer(help="Describe config files; accept an edited one.", no_args_is_help=True)


@app.command("schema")
def config_schema() -> None:
    """Print the JSON schema of config files: every field, its default and meaning. Editors complete from it."""
    any_of: Any = Union[tuple(task.config for task in TASKS.values())]  # noqa: UP007
    schema = TypeAdapter(any_of).json_schema()
    typer.echo(json.dumps(schema, indent=2, ensure_ascii=False))


@app.command("accept")
def config_accept(run: Annotated[Path, typer.Argument(help="The run folder.")]) -> None:
    """Accept the config.yaml and examples.txt of a run that you edited on purpose: other changes count as damage."""
    config_file.load_config(run / check.CONFIG)  # it must be a valid one
    for path in check.accept_edits(run) or [run]:
        typer.echo(f"{path}: " + ("it has not changed" if path == run else "accepted as it is now"))
