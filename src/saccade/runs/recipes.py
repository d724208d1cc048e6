"""The recipes: configs that come with the package, each with what it says of itself in its first lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import yaml

import saccade
from saccade.errors import UserError, suggest

PACKAGE = Path(saccade.__file__).parent
FOLDERS = (PACKAGE / "recipes", PACKAGE.parents[1] / "configs")  # of an installed package, and of a checkout


class Recipe(NamedTuple):
    """A config to begin with, and what its head says: what it trains, on which data, and how long that takes."""

    name: str
    path: Path
    task: str
    what: str
    data: str  # the name of a data set, or nothing
    time: str


def list_recipes() -> list[Recipe]:
    """Return all recipes: first those that need little time and no data of others, then the others, by name."""
    folder = next((folder for folder in FOLDERS if folder.is_dir()), None)
    if folder is None:
        raise UserError(f"there are no recipes in {FOLDERS[0]}; this installation of saccade is not complete")
    found = [_read(path) for path in sorted(folder.glob("*.yaml"))]
    return sorted(found, key=lambda recipe: "CPU" not in recipe.time)


def find_recipe(name: str) -> Recipe:
    """Return the recipe of a name."""
    recipes = {recipe.name: recipe for recipe in list_recipes()}
    if name not in recipes:
        raise UserError(f"{name!r}: there is no such recipe{suggest(name, recipes)}")
    return recipes[name]


def find_config(given: Path) -> Path:
    """Return the path of a config that is given by its path or, if it is a recipe, by its name."""
    if given.is_file():
        return given
    recipes = {recipe.name: recipe.path for recipe in list_recipes()}
    if given.stem in recipes and given in (Path(f"{given.stem}.yaml"), Path("configs", f"{given.stem}.yaml")):
        raise UserError(f"config: there is no file at {given}; the recipe's name is enough: saccade train {given.stem}")
    if given.suffix or given.parent != Path():
        return given
    if given.name not in recipes:
        raise UserError(f"config: there is no file at {given}, and no recipe of that name; saccade recipes lists them")
    return recipes[given.name]


def _read(path: Path) -> Recipe:
    text = path.read_text("utf-8")
    head = re.match(r"(?:#.*\n)*", text)
    assert head is not None
    said = re.sub(r"(?m)^# ?", "", head[0])
    data = re.search(r"saccade data (\w+)", said)
    time = re.search(r"(?m)^Time: ([^.]*)\.", said)
    task = yaml.safe_load(text).get("task", "")
    what = said.split("\n")[0].removesuffix(".")
    return Recipe(path.stem, path, task, what, data[1] if data else "", " ".join(time[1].split()) if time else "")
