"""`saccade compare`: variants of equal size, rates by halving, tests by hand, and a comparison that goes on."""

from __future__ import annotations

import io
import json
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
from rich.console import Console
from typer.testing import CliRunner

from saccade.cli import app
from saccade.errors import NonFiniteLoss, UserError
from saccade.lab.compare import processes, result, statistics, variants, worker
from saccade.lab.compare import run as comparisons
from saccade.lab.compare.statistics import VariantRuns
from saccade.lab.compare.variants import RunOutline, Variant
from saccade.runs import train
from saccade.tasks.tally import COMBINE, bleu
from saccade.tasks.translate.scoring.metrics import METRICS
from saccade.tasks.translate.scoring.tallies import tally

QUIET = Console(quiet=True)
WRITTEN = ["the cat sat on the mat today", "a b", "a dog runs in the big green park", "the cat zz qq", "x"]
WANTED = ["the cat sat on a mat today", "a b c", "the dog runs in the big park", "the cat xx yy", "y z w"]


def config(folder: Path) -> Path:
    rows = [("good" if i % 2 else "bad", f"{'fine' if i % 2 else 'poor'} thing {i % 7}") for i in range(40)]
    (folder / "rows.tsv").write_text(
        "label\ttext\n" + "".join(f"{label}\t{text}\n" for label, text in rows), encoding="utf-8"
    )
    path = folder / "small.yaml"
    path.write_text(
        f"task: classify\ndata: {{train: {folder}/rows.tsv, valid: {folder}/rows.tsv, test: {folder}/rows.tsv}}\n"
        "tokenizer: {kind: words, vocabulary_size: 30}\n"
        "model: {kind: recurrent, embedding_width: 8, width: 8, pooling: attention}\n"
        "training: {max_steps: 8, batch_size: 10, warmup_steps: 1}\n",
        encoding="utf-8",
    )
    return path


def options(path: Path, **changes: Any) -> comparisons.ComparisonOptions:
    usual: dict[str, Any] = {
        "overrides": (),
        "vary": ["model.pooling=attention,mean"],
        "seeds": 2,
        "first": 1,
        "factors": [1.0, 4.0],
        "match": None,
        "tolerance": 0.02,
        "jobs": 2,
        "threads": 1,
    }
    return comparisons.ComparisonOptions(config=path, **{**usual, **changes})


def test_changes_are_all_combinations() -> None:
    found = variants.list_changes(["model.score=dot,additive", "model.text={kind: recurrent, width: 9},null"])
    assert len(found) == 4
    assert found[0] == {"model.score": "dot", "model.text": {"kind": "recurrent", "width": 9}}
    assert variants.name_changes(found[3]) == "score=additive, text=null"
    assert Variant("text={kind: a}, b=1/2", {}, RunOutline(1, 1, 1, 1)).slug == "text=_kind_a_,_b=1_2"


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        (["model.score"], "'model.score' given; it is section.field=value,value"),
        (["model.score=dot"], "takes two or more different values of model.score"),
        (["model.score=dot,dot"], "takes two or more different values"),
        (["model.score={a"], "is not a list of YAML values"),
        (["a.b=1,2", "a.b=3,4"], "one field is given twice"),
        (["a.b=" + ",".join(map(str, range(11))), "a.c=" + ",".join(map(str, range(11)))], "121 combinations given"),
    ],
)
def test_wrong_variations_are_one_line(vary: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        variants.list_changes(vary)


def test_sizes_are_matched() -> None:
    def build(changes: Mapping[str, Any]) -> RunOutline:
        width = changes["model.width"]
        if width % 4:
            raise UserError("model.width: it must be a multiple of four")
        return RunOutline(100 * width, 0.1, 8, 4)

    one = Variant("score=a", {}, RunOutline(6400, 0.1, 8, 4))
    found = variants.match_size(one, build, "model.width", 64, 10_000, 0.02)
    assert found.changes == {"model.width": 100}
    assert found.name == "score=a, width=100"
    assert variants.match_size(one, build, "model.width", 64, 2_000, 0.02).changes == {"model.width": 20}
    assert variants.match_size(one, build, "model.width", 64, 6_500, 0.02) is one
    with pytest.raises(UserError, match=r"10,200 parameters at model.width=.*allowed: 0.5%|nothing nearer"):
        variants.match_size(one, build, "model.width", 64, 10_200, 0.005)
    with pytest.raises(UserError, match="a larger one makes no larger model"):
        variants.match_size(one, lambda _: RunOutline(6400, 0.1, 8, 4), "data.max_length", 64, 10_000, 0.02)


def test_budgets_halve_the_rates() -> None:
    assert comparisons.plan_budgets(4, 1000) == [250, 500]
    assert comparisons.plan_budgets(3, 600) == [150, 300]
    assert comparisons.plan_budgets(1, 600) == []


def test_bleu_of_sums_is_sacrebleus() -> None:
    rows = tally("bleu", WRITTEN, WANTED)
    assert rows is not None
    for part in ([0, 1, 2, 3, 4], [0, 2], [3], [4], [1, 4]):
        expected = sacrebleu.BLEU(force=True).corpus_score([WRITTEN[i] for i in part], [[WANTED[i] for i in part]])
        assert bleu(rows.row_NK[part].sum(0)) == pytest.approx(expected.score, abs=1e-9)


@pytest.mark.parametrize("metric", ["exact", "wer", "rouge", "rouge1", "rouge2"])
def test_other_metrics_are_ratios_of_sums(metric: str) -> None:
    rows = tally(metric, WRITTEN, WANTED)
    assert rows is not None
    assert COMBINE[rows.combine](rows.row_NK.sum(0)) == pytest.approx(METRICS[metric](WRITTEN, WANTED))
    assert tally("chrf", WRITTEN, WANTED) is None


def made(rate: float, num_seeds: int = 3, num_examples: int = 400, seed: int = 0) -> VariantRuns:
    """Runs that are right with a probability."""
    right = (np.random.default_rng(seed).random((num_seeds, num_examples)) < rate).astype(float)
    return VariantRuns([float(100 * row.mean()) for row in right], np.stack([right, np.ones_like(right)], -1))


def test_intervals_and_tests_tell_a_difference_from_chance() -> None:
    one, alike, better = made(0.8, seed=1), made(0.8, seed=2), made(0.9, seed=3)
    drawn = statistics.draw_again([one, alike, better])
    found = statistics.interval(0, drawn[2] - drawn[0])
    assert 3 < found.low < found.high < 17
    none = statistics.interval(0, drawn[1] - drawn[0])
    assert none.low < 0 < none.high
    assert statistics.permute(better, one) < 0.01
    assert statistics.permute(alike, one) > 0.05
    assert statistics.permute(one, one) == 1
    spread = float(np.std(drawn[0]))  # of a share of 0.8 in 400 examples: 2; the mean of three runs varies less
    assert 0.8 < spread < 2.5


def test_seeds_alone_are_dealt_in_all_ways() -> None:
    assert statistics.permute(VariantRuns([1, 2, 3, 4]), VariantRuns([5, 6, 7, 8])) == pytest.approx(2 / 70)
    assert statistics.permute(VariantRuns([1, 2]), VariantRuns([1, 2])) == 1


def test_p_of_several_tests_grows() -> None:
    assert statistics.correct([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[worker.Errand]:
    """Errands are done in this process, one after another, and kept."""
    done = list[worker.Errand]()

    def ask(worker_there: processes.Worker, what: str, *given: Any) -> Any:
        del worker_there
        if what == "outline":
            return variants.outline(*given)
        done.append(worker.Errand(*given))
        return worker.train(done[-1])

    monkeypatch.setattr(processes.Worker, "_ask", ask)
    return done


def test_a_comparison_is_tuned_scored_and_goes_on(tmp_path: Path, here: list[worker.Errand]) -> None:
    path, out = config(tmp_path), tmp_path / "out"
    found = comparisons.run(options(path, jobs=1), out, QUIET)
    assert [(row["name"], len(row["scores"])) for row in found["variants"]] == [
        ("pooling=attention", 2),
        ("pooling=mean", 2),
    ]
    assert found["metric"] == "accuracy"
    assert found["num_examples"] == 40
    assert found["budgets"] == [4]
    first, second = found["variants"]
    assert first["better"] is None
    assert second["better"]["low"] <= second["better"]["value"] <= second["better"]["high"]
    assert 0 < second["p"] <= second["p_holm"] <= 1
    assert [errand.stop for errand in here] == [4, 4, 4, 4, None, None, None, None]  # a rate of each seed is trained on
    assert json.loads((out / "compare.json").read_text("utf-8")) == json.loads(json.dumps(found))
    assert {"compare.md", "compare.png", "compare.svg", "scores", "plan.json"} < {one.name for one in out.iterdir()}
    here.clear()
    again = comparisons.run(options(path, jobs=1), out, QUIET)
    assert here == []  # all of it is known
    assert again == found
    (out / "scores" / "pooling=mean-2.json").unlink()
    assert comparisons.run(options(path, jobs=1), out, QUIET)["variants"][1]["scores"] == second["scores"]
    assert len(here) == 1
    with pytest.raises(UserError, match="holds a comparison with other factors; give another folder"):
        comparisons.run(options(path, factors=[1.0]), out, QUIET)


def test_when_time_is_up_the_table_is_of_whole_seeds(
    tmp_path: Path, here: list[worker.Errand], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out, clock = config(tmp_path), tmp_path / "out", [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def run(num_runs: int) -> dict[str, Any]:
        here.clear()
        clock[0] = 0.0
        return comparisons.run(options(path, jobs=1, seeds=4, minutes=num_runs / 60), out, QUIET)

    train = worker.train

    def train_for_a_second(errand: worker.Errand) -> bool:
        clock[0] += 1
        return train(errand)

    monkeypatch.setattr(worker, "train", train_for_a_second)
    for num_runs in (0, 3):
        with pytest.raises(UserError, match="--minutes: over before learning rates were chosen; the same command"):
            run(num_runs)
    with pytest.raises(UserError, match="--minutes: over when 1 seeds were done"):
        run(4)  # the last rate, and three runs of two variants
    found = run(2)
    assert len(here) == 2
    assert found["seeds"] == [1, 2]
    assert [len(row["scores"]) for row in found["variants"]] == [2, 2]
    assert run(9)["seeds"] == [1, 2, 3, 4]


def test_an_error_ends_one_run_and_not_the_others(
    tmp_path: Path, here: list[worker.Errand], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out, errors = config(tmp_path), tmp_path / "out", [RuntimeError("no memory is left")]
    train = worker.train

    def fail(errand: worker.Errand) -> bool:
        if errors and "mean" in errand.folder and errand.folder.endswith("-2"):
            raise errors[0]
        return train(errand)

    monkeypatch.setattr(worker, "train", fail)
    said = r"1 of 6 runs ended with an error, twice; the others are done, .* the first: no memory is left"
    with pytest.raises(RuntimeError, match=said):
        comparisons.run(options(path, jobs=1, seeds=3), out, QUIET)
    assert len(list((out / "scores").iterdir())) == 5
    errors.clear()
    here.clear()
    assert comparisons.run(options(path, jobs=1, seeds=3), out, QUIET)["seeds"] == [1, 2, 3]
    assert len(here) == 1


@pytest.mark.usefixtures("quick_start")
def test_a_process_that_ended_is_begun_again(tmp_path: Path) -> None:
    place = processes.Worker({})
    path = str(config(tmp_path))

    def build() -> int:
        return place.outline(path, [], {}, None).max_steps

    try:
        assert build() == 8
        assert place.child is not None
        place.child.kill()
        place.child.wait()
        with pytest.raises(RuntimeError, match="ended with exit code -9; what it said stands above"):
            build()
        assert build() == 8
    finally:
        place.close()


def test_time_is_made_equal_by_steps(
    tmp_path: Path, here: list[worker.Errand], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = config(tmp_path), tmp_path / "out"
    paces = {"attention": 0.1, "mean": 0.2}
    monkeypatch.setattr(comparisons, "read_pace", lambda folder: paces[folder.parent.name.removeprefix("pooling=")])
    found = comparisons.run(options(path, jobs=1, equal="time"), out, QUIET)
    assert found["steps"] == {"pooling=attention": 8, "pooling=mean": 4}
    trained = {(Path(errand.folder).parent.name, errand.changes["training.max_steps"]) for errand in here[4:]}
    assert trained == {("pooling=attention", 8), ("pooling=mean", 4)}
    assert all("-4" in Path(errand.folder).name for errand in here[4:] if errand.changes["training.max_steps"] == 4)
    assert "Steps: 4 to 8, as many as take the time of pooling=attention." in " ".join(result.describe(found))
    with pytest.raises(UserError, match="--equal: time given; it needs two or more --rates"):
        comparisons.run(options(path, factors=[1.0], equal="time"), tmp_path / "other", QUIET)


def test_a_pace_is_the_usual_one(tmp_path: Path) -> None:
    rows = [
        (1, 9.0),
        (11, 1.0),
        (21, 1.0),
        (21, 0.5),
        (31, 4.0),
    ]  # a slow start, a validation, others' work
    (tmp_path / "log.jsonl").write_text(
        "".join(json.dumps({"step": step, "seconds": seconds, "loss": 1.0}) + "\n" for step, seconds in rows), "utf-8"
    )
    assert comparisons.read_pace(tmp_path) == pytest.approx(0.1)


@pytest.mark.parametrize("width", [80, 200])
def test_the_table_cuts_no_name(width: int) -> None:
    row = ["880,937", "0.002", "12", "77.31", "76.20 to 78.35", "-0.53", "-1.12 to +0.21", "0.123"]
    names = [f"pooling_score={score}, pooling_normalizer=entmax15" for score in ("additive", "reduced_rank")]
    console = Console(width=width, record=True, file=io.StringIO())
    head = [heading.format(metric="accuracy") for heading in result.HEADINGS]
    result.show(head, [[name, *row] for name in names], console)
    shown = console.export_text()
    assert all(name in shown for name in names)
    assert shown.count("880,937") == shown.count("-1.12 to +0.21") == 2
    assert all(value in shown.splitlines()[-1] for value in row[3:])


@pytest.mark.usefixtures("quick_start")
def test_one_process_trains_one_run_after_another(tmp_path: Path) -> None:
    path, shared = str(config(tmp_path)), tmp_path / "tokenizers"
    place = processes.Worker({"SACCADE_PLACE": "1"})
    try:
        outline = place.outline(path, ["training.learning_rate=0.25"], {"model.width": 12}, str(shared))
        assert outline.rate == 0.25
        assert place.child is not None
        began = place.child.pid
        (learned,) = shared.iterdir()
        words = json.loads(learned.read_text("utf-8"))
        learned.write_text(json.dumps(words, indent=3), encoding="utf-8")  # it can be told from one that a run learns
        errand = worker.Errand(path, [], {"training.validate_every": 4}, str(tmp_path / "run"), tokenizers=str(shared))
        with pytest.raises(UserError, match=r"model.width: 0 given"):
            place.train(errand._replace(changes={"model.width": 0}))
        assert place.train(errand._replace(stop=4))
        assert list(comparisons.read_scores(tmp_path / "run")) == [4]
        assert place.train(errand._replace(score=str(tmp_path / "score.json")))
        assert place.child.pid == began
    finally:
        place.close()
    assert place.child.returncode == -signal.SIGTERM  # as it does when the comparison is killed
    assert json.loads((tmp_path / "score.json").read_text("utf-8"))["metric"] == "accuracy"
    assert (tmp_path / "run" / learned.name).read_bytes() == learned.read_bytes()
    assert not (tmp_path / "run" / "report.html").exists()


def test_a_run_whose_loss_is_not_finite_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*_: object, **__: object) -> None:
        raise NonFiniteLoss("the loss is nan")

    monkeypatch.setattr(train, "train", lose)
    assert not worker.train(worker.Errand(str(config(tmp_path)), [], {}, str(tmp_path / "run")))


def test_variants_of_a_model_share_tokenizers() -> None:
    assert variants.share_tokenizers(["model.score", "training.ema"])
    assert not variants.share_tokenizers(["model.score", "data.lowercase"])


def test_what_is_wrong_is_told_before_anything_is_trained(tmp_path: Path, here: list[worker.Errand]) -> None:
    path, out = config(tmp_path), tmp_path / "out"
    for changes, said in (
        ({"seeds": 1}, "--seeds: 1 given; allowed: 2 or more"),
        ({"vary": ["model.poolin=a,b"]}, "model.poolin: unknown"),
        ({"vary": ["model.pooling=attention,none"]}, "model.pooling"),
        ({"match": "model.pooling"}, "--match: model.pooling given, which --vary changes"),
        ({"match": "model.kind"}, "allowed: a field with a whole number"),
    ):
        with pytest.raises(UserError, match=said):
            comparisons.run(options(path, **changes), out, QUIET)
        assert not out.exists()
    assert here == []


def test_a_loss_that_is_never_finite_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes.Worker, "train", lambda *_: False)
    monkeypatch.setattr(processes.Worker, "outline", lambda *_: RunOutline(100, 0.1, 8, 4))
    with pytest.raises(UserError, match=r"pooling=attention: no learning rate of .* gives a score"):
        comparisons.run(options(config(tmp_path)), tmp_path / "out", QUIET)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--vary: missing"),
        (["--vary", "model.pooling=attention,mean", "--rates", "1,x"], "--rates: '1,x' given"),
        (["--vary", "model.pooling=attention,mean", "--rates", "1,-2"], "--rates: '1,-2' given"),
    ],
)
def test_the_command_refuses_in_one_line(tmp_path: Path, arguments: list[str], said: str) -> None:
    found = CliRunner().invoke(app, ["compare", str(config(tmp_path)), *arguments])
    assert isinstance(found.exception, UserError)
    assert said in str(found.exception)
