"""A new task, of which only `traits` and `stream` are written: every command works with it, or says why it doesn't."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from runs import rate_task, rated
from saccade.cli import app
from saccade.errors import UserError
from saccade.serving.models import load_runs
from saccade.tasks import TASKS
from saccade.tasks.base import Route
from servers import serving

CONFIG = """\
task: rate
data: {train: FILE, valid: FILE}
training: {max_steps: 100, validate_every: 50, learning_rate: 0.02, warmup_steps: 1}
device: cpu
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("rate")
    (folder / "rated.txt").write_text(rated(1, 100), encoding="utf-8")
    (folder / "rate.yaml").write_text(CONFIG.replace("FILE", str(folder / "rated.txt")), encoding="utf-8")
    with rate_task(), pytest.MonkeyPatch.context() as patch:
        patch.setitem(TASKS, "rate", TASKS["rate"]._replace(examine=None))  # a task may have no part of the report
        found = CliRunner().invoke(app, ["train", str(folder / "rate.yaml"), "--run", str(folder / "run")])
        assert found.exit_code == 0, found.output
        yield folder / "run"


def test_it_has_a_report(run: Path) -> None:
    assert "Curves" in (run / "report.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("look", "RUN", "fine"), "this model has no attention to look at"),
        (("look", "RUN", "fine", "--json"), "this model has no attention to look at"),
        (("look", "RUN", "fine", "--draw", "page.html"), "this model has no attention to look at"),
        (("look", "RUN", "fine", "--kind", "cross"), "--kind: given, but this model's task has no use for it"),
        (("look", "RUN", "fine", "--target", "x"), "--target: given, but this model's task has no use for it"),
        (("look", "RUN", "fine", "--trust"), "trust: this model doesn't read words by attention"),
        (("look", "RUN", "--align", "--input", "x"), "--align: this model's task has no source words"),
        (("predict", "RUN", "--beam", 2), "--beam: given, but this model's task has no use for it"),
        (("predict", "RUN", "--attention"), "--attention: given, but this model's task has no use for it"),
        (("predict", "RUN", "--draw", "x"), "there is nothing to draw for this model's task"),
        (("predict", "RUN", "--ensemble", "RUN"), "models of its task make no ensemble"),
        (("evaluate", "RUN"), "files: none given"),
        (("evaluate", "RUN", "FILE", "--plot", "x.png"), "--plot: there is nothing to draw"),
    ],
)
def test_what_it_has_not_is_said_in_a_sentence(run: Path, arguments: tuple[object, ...], message: str) -> None:
    places = {"RUN": run, "FILE": run.parent / "rated.txt"}
    given = [str(places.get(str(one), one)) for one in arguments]
    refused = CliRunner().invoke(app, given, input=b"a fine film\n").exception
    assert isinstance(refused, UserError), refused
    assert message in str(refused)


def test_a_server_offers_it(run: Path) -> None:
    with serving(load_runs([run])) as served:
        (model,) = served.client.get("/v1/models").json()["models"]
        assert (model["name"], model["task"], model["reads"], model["answers"]) == ("run", "rate", "text", "line")
        assert (model["kinds"], model["views"], model["languages"]) == ([], [], None)
        good, bad = (one["number"] for one in served.post("/v1/rate", q=["great", "poor"]).json()["answers"])
        assert good > 0 > bad
        seen = served.post("/v1/look", text="great").json()
        assert (seen["task"], seen["attention"], seen["line"]) == ("rate", {}, f"{good:.3f}")
        assert "bean: Extra inputs" in served.post("/v1/rate", q="a", bean=1).json()["error"]
        assert served.client.get("/openapi.json").json()["paths"]["/v1/rate"]["post"]["description"] == "Answer texts."
        refused = served.post("/translate", q="fine", source="en", target="fr")
        assert (refused.status_code, refused.json()["error"]) == (
            400,
            "no model of this server has languages; see /v1/models, and POST to /v1/<task>",
        )


def test_a_route_that_reads_something_else_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "rate", TASKS["rate"]._replace(route=Route(reads="picture")))
    with pytest.raises(UserError, match="it reads a text, but the route of its task reads a picture"):
        load_runs([run])


def test_a_task_that_does_not_translate_has_no_languages(run: Path) -> None:
    with pytest.raises(UserError, match="is a run of the task rate, which does not translate"):
        load_runs([run], [f"{run}=en-fr"])
