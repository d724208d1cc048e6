"""CONTRIBUTING's walk-throughs work as they are printed: a score, a task, a kernel."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from cases import DTYPES, MASK_NAMES, MASKS, NORMALIZER_NAMES, random_inputs
from runs import rate_task, rated
from saccade import attend
from saccade.attention import scores
from saccade.attention.call import resolve
from saccade.attention.kernels.select import Kernel
from saccade.attention.scores import Score
from saccade.cli import app
from saccade.errors import UserError
from saccade.ops.precision import widen
from saccade.runs.load import load_run
from saccade.serving.models import load_runs
from servers import serving

ROOT = Path(__file__).parents[1]
RUNNER = CliRunner()


def code_of(section: str) -> str:
    """The first Python block of a section of CONTRIBUTING."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split(f"## {section}\n")[1]
    return textwrap.dedent(re.findall(r"^ *```python\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)[0])


@pytest.fixture
def distance() -> type[Score]:
    names = {**vars(scores), "widen": widen}
    exec(code_of("Add a score"), names)
    made = names["Distance"]
    assert isinstance(made, type)
    assert issubclass(made, Score)
    return made


def test_the_score_of_the_walk_through_is_its_equation(distance: type[Score]) -> None:
    query, key, value = random_inputs(2, num_queries=3, num_keys=5, width=7, value_width=11)
    score = distance(7, 7).double()
    torch.nn.init.constant_(score.get_parameter("beta"), 0.5)
    expected = [[-0.5 * np.linalg.norm(q - k) for k in key[0].numpy()] for q in query[0].numpy()]
    np.testing.assert_allclose(score(query, score.memory(key))[0].detach(), expected, atol=1e-12)
    attend(query, key, value, score=score).sum().backward()
    beta = score.get_parameter("beta")
    assert beta.grad is not None
    assert beta.grad.abs() > 0


@pytest.mark.parametrize("normalizer", NORMALIZER_NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_it_works_in_every_precision_and_for_heads(distance: type[Score], normalizer: str, dtype: str) -> None:
    inputs = random_inputs(2, 3, num_queries=5, num_keys=7, width=4, value_width=4, dtype=DTYPES[dtype])
    score = distance(4, 4, heads=(3,)).to(DTYPES[dtype])
    for make in MASKS.values():
        assert attend(*inputs, score=score, normalizer=normalizer, mask=make(2, 5, 7)).isfinite().all()


def test_the_kernel_of_the_walk_through_is_an_equal_of_the_equation() -> None:
    names: dict[str, object] = {}
    exec(code_of("Add a kernel"), names)
    kernel = Kernel("plain_dot", names["REASON"], names["run"], names["refuses"], pays=None)  # type: ignore[arg-type]
    inputs = random_inputs(2, 3, num_queries=5, num_keys=7, width=4, value_width=6, dtype=torch.float32)
    accepted = 0
    for name in MASK_NAMES:
        options = {"mask": MASKS[name](2, 5, 7), "score": "scaled_dot", "normalizer": "softmax", "bias": None}
        call = resolve(*inputs, **options, memory=None, dropout=0.0, return_weights=True, return_log_probability=False)  # type: ignore[arg-type]
        if kernel.refuses(call) is None:
            accepted += 1
            found = kernel.run(call)
            expected, weights = attend(*inputs, mask=options["mask"], return_weights=True, backend="reference")  # type: ignore[call-overload]
            torch.testing.assert_close(found.output, expected)
            torch.testing.assert_close(found.weights, weights)
    assert accepted == 1  # the full mask


@pytest.fixture
def rate() -> Iterator[ModuleType]:
    """The example, in the table of tasks."""
    with rate_task() as module:
        yield module


def test_every_command_works_with_the_task_of_the_walk_through(rate: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "rate.train").write_text(rated(1, 300), encoding="utf-8")
    (tmp_path / "rate.valid").write_text(rated(2, 40), encoding="utf-8")
    yaml = re.findall(r"```yaml\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL)[0]
    yaml = textwrap.dedent(yaml).replace("rate.train", f"{tmp_path}/rate.train")
    config, run = tmp_path / "rate.yaml", str(tmp_path / "run")
    config.write_text(yaml.replace("rate.valid", f"{tmp_path}/rate.valid") + "device: cpu\n", encoding="utf-8")

    shown = RUNNER.invoke(app, ["train", str(config), "--run", run], catch_exceptions=False)
    assert shown.exit_code == 0, shown.output
    assert "mean squared error" not in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    found = RUNNER.invoke(app, ["predict", run, "--json"], input="a great film\na poor plot\n").stdout.splitlines()
    good, bad = (json.loads(line)["number"] for line in found)
    assert good == pytest.approx(1.0, abs=0.3)  # 'a' is unknown, 'film' is worth 0
    assert bad == pytest.approx(-1.0, abs=0.3)
    scores = json.loads(RUNNER.invoke(app, ["evaluate", run, f"{tmp_path}/rate.valid", "--json"]).stdout)
    assert scores["error"] < 0.1  # of all zeros: 0.4
    with pytest.raises(UserError, match="no attention to look at"):
        RUNNER.invoke(app, ["look", run, "a fine film"], catch_exceptions=False)
    with pytest.raises(UserError, match="--beam: given, but this model's task has no use for it"):
        RUNNER.invoke(app, ["predict", run, "--beam", "2"], input="", catch_exceptions=False)
    with serving(load_runs([Path(run)])) as server:
        answer = server.post("/v1/rate", q=["a great film"]).json()["answers"][0]
        assert answer["number"] == pytest.approx(good)
        assert server.client.get("/").status_code == 200
        assert server.post("/v1/look", text="a great film").json()["line"] == f"{good:.3f}"
    assert isinstance(load_run(run), rate.Rater)


def test_a_wrong_line_of_the_example_is_refused_with_its_number(rate: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("1 fine\nfine\n", encoding="utf-8")
    with pytest.raises(UserError, match="bad, line 2: 'fine' given"):
        rate.read_rated(str(tmp_path / "bad"))
