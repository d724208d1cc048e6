"""Questions about stories, from the command line: every command, and what one learns from a few stories."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from saccade.cli import app
from saccade.data.stories import Story
from saccade.datasets.made.stories import draw_story
from saccade.errors import UserError
from saccade.runs.load import load_run as load
from saccade.serving.models import load_runs
from saccade.tasks.answer.result import AnswerCounts, StoryAnswer
from servers import serving

TEXT = "Mary went to the cellar. John moved to the garden. Where is Mary?"
SIZES = {"max_steps": 150, "validate_every": 75, "warmup_steps": 10, "learning_rate": 0.03, "precision": "float32"}


def lines(seed: int, count: int) -> str:
    """Questions of one fact."""
    dice = random.Random(seed)
    return "".join(f"{json.dumps(draw_story(dice, 'one fact'))}\n" for _ in range(count))


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("answer")
    files = {}
    for seed, (name, count) in enumerate({"train": 600, "valid": 60, "test": 100}.items()):
        files[name] = str(folder / f"{name}.jsonl")
        (folder / f"{name}.jsonl").write_text(lines(seed, count), encoding="utf-8")
    config: dict[str, Any] = {"task": "answer", "device": "cpu", "data": files, "training": SIZES}
    config["model"] = {"width": 32, "num_hops": 2, "story": "bag"}
    (folder / "answer.yaml").write_text(json.dumps(config), encoding="utf-8")
    found = call("train", folder / "answer.yaml", "--run", folder / "run")
    assert found.exit_code == 0, found.output
    assert "600 questions" in found.output
    return folder


def test_it_learns_and_its_hops_find_the_facts(folder: Path) -> None:
    """The most frequent of seven answers is right for a fifth of the questions."""
    found = json.loads(call("evaluate", folder / "run", "--json").stdout)
    assert found["num_questions"] == 100
    assert found["accuracy"] > 80
    assert found["by_kind"] == {"one fact": found["accuracy"]}
    assert found["fact_precision"] > 40
    assert found["fact_recall"] > 60


def test_answers_are_the_same_however_they_are_asked_for(folder: Path) -> None:
    reader = load(folder / "run")
    story = Story(("Mary went to the cellar.", "John moved to the garden."), "Where is Mary?")
    (told,), (text,) = reader.predict([story]), reader.predict([TEXT])
    assert told.plain() == text.plain()
    assert text.plain()["label"] == "cellar"
    assert sum(text.attention[0].tolist()) == pytest.approx(1, abs=1e-5)
    (folder / "asked.jsonl").write_text(json.dumps({"story": story.sentences, "question": story.question}), "utf-8")
    found = json.loads(call("predict", folder / "run", "--input", folder / "asked.jsonl", "--json").stdout)
    assert found["label"] == "cellar"
    shown = call("predict", folder / "run", "--input", folder / "asked.jsonl", "--attention").stdout
    assert "hop 2" in shown
    assert "Mary went to the cellar." in shown


def test_look_shows_each_hop_over_the_story(folder: Path) -> None:
    (found,) = load(folder / "run").look([TEXT], norms=True)
    seen = found.map()
    assert seen.weight_LHTS.shape == (1, 1, 2, 2)
    torch.testing.assert_close(seen.weight_LHTS[0, 0], found.answer.attention)
    assert found.sides["source"].words == ["Mary went to the cellar.", "John moved to the garden."]
    shown = call("look", folder / "run", TEXT)
    assert shown.exit_code == 0, shown.output
    assert "hop 1" in shown.stdout
    assert "layer: 3 given" in str(call("look", folder / "run", TEXT, "--layer", 3).exception)
    assert "%" not in call("look", folder / "run", TEXT, "--view", "norms").stdout.splitlines()[0]
    for name in ("look.html", "look.png"):
        drawn = call("look", folder / "run", TEXT, "--draw", folder / name)
        assert drawn.exit_code == 0, drawn.output
        assert (folder / name).stat().st_size > 1000


def test_a_server_answers_and_shows_what_was_read(folder: Path) -> None:
    with serving(load_runs([folder / "run"])) as site:
        found = site.post("/v1/answer", q=[TEXT, ""]).json()
        assert found["answers"][0]["label"] == "cellar"
        seen = site.post("/v1/look", text=TEXT).json()
        assert seen["sides"]["hops"]["words"] == ["hop 1", "hop 2"]


@pytest.mark.usefixtures("quick_start")
def test_a_killed_training_ends_with_the_same_weights(folder: Path) -> None:
    training = ("max_steps=8", "save_every=3", "warmup_steps=2", "swap=[[Mary, John, Ruth]]")
    short = [*(f"training.{one}" for one in training), "model.story=recurrent"]
    found = call("train", folder / "answer.yaml", *short, "--verify-resume", "--kills", 1)
    assert found.exit_code == 0, found.output
    assert "the same" in found.output


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("model.score=mean", "mean asks nothing; allowed: every other score"),
        ("model.num_hops=0", "model.num_hops"),
        ("model.tying=tight", "model.tying"),
        ("training.swap=[[Mary]]", "a group of 1 given; allowed: groups of two words or more"),
        ("training.swap=[[Mary, John], [Mary, Ruth]]", "'Mary' given twice; allowed: each word once, in one group"),
        ("training.swap=[[Mary, Nobody]]", "'nobody' given; allowed: single words of the stories"),
        ("data.valid=0.000001", "leaves none for validation"),
        ("data.train=nothing.jsonl", "there is no file at nothing.jsonl"),
    ],
)
def test_mistakes_in_a_config(changed: str, message: str, folder: Path, tmp_path: Path) -> None:
    refused = call("train", folder / "answer.yaml", changed, "--run", tmp_path / "run").exception
    assert isinstance(refused, UserError), refused
    assert message in str(refused)


def test_counts_by_hand() -> None:
    weights = torch.tensor([[0.1, 0.9], [0.7, 0.3]])
    found = [StoryAnswer("a", 0.6, {"a": 0.6}, ("x", "y"), weights)] * 3
    stories = [Story(("x", "y"), "?", "a", (1,), "k"), Story(("w", "x", "y"), "?", "b", (2, 0), "k")]
    counts = AnswerCounts.of([*stories, Story(("x", "y"), "?", "a")], found)
    assert counts.accuracy == pytest.approx(200 / 3)
    assert counts.by_kind == {"": (1, 100.0), "k": (2, 50.0)}
    assert counts.precision == 50  # two of the four hops of the first two stories
    assert counts.recall == pytest.approx(200 / 3)  # and two of their three facts: the first sentence was not read
