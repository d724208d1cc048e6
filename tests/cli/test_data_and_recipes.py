"""`saccade data` and `saccade recipes`: what a newcomer types first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from saccade.cli import app
from saccade.datasets.made import reviews
from saccade.datasets.table import DATASETS
from saccade.errors import UserError

RUNNER = CliRunner()


def invoke(*arguments: str) -> str:
    done = RUNNER.invoke(app, arguments)
    assert done.exit_code == 0, done.exception
    return done.output


def refused(*arguments: str) -> str:
    error = RUNNER.invoke(app, arguments).exception
    assert isinstance(error, UserError), error
    return str(error)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reviews, "SIZES", {"train": 60, "valid": 20, "test": 20})
    return tmp_path


def test_data_are_listed_made_and_there(here: Path) -> None:
    assert [row["name"] for row in json.loads(invoke("data", "--json"))] == list(DATASETS)
    said = invoke("data")
    assert "6,920 sentences of film reviews" in said
    assert "CC BY-SA 4.0" in said
    assert "is there" not in said
    made = invoke("data", "reviews")
    assert f"{Path('data/reviews')}: 4 files" in made
    assert "Next: saccade train reviews" in made
    assert (here / "data" / "reviews" / "train.tsv").read_text("utf-8").startswith("label\ttext\n")
    assert "is there already" in invoke("data", "reviews")
    assert "write else/reviews/ for data/reviews/ in reviews.yaml" in invoke("data", "reviews", "--folder", "else")
    (row,) = [row for row in json.loads(invoke("data", "--json")) if row["is_there"]]
    assert (row["name"], row["is_made"], row["recipes"]) == ("reviews", True, ["reviews"])


@pytest.mark.usefixtures("here")
def test_data_that_cannot_be() -> None:
    assert refused("data", "review") == "'review': there is no such data set (did you mean reviews?)"
    assert refused("data", "--from", "x").startswith("--from: given without the name of a data set")
    assert refused("data", "trec", "--json").startswith("--json: it goes with the list")
    assert "saccade data conll2003 --from PATH" in refused("data", "conll2003")
    assert refused("train", "trec") == f"there is no folder at {Path('data/trec')}; saccade data trec brings it"


def test_a_recipe_is_listed_shown_copied_and_trained(here: Path) -> None:
    listed = {row["name"]: row for row in json.loads(invoke("recipes", "--json"))}
    assert (listed["trec"]["task"], listed["trec"]["data"]) == ("classify", "trec")
    assert "saccade data bookings" in " ".join(invoke("recipes").split())
    shown = invoke("recipes", "show", "reviews")
    assert shown.startswith("# Tells whether a hotel review praises")
    assert "mine.yaml. Next: saccade train mine.yaml" in invoke("recipes", "copy", "reviews", "mine.yaml")
    assert (here / "mine.yaml").read_text("utf-8") == shown
    invoke("recipes", "copy", "reviews")
    assert (here / "reviews.yaml").read_text("utf-8") == shown
    assert refused("recipes", "copy", "reviews") == "reviews.yaml: it exists already, and copying would overwrite it"
    assert refused("recipes", "show", "revues") == "'revues': there is no such recipe (did you mean reviews?)"
    invoke("data", "reviews")
    trained = invoke("train", "reviews", "training.max_steps=2", "training.validate_every=2", "model.width=8")
    assert "Next: saccade evaluate runs/reviews, or saccade predict runs/reviews --input FILE" in trained


@pytest.mark.usefixtures("here")
def test_a_run_is_evaluated_on_its_own_test_set() -> None:
    invoke("data", "reviews")
    invoke("train", "reviews", "training.max_steps=2", "training.validate_every=2", "model.width=8")
    own = invoke("evaluate", "runs/reviews")
    assert "The run's own test set: data/reviews/test.tsv" in own
    assert "20 texts: accuracy" in own
    invoke("train", "reviews", "training.max_steps=2", "model.width=8", "data.test=null", "--run", "runs/no_test")
    assert (
        refused("evaluate", "runs/no_test") == "files: none given, and the run's config names no test set (data.test)"
    )
