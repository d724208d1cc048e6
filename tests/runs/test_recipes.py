"""Recipes: each says what it trains, on which data and how long; they are found by name, and a wheel has them."""

from __future__ import annotations

import itertools
import tomllib
from pathlib import Path

import pytest

from saccade.errors import UserError
from saccade.runs import config as config_file
from saccade.runs import recipes
from saccade.runs.recipes import Recipe, find_config, find_recipe, list_recipes
from saccade.tasks import TASKS

ROOT = Path(__file__).parents[2]
RECIPES = list_recipes()


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_recipe_is_a_config_whose_head_says_what_it_is(recipe: Recipe) -> None:
    config = config_file.load_config(recipe.path)
    assert config.task == recipe.task
    assert 20 < len(recipe.what) <= 110
    assert recipe.time
    head = recipe.path.read_text("utf-8").split("\n\n")[0]
    assert f"saccade train configs/{recipe.name}.yaml" in head
    assert f"saccade evaluate runs/{recipe.name}" in head or recipe.name == "europarl"


def test_every_task_has_a_recipe_that_needs_no_data_of_others_and_little_time() -> None:
    made = [recipe for recipe in RECIPES if recipe.name in MADE]
    assert {recipe.task for recipe in made} == set(TASKS)
    assert {recipe.name for recipe in made if "CPU" not in recipe.time} == SLOW
    first = itertools.takewhile(lambda recipe: "CPU" in recipe.time, RECIPES)
    others = {"movie_reviews", "sst2", "trec"}  # on data of others
    assert [recipe.name for recipe in first] == sorted((MADE - SLOW) | others)


SLOW = {"speech_digits"}  # wants an accelerator
MADE = {
    "bits_copy",
    "bookings",
    "dialling",
    "digits",
    "facts",
    "gifts",
    "hull",
    "mails",
    "phrasebook",
    "reviews",
    "shapes_small",
    "sort",
    "speech_digits",
    "stories",
}


def test_a_config_is_given_by_its_path_or_a_recipes_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_config(Path("trec")) == find_recipe("trec").path
    assert find_config(Path("other/trec.yaml")) == Path("other/trec.yaml")
    for missing in (Path("configs/trec.yaml"), Path("trec.yaml")):  # an installed package has no such folder
        with pytest.raises(UserError, match=f"no file at {missing}; the recipe's name is enough: saccade train trec"):
            find_config(missing)
    Path("trec").mkdir()
    assert find_config(Path("trec")) == find_recipe("trec").path
    Path("reviews").write_text("task: tag\n")
    assert find_config(Path("reviews")) == Path("reviews")
    with pytest.raises(UserError, match="there is no file at trek, and no recipe of that name"):
        find_config(Path("trek"))
    with pytest.raises(UserError, match=r"'trek': there is no such recipe \(did you mean trec\?\)"):
        find_recipe("trek")


def test_an_installed_package_has_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {"configs": "saccade/recipes"}
    assert recipes.FOLDERS == (ROOT / "src" / "saccade" / "recipes", ROOT / "configs")
    (tmp_path / "one.yaml").write_text("# One.\n#\n#   saccade data trec\n#\n# Time: a day.\n\ntask: tag\n", "utf-8")
    monkeypatch.setattr(recipes, "FOLDERS", (tmp_path, ROOT / "configs"))
    assert list_recipes() == [Recipe("one", tmp_path / "one.yaml", "tag", "One", "trec", "a day")]
    monkeypatch.setattr(recipes, "FOLDERS", (tmp_path / "none", tmp_path / "nothing"))
    with pytest.raises(UserError, match="this installation of saccade is not complete"):
        list_recipes()
