"""`saccade recipes`: lists, prints and copies the configs that come with the package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from saccade.errors import UserError
from saccade.files import replace_file
from saccade.runs.recipes import find_recipe, list_recipes

app = typer.Typer(help="List recipes: configs to begin with. Also show and copy them.", invoke_without_command=True)
Name = Annotated[str, typer.Argument(help="The recipe's name.")]


@app.callback()
def recipes(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List recipes: configs to begin with. Also show and copy them."""
    if context.invoked_subcommand is not None:
        return
    found = list_recipes()
    if as_json:
        rows = [{**recipe._asdict(), "path": str(recipe.path)} for recipe in found]
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return
    table = Table.grid(padding=(0, 2))
    for recipe in found:
        data = f"saccade data {recipe.data}; " if recipe.data else ""
        table.add_row(recipe.name, f"{recipe.what}\n[dim]{recipe.task}; {data}{recipe.time}[/dim]")
    Console(highlight=False).print(table)
    typer.echo("\nsaccade train NAME trains one; saccade recipes copy NAME writes it here, to be changed.")


@app.command("show")
def show(name: Name) -> None:
    """Print a recipe's config as it is written."""
    typer.echo(find_recipe(name).path.read_text("utf-8"), nl=False)


@app.command("copy")
def copy(
    name: Name,
    to: Annotated[Path, typer.Argument(help="A folder or a new file. (default: this folder)")] = Path(),
) -> None:
    """Copy a recipe, to be changed."""
    recipe = find_recipe(name)
    path = to / recipe.path.name if to.is_dir() else to
    if path.exists():
        raise UserError(f"{path}: it exists already, and copying would overwrite it")
    with replace_file(path) as draft:
        draft.write_bytes(recipe.path.read_bytes())
    typer.echo(f"{path}. Next: saccade train {path}")
