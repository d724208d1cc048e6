"""A tagger learns what only a document tells; its run goes on when killed, predicts and reports."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from saccade.cli import app
from saccade.data.tags.columns import TaggedSentence, read_columns
from saccade.runs import config as config_file
from saccade.runs.load import load_run
from saccade.tasks.tag import task
from saccade.tasks.tag.predictor import evaluation

RUNNER = CliRunner()
FIRST, LAST = ("Anna", "Otto", "Ida", "Emil"), ("Berg", "Wald", "Stein", "Bach")
CITIES = ("Bonn", "Ulm", "Trier", "Jena")


def document(chance: random.Random, number: int) -> str:
    """A headline in capitals whose name only the text tells: "IDA WINS" may be a person or a place.

    Its names are found nowhere else, so that neither the words nor their letters say what they are.
    """
    name = "".join(chance.choice("abcdefghij") for _ in range(5)).capitalize() + str(number % 10)
    is_person = chance.random() < 0.5
    kind = "PER" if is_person else "LOC"
    verb = chance.choice(("wins", "waits"))
    head = f"-DOCSTART- O\n\n{name.upper()} B-{kind}\n{verb.upper()} O\n\n"
    other = f"{chance.choice(FIRST)} B-PER\n{chance.choice(LAST)} I-PER\nis O\nin O\n{chance.choice(CITIES)} B-LOC\n"
    told = f"Mr O\n{name} B-PER\nsaid O\nso O\n" if is_person else f"they O\nlive O\nin O\n{name} B-LOC\n"
    return head + other + ". O\n\n" + told + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, chance = tmp_path_factory.mktemp("tag"), random.Random(1)
    for name, count in (("train", 150), ("valid", 25), ("test", 50)):
        text = "".join(document(chance, number) for number in range(count))
        (root / f"{name}.txt").write_text(text, "utf-8")
    (root / "run.yaml").write_text(
        f"""
task: tag
data: {{train: {root}/train.txt, valid: {root}/valid.txt, test: {root}/test.txt}}
model: {{width: 32, word_width: 16, character_width: 8, shape_width: 4, reads_documents: true, dropout: 0.1}}
training: {{max_steps: 90, batch_size: 10, learning_rate: 0.02, warmup_steps: 10, schedule: cosine,
  validate_every: 45}}
""",
        "utf-8",
    )
    done = RUNNER.invoke(app, ["train", str(root / "run.yaml"), "--run", str(root / "run")])
    assert done.exit_code == 0, done.output
    assert "data.train: 450 sentences in 150 documents" in " ".join(done.output.split())
    return root


def test_it_learns_what_only_the_document_tells(folder: Path) -> None:
    """Alone, a headline doesn't say what its name is: of 200 spans, 50 are right by even chance, an F1 of 87.5."""
    tagger = load_run(folder / "run")
    found = tagger.evaluate([folder / "test.txt"])
    assert found.scores["f1"] > 95
    assert found.scores["num_sentences"] == 150
    assert found.lines[0].startswith("processed ")
    gold = read_columns(folder / "test.txt")
    apart = tagger.predict(one._replace(document=row) for row, one in enumerate(gold))
    assert evaluation([one.tags for one in gold], [one.tags for one in apart], has_spans=True).scores["f1"] < 92


def test_predicting_a_file_and_texts(folder: Path) -> None:
    tagger = load_run(folder / "run")
    found = list(tagger.stream(tagger.read(folder / "test.txt")))
    assert len(found) == 150
    (one,) = tagger.predict(["Anna Berg is in Bonn ."])
    assert one.line() == "Anna\tB-PER\nBerg\tI-PER\nis\tO\nin\tO\nBonn\tB-LOC\n.\tO\n"


def test_the_report_has_scores_and_mistakes(folder: Path) -> None:
    page = (folder / "run" / "report.html").read_text("utf-8")
    assert "F1" in page
    examined = task.examine(config_file.load_config(folder / "run" / "config.yaml"), load_run(folder / "run"))
    assert examined.name == "test"
    assert examined.scores["f1"] > 95


def test_a_killed_run_goes_on_with_the_same_weights(folder: Path, tmp_path: Path) -> None:
    command = ["train", str(folder / "run.yaml"), "training.save_every=2", "training.ema=0.9", "training.metric=loss"]
    for name, steps in (("once", (6,)), ("twice", (3, 6))):
        for count in steps:
            options = [f"training.max_steps={count}", "training.schedule=constant", "--run", str(tmp_path / name)]
            done = RUNNER.invoke(app, [*command, *options])
            assert done.exit_code == 0, done.output
    one, two = (load_run(tmp_path / name).network.state_dict() for name in ("once", "twice"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_results_are_json(folder: Path) -> None:
    words = ("Anna", "Berg", "is", "in", "Ulm", ".")
    (found,) = load_run(folder / "run").predict([TaggedSentence(words)])
    assert [span["text"] for span in json.loads(json.dumps(found.plain()))["spans"]] == ["Anna Berg", "Ulm"]
