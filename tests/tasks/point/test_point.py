"""Pointing, from the command line: every command, what one learns in a few steps, and what is refused."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from typer.testing import CliRunner, Result

from saccade.cli import app
from saccade.errors import UserError
from saccade.runs.load import load_run as load
from saccade.serving.models import load_runs
from saccade.tasks.point.predictor import Pointer
from saccade.tasks.point.problems import PROBLEMS, Example, collate, draw_examples, find_hull, parse_example
from servers import serving

TEXT = "0.1,0.1 0.9,0.2 0.5,0.4 0.8,0.9 0.2,0.7"
CONFIG: dict[str, Any] = {
    "task": "point",
    "device": "cpu",
    "data": {"problem": "sort", "sizes": [3, 5], "test_sizes": [3, 5], "num_valid": 40, "num_test": 40},
    "model": {"width": 32, "num_layers": 1, "num_heads": 2},
    "training": {"max_steps": 60, "validate_every": 30, "learning_rate": 0.01, "warmup_steps": 10, "batch_size": 32},
}


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("point")
    (folder / "sort.yaml").write_text(json.dumps(CONFIG), encoding="utf-8")
    found = call("train", folder / "sort.yaml", "--run", folder / "run")
    assert found.exit_code == 0, found.output
    hull: dict[str, object] = {"training.max_steps": 4, "training.validate_every": 4, "data.problem": "hull"}
    overrides = [f"{name}={value}" for name, value in hull.items()]
    found = call(
        "train", folder / "sort.yaml", "model.encoder=rnn", "model.cell=lstm", *overrides, "--run", folder / "hull"
    )
    assert found.exit_code == 0, found.output
    return folder


def test_it_learns_to_sort(folder: Path) -> None:
    """By chance one order of six is right, and one of 120."""
    found = json.loads(call("evaluate", folder / "run", "--json").stdout)
    assert found["exact"] > 90
    assert [one["num_problems"] for one in found["sizes"]] == [40, 40]
    assert "3 elements:" in call("evaluate", folder / "run").stdout


def turn(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return float(a[0] * b[1] - a[1] * b[0])


def test_hulls_have_all_corners_and_no_others() -> None:
    for one in draw_examples("hull", 9, 50, np.random.default_rng(3)):
        corners = one.value_SC[one.places]
        turns = [
            turn(b - a, c - b)
            for a, b, c in zip(corners, np.roll(corners, -1, 0), np.roll(corners, -2, 0), strict=True)
        ]
        assert min(turns) > 0  # always to the left
        assert one.places[0] == min(range(9), key=lambda place: tuple(one.value_SC[place]))
        for point in one.value_SC:
            sides = zip(corners, np.roll(corners, -1, 0), strict=True)
            assert all(turn(b - a, point - a) >= -1e-12 for a, b in sides)
    assert find_hull(np.array([[0.5, 0.5], [0.1, 0.1], [0.9, 0.9]])) == [1, 2]  # a line


@pytest.mark.parametrize("kind", ["run", "hull"])
def test_searches_agree(kind: str, folder: Path) -> None:
    pointer = load(folder / kind)
    assert isinstance(pointer, Pointer)
    problem = CONFIG["data"]["problem"] if kind == "run" else "hull"
    given = [one for size in (3, 5, 4) for one in draw_examples(problem, size, 3, np.random.default_rng(size))]
    together = pointer.predict(given, width=3, num_best=2)
    for one, found in zip(given, together, strict=True):
        (alone,) = pointer.predict([one], width=3)
        assert alone.places == found.places
        assert len(set(found.places)) == len(found.places)
        assert found.others[0].score <= found.score
        (greedy,) = pointer.predict([one])
        assert greedy.score <= alone.score + 1e-5
        assert sum(greedy.log_probabilities) == pytest.approx(greedy.score)


def test_a_wide_beam_finds_the_likeliest_of_all_orders(folder: Path) -> None:
    pointer = load(folder / "hull")
    assert isinstance(pointer, Pointer)
    (one,) = draw_examples("hull", 3, 1, np.random.default_rng(8))
    (found,) = pointer.predict([one], width=60)
    best = -math.inf
    for count in range(4):
        for places in itertools.permutations(range(3), count):
            batch = collate([Example(one.value_SC, list(places))])
            weight_TS = pointer.network(batch.source_BSC, batch.source_length_B, batch.read_BT)[0].detach()
            best = max(best, float(weight_TS.gather(1, batch.place_BT[0][:, None]).log().sum()))
    assert found.score == pytest.approx(best, abs=1e-4)


@pytest.mark.parametrize("kind", ["run", "hull"])
def test_padding_changes_nothing_and_the_weights_are_the_output(kind: str, folder: Path) -> None:
    pointer = load(folder / kind)
    assert isinstance(pointer, Pointer)
    small, large = (draw_examples(pointer.kind, size, 1, np.random.default_rng(size))[0] for size in (3, 7))
    both, alone = collate([small, large]), collate([small])
    with torch.no_grad():
        weight_BTS = pointer.network(both.source_BSC, both.source_length_B, both.read_BT)
        weight_1TS = pointer.network(alone.source_BSC, alone.source_length_B, alone.read_BT)
    steps = weight_1TS.shape[1]
    torch.testing.assert_close(weight_BTS[:1, :steps, :4], weight_1TS)
    torch.testing.assert_close(weight_1TS.sum(-1), torch.ones(1, steps))
    (found,) = pointer.predict([small], attention=True)
    assert found.weight_TS is not None
    at_place = [float(row[place]) for row, place in zip(found.weight_TS, [*found.places, 3], strict=True)]
    assert [math.exp(one) for one in found.log_probabilities] == pytest.approx(at_place, abs=1e-5)


def test_commands_say_the_same(folder: Path) -> None:
    (folder / "asked.txt").write_text("0.4 0.25 0.9\n\n", encoding="utf-8")
    lines = call("predict", folder / "run", "--input", folder / "asked.txt", "--json").stdout.splitlines()
    found = json.loads(lines[0])
    assert sorted(found["pieces"]) == ["0.250", "0.400", "0.900"]
    assert [found["pieces"][row] for row in range(3)] == [
        ["0.400", "0.250", "0.900"][place] for place in found["places"]
    ]
    assert json.loads(lines[1])["text"] == ""
    (folder / "mine.txt").write_text("0.4 0.25 0.9\n0.1 0.2\n", encoding="utf-8")
    scores = json.loads(call("evaluate", folder / "run", folder / "mine.txt", "--json").stdout)
    assert [one["size"] for one in scores["sizes"]] == [2, 3]
    shown = call("predict", folder / "run", "--input", folder / "asked.txt", "--attention").stdout
    assert "0.900" in shown


def test_look_draws_points_in_their_plane(folder: Path) -> None:
    (seen,) = load(folder / "hull").look([TEXT], norms=True)
    assert seen.map("cross").weight_LHTS.shape[:2] == (1, 1)
    for picture in (folder / "hull.png", folder / "hull.html"):
        assert call("look", folder / "hull", TEXT, "--draw", picture).exit_code == 0
        assert picture.stat().st_size > 1000
    assert call("look", folder / "run", "0.4 0.25 0.9", "--draw", folder / "sort.png").exit_code == 0
    report = (folder / "hull" / "report.html").read_text("utf-8")
    assert "exactly right" in report
    assert "<img" in report


@pytest.mark.usefixtures("quick_start")
def test_a_killed_training_ends_with_the_same_weights(folder: Path) -> None:
    found = call("train", folder / "sort.yaml", "--verify-resume")
    assert found.exit_code == 0, found.output


def test_a_server_answers(folder: Path) -> None:
    with serving(load_runs([folder / "hull"])) as site:
        first, blank = site.post("/v1/point", q=[TEXT, ""]).json()["answers"]
        assert first["text"] == load(folder / "hull").predict([TEXT])[0].line()
        assert blank["text"] == ""
        seen = site.post("/v1/look", text=TEXT).json()
        assert seen["sides"]["source"]["words"][-1] == "</s>"
        refused = site.post("/v1/point", q="0.1")
        assert refused.status_code == 400
        assert "'0.1' given" in refused.json()["error"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0.1,0.2 x 0.3,0.4", "'x' given; allowed: points such as 0.31,0.75, from 0 to 1"),
        ("0.1 0.2 0.3", "'0.1' given; allowed: points"),
        ("0.1,2 0.3,0.4 0.5,0.6", "'0.1,2' given"),
        ("0.1,0.2 0.3,0.4", "2 given; a hull needs 3 or more"),
        ("0.1,0.2 0.3,0.4 0.1,0.2", "two are alike"),
        ("nan,0.2 0.3,0.4 0.1,0.3", "'nan,0.2' given"),
    ],
)
def test_wrong_elements_are_refused_in_a_line(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse_example(text, "hull")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("data.sizes=[9,3]", "the first must not be above the second"),
        ("data.test_sizes=[600]", "600 given; allowed: with problem: sort from 1 to 500"),
        ("model.score=mean", "it points nowhere"),
        ("model.num_heads=3", "it must divide the width, 32"),
        ("data.problem=knapsack", "input should be 'sort' or 'hull'"),
    ],
)
def test_wrong_configs_are_refused_in_a_line(override: str, said: str, folder: Path) -> None:
    found = call("train", folder / "sort.yaml", override, "--run", folder / "wrong")
    assert isinstance(found.exception, UserError), found.output
    assert said in str(found.exception)
    assert not (folder / "wrong").exists()


def test_every_problem_has_an_example_of_its_text() -> None:
    from saccade.tasks.point.predictor import SAMPLES

    for name, problem in PROBLEMS.items():
        assert parse_example(SAMPLES[problem.width], name).places
