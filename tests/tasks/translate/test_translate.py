"""Text to text from files to scores, as a user runs it: it learns, it resumes, it says what is wrong."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from saccade.cli import app
from saccade.data.text.corpus import Pair
from saccade.errors import UserError
from saccade.runs.load import load_run
from saccade.tasks.translate.scoring import scores
from saccade.tasks.translate.task import Outputs, find_worst

NUMBERS = {"one": "un", "two": "deux", "three": "trois", "four": "quatre"}
NOUNS = {"cat": "chat", "dog": "chien", "book": "livre", "house": "maison", "car": "auto"}
COLOURS = {"red": "rouge", "black": "noir", "white": "blanc"}
RUNNER = CliRunner()


def sentences() -> list[tuple[str, str]]:
    """English to a sort of French: the colour moves behind the noun."""
    rows = itertools.product(NUMBERS, COLOURS, NOUNS, NUMBERS, COLOURS, NOUNS)
    return [
        (
            f"{n} {c} {o} and {m} {d} {p}",
            f"{NUMBERS[n]} {NOUNS[o]} {COLOURS[c]} et {NUMBERS[m]} {NOUNS[p]} {COLOURS[d]}",
        )
        for n, c, o, m, d, p in rows
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("translate")
    rows = sentences()
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1)).tolist()
    for name, part in (("train", order[:2000]), ("valid", order[2000:2100]), ("test", order[2100:2300])):
        for side, language in enumerate(("en", "fr")):
            text = "".join(rows[index][side] + "\n" for index in part)
            (root / f"{name}.{language}").write_text(text, encoding="utf-8")
    (root / "run.yaml").write_text(
        f"""
data:
  train: {{source: {root}/train.en, target: {root}/train.fr}}
  valid: {{source: {root}/valid.en, target: {root}/valid.fr}}
tokenizer: {{kind: words, vocabulary_size: 40}}
model: {{size: tiny, width: 64, num_heads: 2, hidden_width: 128, num_layers: 1, dropout: 0.0}}
training: {{max_steps: 225, tokens_per_batch: 1024, learning_rate: 0.003, warmup_steps: 30, validate_every: 75}}
""",
        encoding="utf-8",
    )
    done = RUNNER.invoke(app, ["train", str(root / "run.yaml"), "--run", str(root / "run")])
    assert done.exit_code == 0, done.output
    return root


def test_it_learns_and_evaluates(folder: Path) -> None:
    arguments = ["evaluate", str(folder / "run"), str(folder / "test.en"), str(folder / "test.fr"), "--json"]
    report = json.loads(RUNNER.invoke(app, arguments).output)
    assert report["num_pairs"] == 200
    assert report["bleu"] > 90
    assert "tok:13a" in report["bleu_signature"]
    assert report["chrf"] > 90


def test_predict_keeps_order_and_blank_lines(folder: Path) -> None:
    text = "two red cat and one black dog\n\n  \nfour white car and one red book\n"
    shown = RUNNER.invoke(app, ["predict", str(folder / "run")], input=text.encode())
    assert shown.output.split("\n") == [
        "deux chat rouge et un chien noir",
        "",
        "",
        "quatre auto blanc et un livre rouge",
        "",
    ]


def test_the_library_gives_scores_and_pieces(folder: Path) -> None:
    (found,) = load_run(folder / "run").predict(["two red cat and one black dog"], width=1)
    assert found.text == "deux chat rouge et un chien noir"
    assert found.pieces == found.text.split()
    assert len(found.log_probabilities) == 8  # </s> too
    assert found.score == pytest.approx(sum(found.log_probabilities) / ((5 + 8) / 6) ** 0.6)


def test_a_finished_run_says_so_and_another_one_is_refused(folder: Path) -> None:
    again = RUNNER.invoke(app, ["train", str(folder / "run.yaml"), "--run", str(folder / "run")])
    assert "is finished: 225 steps" in " ".join(again.output.split())
    other = RUNNER.invoke(app, ["train", str(folder / "run.yaml"), "model.width=32", "--run", str(folder / "run")])
    assert isinstance(other.exception, UserError)
    assert "holds a run with another model" in str(other.exception)


def test_the_log_has_one_line_a_step_that_was_logged(folder: Path) -> None:
    rows = [json.loads(line) for line in (folder / "run" / "log.jsonl").read_text("utf-8").splitlines()]
    steps = [row["step"] for row in rows]
    assert steps == sorted(steps)
    assert len({(row["step"], "loss" in row) for row in rows}) == len(rows)
    assert steps[-1] == 225
    assert (rows[-1]["score"], rows[-1]["valid_exact"]) == (-rows[-1]["valid_wer"], 100)  # of few words: word errors


def test_what_is_not_a_run_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a run folder"):
        load_run(tmp_path)
    (tmp_path / "config.yaml").write_text((folder / "run" / "config.yaml").read_text("utf-8"), "utf-8")
    with pytest.raises(UserError, match=r"no model\.safetensors; training has not reached its first validation"):
        load_run(tmp_path)


def test_changed_training_text_is_noticed(folder: Path, tmp_path: Path) -> None:
    for name in ("train.en", "train.fr", "valid.en", "valid.fr"):
        (tmp_path / name).write_text((folder / name).read_text("utf-8"), "utf-8")
    text = (folder / "run.yaml").read_text("utf-8").replace(str(folder), str(tmp_path))
    (tmp_path / "run.yaml").write_text(text, "utf-8")
    command = ["train", str(tmp_path / "run.yaml"), "--run", str(tmp_path / "run"), "training.save_every=1"]
    assert RUNNER.invoke(app, [*command, "training.max_steps=2"]).exit_code == 0
    with (
        (tmp_path / "train.en").open("a", encoding="utf-8") as one,
        (tmp_path / "train.fr").open("a", encoding="utf-8") as other,
    ):
        one.write("one red cat\n")
        other.write("un chat rouge\n")
    again = RUNNER.invoke(app, [*command, "training.max_steps=3"])
    assert "the training data have changed since this run began" in str(again.exception)


def test_a_missing_report_is_written_when_a_finished_run_is_asked_for(folder: Path) -> None:
    report = folder / "run" / "report.html"
    assert "<svg" in report.read_text("utf-8")
    report.unlink()
    RUNNER.invoke(app, ["train", str(folder / "run.yaml"), "--run", str(folder / "run")])
    assert report.exists()


def test_the_report_counts_parameters_and_pairs(folder: Path) -> None:
    page = (folder / "run" / "report.html").read_text("utf-8")
    model: Any = load_run(folder / "run")
    assert f"{sum(weight.numel() for weight in model.model.parameters()):,}" in page
    assert '<th scope="row" dir="auto">train</th><td class="number">2,000</td>' in page
    summary = json.loads((folder / "run" / "summary.json").read_text("utf-8"))
    assert [(one["name"], one["num_used"]) for one in summary["data"]] == [("train", 2000), ("valid", 100)]


def test_the_worst_outputs_are_those_that_share_least_with_their_references() -> None:
    pairs = [Pair("s1", "a b c d"), Pair("s2", "e f g h"), Pair("s3", "i j k l")]
    found = Outputs("test", pairs, ["a b c d", "wrong", "i j k m"], [], scores.score_texts(["x"], ["x"]), [], {})
    assert find_worst(found) == [pairs[1], pairs[2]]  # the first is right
