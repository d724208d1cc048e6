"""`saccade data`: lists data sets, makes them, fetches them, or prepares what the user has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
from rich.table import Table

from saccade.cli import terminal
from saccade.datasets.bring import bring, is_there
from saccade.datasets.dataset import MadeData
from saccade.datasets.table import DATASETS
from saccade.errors import UserError, suggest
from saccade.runs.recipes import list_recipes
from saccade.training.rate import Pace


def data(
    name: Annotated[str | None, typer.Argument(help="The data set to bring; without it, all are listed.")] = None,
    given: Annotated[
        Path | None, typer.Option("--from", help="Prepare it from this folder, archive or file instead of fetching it.")
    ] = None,
    folder: Annotated[Path, typer.Option(help="The folder that recipes look into.")] = Path("data"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the data sets of recipes, or bring one: made here, or fetched from where it is public."""
    if name is None:
        if given is not None:
            raise UserError("--from: given without the name of a data set")
        _list(folder, as_json)
        return
    if as_json:
        raise UserError("--json: it goes with the list, without a name")
    if name not in DATASETS:
        raise UserError(f"{name!r}: there is no such data set{suggest(name, DATASETS)}")
    _bring(name, folder / name, given)


def _list(folder: Path, as_json: bool) -> None:
    recipes: dict[str, list[str]] = {}
    for recipe in list_recipes():
        recipes.setdefault(recipe.data, []).append(recipe.name)
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "is_there": is_there(one, folder / name),
            "is_made": isinstance(one, MadeData),
            "size": one.size,
            "licence": one.licence,
            "what": one.what,
            "recipes": recipes.get(name, []),
        }
        for name, one in DATASETS.items()
    ]
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return
    table = Table.grid(padding=(0, 2))
    for row in rows:
        there = "is there" if row["is_there"] else "-"
        more = f"[dim]{row['licence']}; for {', '.join(row['recipes'])}[/dim]"
        table.add_row(row["name"], there, row["size"], f"{row['what']}\n{more}")
    Console(highlight=False).print(table)
    typer.echo(f"\nsaccade data NAME makes or fetches one, and puts it into {folder}/NAME.")


def _bring(name: str, folder: Path, given: Path | None) -> None:
    data_set = DATASETS[name]
    if given is None and is_there(data_set, folder):
        typer.echo(f"{name} is there already, in {folder}. To bring it again, delete that folder.")
        return
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), DownloadColumn())
    with terminal.quiet(), Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}
        pace = Pace()

        def watch(file: str, done: int, total: int | None) -> None:
            if not console.is_terminal and pace.is_due():
                of = "" if total is None else f" of {total / 1e6:,.1f}"
                typer.echo(f"{file}: {done / 1e6:,.1f}{of} MB so far", err=True)
            task = tasks.setdefault(file, bar.add_task(file, total=total)) if file not in tasks else tasks[file]
            bar.update(task, completed=done)

        bring(name, data_set, folder, given=given, tell=lambda line: typer.echo(line, err=True), watch=watch)
    files = [path for path in folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / 1e6
    typer.echo(f"{folder}: {len(files):,} files, {size:,.1f} MB. {data_set.what[0].upper()}{data_set.what[1:]}.")
    for recipe in (one for one in list_recipes() if one.data == name):
        typer.echo(f"Next: {_next(recipe.name, folder)}")


def _next(recipe: str, folder: Path) -> str:
    """Return the command that trains on the data in a folder: recipes look for them in data/."""
    usual = Path("data") / folder.name
    copied = f"saccade recipes copy {recipe}; then write {folder}/ for {usual}/ in {recipe}.yaml"
    return f"saccade train {recipe}" if folder.resolve() == usual.resolve() else copied
