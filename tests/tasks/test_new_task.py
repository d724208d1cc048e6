"""A new task is one folder and one line of the table `TASKS`; every command then works, or says why it doesn't.

Here the folder is the first half of this file: a number for each text, by a bag of words.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

import pytest
import torch
from pydantic import Field
from rich.console import Console
from torch import Tensor, nn
from typer.testing import CliRunner

from saccade.cli import app
from saccade.config.base import RunSection, Section, TrainingSection
from saccade.data.batches import ShuffledBatches
from saccade.data.text.corpus import read_raw_lines
from saccade.errors import UserError
from saccade.serving.models import load_runs
from saccade.tasks import TASKS
from saccade.tasks.base import Evaluation, Job, Predictor, Result, Task, Traits, Watch, several, unwatched
from saccade.tasks.devices import trained
from servers import serving

WORDS = "words.json"


class RateData(Section):
    """Where rated texts come from."""

    train: str = Field(description="A number, a tab and a text a line.")


class RateConfig(RunSection):
    """A whole run, one YAML file."""

    task: Literal["rate"]
    data: RateData
    model: None = None
    training: TrainingSection = TrainingSection()


class RatedBatch(NamedTuple):
    """How often each word stands in each text [B, V], and the texts' numbers."""

    count_BV: Tensor
    number_B: Tensor

    @property
    def num_items(self) -> int:
        return len(self.number_B)

    def to(self, device: torch.device) -> RatedBatch:
        return RatedBatch(self.count_BV.to(device), self.number_B.to(device))


@dataclass(frozen=True)
class Rating(Result):
    """A number."""

    number: float

    def line(self) -> str:
        return f"{self.number:.2f}"

    def plain(self) -> dict[str, Any]:
        return {"number": self.number}


@final
@dataclass(frozen=True)
class Rater(Predictor):
    """What `saccade.load` returns for a run of ratings."""

    network: nn.Module
    words: list[str]

    traits = Traits("rate")

    @torch.no_grad()
    def stream(self, inputs: Iterable[str], /) -> Iterator[Rating]:
        return (Rating(float(self.network(self.count(text)))) for text in several(inputs))

    def evaluate(self, paths: Sequence[Path], /, *, watch: Watch = unwatched) -> Evaluation:
        rows = [row for path in paths for row in read(path)]
        found = watch(self.stream(text for _, text in rows), len(rows))
        error = sum(abs(one.number - number) for one, (number, _) in zip(found, rows, strict=True)) / len(rows)
        return Evaluation({"error": error}, [f"mean error {error:.3f}"])

    def count(self, text: str) -> Tensor:
        return torch.tensor([text.split().count(word) for word in self.words], dtype=torch.float)


def read(path: Path | str) -> list[tuple[float, str]]:
    rows = (line.split("\t") for line in read_raw_lines(Path(path)))
    return [(float(number), text) for number, text in rows]


def prepare(config: RateConfig, folder: Path, console: Console) -> Job:
    del folder, console
    rows = read(config.data.train)
    words = sorted({word for _, text in rows for word in text.split()})
    rater = Rater(nn.Linear(len(words), 1), words)

    def load_batch(chosen: Any) -> RatedBatch:
        some = [rows[row] for row in chosen]
        counts = [rater.count(text) for _, text in some]
        return RatedBatch(torch.stack(counts), torch.tensor([number for number, _ in some]))

    def loss(batch: RatedBatch) -> tuple[Tensor, Tensor]:
        found = (rater.network(batch.count_BV)[:, 0] - batch.number_B).square().sum()
        return found, found.detach()

    def validate() -> dict[str, float]:
        return {"score": -rater.evaluate([Path(config.data.train)]).scores["error"]}

    plan = ShuffledBatches(len(rows), size=4, seed=config.seed, load=load_batch)
    return Job(rater.network, plan, loss, validate, [str(rows)], {WORDS: json.dumps(words)}, unit="texts")


def load(config: RateConfig, folder: Path) -> Rater:
    words = json.loads((folder / WORDS).read_text("utf-8"))
    return Rater(trained(nn.Linear(len(words), 1), config, folder), words)


# what the task's author writes ends here; the line of the table is in the fixture


TEXTS = "1\tfine\n-1\tbad\n2\tfine fine\n0\tfine bad\n-2\tbad bad\n"
CONFIG = """\
task: rate
data: {train: TRAIN}
training: {max_steps: 300, validate_every: 100, learning_rate: 0.05, warmup_steps: 1, precision: float32}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("rate")
    (folder / "train.tsv").write_text(TEXTS, encoding="utf-8")
    (folder / "rate.yaml").write_text(CONFIG.replace("TRAIN", str(folder / "train.tsv")), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TASKS, "rate", Task(RateConfig, prepare, load))
        saccade("train", folder / "rate.yaml", "--run", folder / "run")
        yield folder / "run"


def saccade(*arguments: object, said: str = "") -> str:
    """The output of a command, or with `said` its refusal."""
    found = CliRunner().invoke(app, [*map(str, arguments)], input=b"fine\nbad\n")
    if said:
        assert isinstance(found.exception, UserError), found.output
        assert said in str(found.exception)
    else:
        assert found.exit_code == 0, f"{found.output}\n{found.exception!r}"
    return found.stdout


def test_it_learns_and_has_a_report(run: Path) -> None:
    assert json.loads(saccade("evaluate", run, run.parent / "train.tsv", "--json"))["error"] < 0.1
    assert saccade("evaluate", run, run.parent / "train.tsv").startswith("mean error 0.0")
    assert (run / "report.html").exists()


def test_it_answers_line_by_line(run: Path) -> None:
    first, second = map(float, saccade("predict", run).split())
    assert [first, second] == pytest.approx([1, -1], abs=0.3)
    rows = [json.loads(line) for line in saccade("predict", run, "--json").splitlines()]
    assert [f"{row['number']:.2f}" for row in rows] == [f"{first:.2f}", f"{second:.2f}"]


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
    places = {"RUN": run, "FILE": run.parent / "train.tsv"}
    saccade(*(places.get(str(one), one) for one in arguments), said=message)


def test_a_server_offers_it(run: Path) -> None:
    with serving(load_runs([run])) as served:
        (model,) = served.client.get("/v1/models").json()["models"]
        assert (model["name"], model["task"], model["reads"], model["answers"]) == ("run", "rate", "text", "line")
        assert (model["kinds"], model["views"], model["languages"]) == ([], [], None)
        answers = served.post("/v1/rate", q=["fine", "bad"]).json()["answers"]
        assert [round(one["number"]) for one in answers] == [1, -1]
        seen = served.post("/v1/look", text="fine").json()
        assert (seen["task"], seen["attention"], seen["line"]) == ("rate", {}, f"{answers[0]['number']:.2f}")
        assert "bean: Extra inputs" in served.post("/v1/rate", q="a", bean=1).json()["error"]
        assert served.client.get("/openapi.json").json()["paths"]["/v1/rate"]["post"]["description"] == "Answer texts."
        refused = served.post("/translate", q="fine", source="en", target="fr")
        assert (refused.status_code, refused.json()["error"]) == (400, "en is not supported")


def test_one_that_translates_nothing_has_no_languages(run: Path) -> None:
    with pytest.raises(UserError, match="is a run of the task rate, which translates nothing"):
        load_runs([run], [f"{run}=en-fr"])
