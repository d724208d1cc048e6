"""Experiments of the lab: verdicts by the stated rule, files and pages; and parts of them by hand."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from saccade.cli import app
from saccade.errors import UserError
from saccade.inspection.draw.panels import Axes, BandCurve, to_file
from saccade.lab import run as experiments
from saccade.lab.claims import (
    bottleneck,
    cost,
    explanation,
    forgetting,
    glimpses,
    gradients,
    hard,
    local,
    order,
    penalty,
    scale,
    stragglers,
    width,
)
from saccade.lab.claims.phrases import alignment, heads, pairs, smoothing, translator
from saccade.lab.experiment import Check, Experiment, Measurements, Panel, slope
from saccade.lab.table import EXPERIMENTS

PAGES = Path(__file__).parents[2] / "docs" / "lab"
TOLD = "name", "question", "claim", "source", "setup", "prediction"


def made(**checks: tuple[float, float]) -> Experiment:
    """An experiment whose numbers are the seed, and twice the seed."""
    told: dict[str, Any] = dict.fromkeys(TOLD, "one")
    return Experiment(
        **told,
        checks=[Check(number, number, *bounds) for number, bounds in checks.items()],
        panels={"line": Panel("Line", "x", "y", log_across=True, log_up=True)},
        measure=lambda seed, _: Measurements(
            {"line": {"a": [(1, seed), (2, 2 * seed)]}}, {"low": seed, "high": 2 * seed}
        ),
        minutes="no time",
    )


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        ((1, 3), (2, 6), "holds"),
        ((1, 2.5), (2, 6), "holds in part"),  # one seed is enough to miss a check
        ((1.5, 3), (7, 9), "not found here"),
    ],
)
def test_the_verdict_follows_its_rule(low: tuple[float, float], high: tuple[float, float], verdict: str) -> None:
    one = made(low=low, high=high)
    found, findings = one.judge([one.measure(seed, False) for seed in (1, 2, 3)])
    assert found == verdict
    assert [finding.values for finding in findings] == [[1, 2, 3], [2, 4, 6]]


def test_a_result_is_written_and_shown(tmp_path: Path) -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    result = experiments.run(
        made(low=(1, math.inf)), seeds=3, first=1, is_full=False, out=tmp_path / "one", console=console
    )
    stored = json.loads((tmp_path / "one" / "result.json").read_text("utf-8"))
    assert stored == json.loads(json.dumps(result))
    assert stored["verdict"] == "holds"
    assert stored["seeds"] == [1, 2, 3]
    assert stored["checks"] == [
        {
            "number": "low",
            "says": "low",
            "least": 1,
            "mean": 2,
            "lowest": 1,
            "highest": 3,
            "values": [1, 2, 3],
            "met": True,
        }
    ]
    assert stored["panels"]["line"]["a"][2] == [[1, 3], [2, 6]]
    assert (tmp_path / "one" / "one.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "one" / "one.svg").read_text("utf-8")
    shown = console.export_text()
    assert "Verdict: holds (1 of 1 checks met for every seed)" in shown
    assert "at least 1" in shown
    assert "seed 2: low 2" in shown


def test_one_or_two_seeds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--seeds: 2 given; allowed: 3 or more"):
        experiments.run(made(), seeds=2, first=1, is_full=False, out=tmp_path, console=Console(quiet=True))
    assert not list(tmp_path.iterdir())


def test_a_band_is_the_mean_and_the_range_of_the_seeds() -> None:
    band = BandCurve.of([[(1, 2.0), (2, 5.0), (3, 1.0)], [(1, 4.0), (2, 1.0)]])
    assert band == BandCurve([1, 2], [3.0, 3.0], [2.0, 1.0], [4.0, 5.0])


def test_panels_are_drawn_in_rows(tmp_path: Path) -> None:
    band = BandCurve([1.0, 2.0], [1.0, 10.0], [0.9, 9.0], [1.1, 11.0])
    for count in (1, 3, 4):
        drawn = [(Axes("title", "x", "y", log_up=bool(count % 2)), {"a": band, "b": band})] * count
        to_file(tmp_path / f"{count}.png", drawn, title="A question that is longer than one picture is wide, or not?")
        assert (tmp_path / f"{count}.png").stat().st_size > 5000


def test_slopes_and_exponents() -> None:
    assert slope([(0, 1), (1, 3), (2, 5)]) == pytest.approx(2)
    assert cost.exponent([(n, 7 * n**1.5) for n in (1, 2, 4, 8)]) == pytest.approx(1.5)


def test_operations_are_counted() -> None:
    """A matrix product of [n, d] and [d, m] has n d m multiplications and as many additions."""
    assert cost.count_operations(cost.make("self-attention"), 64, 16) == 2 * (2 * 64 * 64 * 16)
    assert cost.count_operations(cost.make("recurrent", width=16), 64, 16) == 2 * (2 * 64 * 16 * 16)
    assert cost.count_operations(cost.make("convolution", width=16, kernel=3), 64, 16) == 2 * 3 * 64 * 16 * 16


@pytest.mark.parametrize(
    ("kind", "length", "layers"),
    [
        ("self-attention", 33, 1),
        ("restricted", 33, 8),  # four places a layer
        ("convolution", 33, 16),  # two places a layer
        ("dilated convolution", 25, 2),  # up to 4, then up to 4 + 20 places
        ("dilated convolution", 26, 3),
    ],
)
def test_layers_until_the_ends_meet(kind: str, length: int, layers: int) -> None:
    torch.manual_seed(1)
    assert cost.count_layers(kind, length) == layers


def test_the_longest_chain_of_a_graph() -> None:
    x = torch.ones(2, requires_grad=True)
    short = x * 2  # the leaf, and one operation
    assert cost._longest_chain(short) == 2
    assert cost._longest_chain((x * 2 + 1) * short) == 4


def test_gradients_are_those_of_the_equation() -> None:
    """Of h_t = tanh(w x_t + u h_t-1) with one unit: a product of the derivatives."""
    cells: Any = torch.nn.RNN(1, 1, batch_first=True)
    x_BTD = torch.randn(1, 5, 1, requires_grad=True)
    states = cells(x_BTD)[0]
    (grad,) = torch.autograd.grad(states[:, -1].sum(), x_BTD)
    slopes = (1 - states.detach()[0, :, 0] ** 2).tolist()
    w, u = cells.weight_ih_l0.item(), cells.weight_hh_l0.item()
    expected = [w * math.prod(slopes[at:]) * u ** (4 - at) for at in range(5)]
    assert grad[0, :, 0].tolist() == pytest.approx(expected, rel=1e-5)
    assert {"RNN", "GRU", "LSTM", "self-attention"} < set(gradients._models())


def test_the_task_of_scale_is_learned_by_the_scaled_product() -> None:
    assert scale.learn("scaled_dot", 64, seed=3, num_steps=150) < 0.3
    assert scale.learn("scaled_dot", 64, seed=3, num_steps=20) > 1.0  # a guess has 2.77


def test_machines_take_the_next_file_or_their_share() -> None:
    random = np.random.default_rng(1)
    cluster = stragglers.Cluster(np.array([1.0, 0.25]), 0.0)
    work = [2.0, 1.0, 1.0, 1.0]
    assert stragglers._finish([work], cluster, random) == 4.0  # 2 and two of 1, beside one that takes 4
    assert stragglers._finish([work[:2], work[2:]], cluster, random) == 8.0


def test_a_failure_costs_what_was_done() -> None:
    hours = [stragglers._answer(1.0, 2.0, np.random.default_rng(seed)) for seed in range(4000)]
    assert np.mean(hours) == pytest.approx((np.exp(2.0) - 1) * (0.5 + stragglers.RESTART), rel=0.05)


SMALL: dict[Any, dict[str, Any]] = {  # sizes at which an experiment takes no time, and what it finds says nothing
    bottleneck: {"STEPS": 2, "TESTED": 4},
    forgetting: {"STEPS": 2, "TESTED": 4},
    hard: {"STEPS": 30, "DRAWS": 3},
    local: {"STEPS": 2},
    order: {"STEPS": 2, "TESTED": 4},
    penalty: {"STEPS": 2, "TESTED": 4},
    scale: {"AVERAGED": 2},
    width: {"STEPS": 2, "LEARNING_WIDTHS": (16, 1024)},
    heads: {"STEPS": 2, "TRAIN": 200, "TESTED": 4},
    alignment: {"STEPS": 2, "TRAIN": 200, "TESTED": 4},
    explanation: {"STEPS": 2, "TRAIN": 64, "TESTED": 2},
    smoothing: {"STEPS": 2, "SHORT_STEPS": 2, "WINDOW": 1, "TRAIN": 200, "TESTED": 2},
    glimpses: {"STEPS": 2, "TRAIN": 16, "TESTED": 4, "SIDES": (40, 80), "REPEATS": 1},
}


@pytest.mark.parametrize("name", [module.__name__.rpartition(".")[2] for module in SMALL if module is not scale])
def test_an_experiment_measures_what_it_checks_and_draws(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, sizes in SMALL.items():
        for size, value in sizes.items():
            monkeypatch.setattr(module, size, value)
    one = EXPERIMENTS[name]
    measured = one.measure(1, False)
    assert set(measured.panels) == set(one.panels)
    assert {check.number for check in one.checks} <= set(measured.numbers)
    assert one.judge([measured])[0] in ("holds", "holds in part", "not found here")
    assert all(math.isfinite(value) for value in measured.numbers.values())


def test_words_that_always_meet_are_linked() -> None:
    found = [(np.array([5, 6]), np.array([8, 9])), (np.array([7, 5]), np.array([9, 10]))] * 5
    assert pairs.find_dictionary(found) == {5: 9, 6: 8, 7: 10}
    phrases = pairs.Phrases([], [], 0, 0, {5: 9, 6: 8})
    assert phrases.link(np.array([5, 6, 7]), np.array([8, 3, 9])) == {(0, 2), (1, 0)}
    assert phrases.link(np.array([5, 5]), np.array([9])) == set()  # which of the two is not known
    assert pairs.split("L'homme, est-il là ?") == ["l'", "homme", ",", "est", "-", "il", "là", "?"]


def test_a_pruned_head_gives_nothing_and_comes_back() -> None:
    torch.manual_seed(1)
    phrases = pairs.make(50, 3, 1)
    network = translator.make_transformer(phrases).eval()
    (first, *_) = listed = heads.list_heads(network, "cross")
    assert len(listed) == translator.LAYERS * translator.HEADS
    x_BTD, memory_BSD = torch.randn(1, 3, translator.WIDTH), torch.randn(1, 4, translator.WIDTH)
    with torch.no_grad():
        whole = first.attention(x_BTD, memory_BSD)
        with heads.disable_heads(listed[: translator.HEADS]):
            assert torch.equal(first.attention(x_BTD, memory_BSD)[0, 0], first.attention.output.bias)
        with heads.disable_heads([first]):
            assert not torch.allclose(first.attention(x_BTD, memory_BSD), whole, atol=1e-3)
        assert torch.equal(first.attention(x_BTD, memory_BSD), whole)


def test_looking_costs_what_is_looked_at() -> None:
    reader = glimpses.SmallGlimpser()
    assert glimpses.count_operations(reader, 40) == glimpses.count_operations(reader, 160)
    convolutions = glimpses.make_convolutions()
    pixels = 2 * 9 * glimpses.CHANNELS * (1 + glimpses.CHANNELS)  # multiplications and additions of each
    assert glimpses.count_operations(convolutions, 40) == pixels * 1600 + 2 * glimpses.CHANNELS * 10


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_a_page_with_its_verdict(name: str) -> None:
    one, page = EXPERIMENTS[name], (PAGES / f"{name}.md").read_text("utf-8")
    joined = " ".join(page.split())
    for field in ("question", "claim", "source", "setup", "prediction"):
        assert getattr(one, field) in joined, field
    assert f"saccade lab {name}" in page
    assert f"seeds 1 to {one.seeds}" in page.split("**Verdict: ")[1].splitlines()[0]
    assert f"![{one.question}]({name}.png)" in page
    assert (PAGES / f"{name}.png").exists()
    assert all(check.says in joined for check in one.checks)
    assert f"[{name}]({name}.md)" in (PAGES / "README.md").read_text("utf-8")


def test_the_command_lists_and_runs(tmp_path: Path) -> None:
    runner = CliRunner()
    listed = json.loads(runner.invoke(app, ["lab", "--json"]).stdout)
    assert [row["name"] for row in listed] == list(EXPERIMENTS)
    for name in EXPERIMENTS:
        assert name in runner.invoke(app, ["lab"]).stdout
    command = ["lab", "gradients", "--seeds", "3", "--json", "--out", str(tmp_path / "out")]
    found = json.loads(runner.invoke(app, command).stdout)
    assert found["verdict"] == "holds"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "gradients.png",
        "gradients.svg",
        "result.json",
    ]
    refused = runner.invoke(app, ["lab", "gradients", "--seeds", "1"])
    assert refused.exit_code != 0
