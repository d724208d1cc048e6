"""A tagging run from its config: it learns, goes on, predicts and reports; and what is wrong is said in one line."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

import saccade
from saccade.cli import app
from saccade.config import load as config_file
from saccade.config import tag
from saccade.data.columns import Sentence, read_columns
from saccade.data.mistakes import Mistake
from saccade.tasks.tag import evaluation

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
    tagger = saccade.load(folder / "run")
    found = tagger.evaluate([folder / "test.txt"])
    assert found.scores["f1"] > 95
    assert found.scores["num_sentences"] == 150
    assert found.lines[0].startswith("processed ")
    gold = read_columns(folder / "test.txt")
    apart = tagger.predict(one._replace(document=row) for row, one in enumerate(gold))
    assert evaluation([one.tags for one in gold], [one.tags for one in apart], has_spans=True).scores["f1"] < 92


def test_predicting_a_file_and_texts(folder: Path) -> None:
    tagger = saccade.load(folder / "run")
    found = list(tagger.stream(tagger.read(folder / "test.txt")))
    assert len(found) == 150
    (one,) = tagger.predict(["Anna Berg is in Bonn ."])
    assert one.line() == "Anna\tB-PER\nBerg\tI-PER\nis\tO\nin\tO\nBonn\tB-LOC\n.\tO\n"


def test_the_report_has_scores_and_mistakes(folder: Path) -> None:
    page = (folder / "run" / "report.html").read_text("utf-8")
    assert "F1" in page
    examined = tag.examine(config_file.load(folder / "run" / "config.yaml"), saccade.load(folder / "run"))
    assert examined.name == "test"
    assert examined.scores["f1"] > 95


def test_a_killed_run_goes_on_with_the_same_weights(folder: Path, tmp_path: Path) -> None:
    command = ["train", str(folder / "run.yaml"), "training.save_every=2", "training.ema=0.9", "training.metric=loss"]
    for name, steps in (("once", (6,)), ("twice", (3, 6))):
        for count in steps:
            options = [f"training.max_steps={count}", "training.schedule=constant", "--run", str(tmp_path / name)]
            done = RUNNER.invoke(app, [*command, *options])
            assert done.exit_code == 0, done.output
    one, two = (saccade.load(tmp_path / name).network.state_dict() for name in ("once", "twice"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def config_of(root: Path, **sections: dict[str, object]) -> tag.Config:
    data = {"train": f"{root}/train.txt", "valid": f"{root}/valid.txt", **sections.pop("data", {})}
    model = {"width": 8, "word_width": 5, "num_heads": 2, **sections.pop("model", {})}
    training = {"max_steps": 1, "validate_every": 1, **sections.pop("training", {})}
    return config_file.check({"task": "tag", "data": data, "model": model, "training": training}, "x.yaml")


def prepared(root: Path, folder: Path, **sections: dict[str, object]) -> tag.Job:
    return tag.prepare(config_of(root, **sections), folder, Console(quiet=True))


def small(root: Path, train: str = "a B-X\nb O\n", valid: str = "a B-X\n") -> Path:
    (root / "train.txt").write_text(train, "utf-8")
    (root / "valid.txt").write_text(valid, "utf-8")
    return root


@pytest.mark.parametrize("kind", ["recurrent", "transformer"])
@pytest.mark.parametrize(("characters", "crf"), [("cnn", True), ("lstm", False), ("none", True)])
def test_every_kind_takes_a_step(tmp_path: Path, kind: str, characters: str, crf: bool) -> None:
    model: dict[str, object] = {"kind": kind, "characters": characters, "crf": crf, "constrained": crf}
    job = prepared(small(tmp_path), tmp_path / "run", model=model)
    (rows,) = job.plan.epoch(0)
    loss, shown = job.loss(job.plan.load(rows))
    loss.backward()
    assert torch.isfinite(shown)
    job.network.eval()
    assert set(job.validate()) == {
        "score",
        "valid_f1",
        "valid_precision",
        "valid_recall",
        "valid_accuracy",
        "valid_loss",
    }


def test_parts_of_speech_have_accuracy_alone(tmp_path: Path) -> None:
    job = prepared(small(tmp_path, "a DT\nb NN\n", "a DT\n"), tmp_path / "run")
    job.network.eval()
    measured = job.validate()
    assert set(measured) == {"score", "valid_accuracy", "valid_loss"}
    assert measured["score"] == measured["valid_accuracy"]
    by_loss = prepared(tmp_path, tmp_path / "run", training={"metric": "loss"})
    by_loss.network.eval()
    assert by_loss.validate()["score"] < 0


def test_rare_words_are_dropped_more_often(tmp_path: Path) -> None:
    job = prepared(
        small(tmp_path, "a O\na O\na O\nb O\n", "a O\n"), tmp_path / "run", model={"min_count": 1, "word_dropout": 1.0}
    )
    share = job.network.get_buffer("features.unknown_share_V")
    assert share.tolist() == pytest.approx([0, 0, 0, 0, 0.25, 0.5])


def test_vectors_are_put_into_their_words(tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text("A 9 9 9\na 1 2 3\nZebra 4 5 6\n", "utf-8")
    vectors: dict[str, object] = {"vectors": str(tmp_path / "vectors.txt"), "word_width": 3, "min_count": 1}
    job = prepared(small(tmp_path), tmp_path / "run", model=vectors)
    lexicon = tag.Lexicon.load(tmp_path / "run" / tag.LEXICON)
    table = job.network.get_parameter("features.word.weight")
    assert table[lexicon.words.encode("a")[0]].tolist() == [1, 2, 3]  # its own spelling, not the first
    assert table[lexicon.words.encode("zebra")[0]].tolist() == [4, 5, 6]
    with pytest.raises(Mistake, match=r"model\.word_width: 5 given; the vectors in .* have 3 numbers"):
        prepared(tmp_path, tmp_path / "run", model={"vectors": str(tmp_path / "vectors.txt")})


def test_repairs_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of(small(tmp_path, "a I-X\nb B-X\n\nc B-Y\n"))
    tag.prepare(config, tmp_path / "run", Console())
    said = " ".join(capsys.readouterr().out.split())
    assert f"data.train: 1 tags break the scheme and were repaired, the first at {tmp_path}/train.txt:1" in said


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": {"reads_documents": True}}, r"no document of data\.train has two sentences"),
        ({"training": {"metric": "f1"}, "data": {"scheme": "none"}}, "training.metric: 'f1' given; without spans"),
        ({"model": {"kind": "transformer", "num_heads": 3}}, "num_heads: 3 given; it must divide the width, 8"),
        ({"model": {"width": 7}}, "width: 7 given; two directions need an even one"),
        ({"model": {"kind": "bag"}}, r"model: .* given"),
        ({"model": {"widht": 7}}, r"model\.widht: unknown \(did you mean width\?\)"),
        ({"data": {"tag_column": 5}}, r"train\.txt:1: 2 columns; there is no column 5 for the tag"),
        ({"data": {"scheme": "bioes", "word_column": 1, "tag_column": 0}}, "the tag is 'a'; allowed in bioes"),
        ({"data": {"test": "missing.txt"}}, r"data\.test: there is no file at missing\.txt"),
    ],
)
def test_mistakes_in_one_line(tmp_path: Path, sections: dict[str, dict[str, object]], message: str) -> None:
    with pytest.raises(Mistake, match=message) as caught:
        prepared(small(tmp_path), tmp_path / "run", **sections)
    assert "\n" not in str(caught.value)


def test_tags_that_are_not_learned(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match=r"data\.valid: every sentence has a tag that is not in data\.train"):
        prepared(small(tmp_path, valid="a B-Z\n"), tmp_path / "run")
    with pytest.raises(Mistake, match=r"the tags of data\.train spell no spans"):
        prepared(small(tmp_path, "a DT\n", "a DT\n"), tmp_path / "run", training={"metric": "f1"})
    job = prepared(small(tmp_path, valid="a B-Z\n\na O\n"), tmp_path / "run")  # one is left to measure the loss on
    job.network.eval()
    assert job.validate()["valid_recall"] == 0


def test_the_recipes_are_configs() -> None:
    for name in ("conll2003", "wnut17"):
        config = config_file.load(Path(__file__).parents[2] / "configs" / f"{name}.yaml")
        assert isinstance(config, tag.Config)


def test_results_are_json(folder: Path) -> None:
    words = ("Anna", "Berg", "is", "in", "Ulm", ".")
    (found,) = saccade.load(folder / "run").predict([Sentence(words)])
    assert [span["text"] for span in json.loads(json.dumps(found.plain()))["spans"]] == ["Anna Berg", "Ulm"]
