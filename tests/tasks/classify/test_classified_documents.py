"""Documents: read by their sentences, weighed on two levels, by every command."""

from __future__ import annotations

import io
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner, Result

from saccade.cli import app
from saccade.data.labels.documents import encode_documents, split_document
from saccade.data.labels.labelled import LabelColumns, Text, read_labelled
from saccade.errors import UserError
from saccade.runs.load import load_run as load
from saccade.serving.models import load_runs
from servers import serving

PRAISE, BLAME = ("wonderful", "perfect"), ("dull", "awful")
PLAIN = ("we saw it", "there was a train in it", "it was long", "they went home then", "he has a hat")
SIZES = {"max_steps": 60, "validate_every": 20, "warmup_steps": 5, "learning_rate": 0.02, "precision": "float32"}
TEXT = "We saw it. There was a train in it. It was awful. They went home then."


def document(dice: random.Random) -> dict[str, Any]:
    """The last sentence with an opinion decides; there is another before."""
    label = dice.choice(("pos", "neg"))
    told = [dice.choice(PLAIN) for _ in range(dice.randint(2, 5))]
    said = [f"it was {dice.choice(words)}" for words in ((PRAISE, BLAME) if label == "neg" else (BLAME, PRAISE))]
    first = dice.randint(0, len(told))
    told[first:first] = [said[0]]
    told.insert(dice.randint(first + 1, len(told)), said[1])
    return {"label": label, "sentences": told}


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, files, dice = tmp_path_factory.mktemp("documents"), {}, random.Random(1)
    for name, count in {"train": 500, "valid": 60, "test": 100}.items():
        files[name] = str(folder / f"{name}.jsonl")
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(document(dice))}\n" for _ in range(count)), "utf-8")
    data = {**files, "columns": {"text": "sentences"}, "lowercase": True, "split_punctuation": True}
    config: dict[str, Any] = {"task": "classify", "device": "cpu", "data": data, "training": SIZES}
    config["model"] = {"kind": "bag", "embedding_width": 16, "sentences": {"width": 16}}
    (folder / "documents.yaml").write_text(json.dumps(config), encoding="utf-8")
    found = call("train", folder / "documents.yaml", "--run", folder / "run")
    assert found.exit_code == 0, found.output
    assert "500 texts" in found.output
    assert "sentences a text" in found.output
    return folder


def test_it_learns_which_sentence_counts(folder: Path) -> None:
    """Words in no order can't tell: both opinions stand in each document."""
    found = json.loads(call("evaluate", folder / "run", "--json").stdout)
    assert found["accuracy"] > 90
    flat = call("train", folder / "documents.yaml", "model.sentences=null", "--run", folder / "flat")
    assert flat.exit_code == 0, flat.output
    assert json.loads(call("evaluate", folder / "flat", "--json").stdout)["accuracy"] < 70


def test_sentences_are_encoded_in_parts_and_cut() -> None:
    texts = [Text("a b c d e f g\nh i", "x"), Text("", "y"), Text("One. Two! Three", "?")]
    encoded = encode_documents(
        texts, lambda text: [len(word) + 10 for word in text.split()], ["x", "y"], max_length=3, max_sentences=3
    )
    assert encoded.last.tolist() == [2, 3, 6]
    assert encoded.is_cut.tolist() == [True, False, False]
    assert encoded.label.tolist() == [0, 1, -1]
    batch = encoded.batch([range(2, 3), range(1)])
    assert batch.length_U.tolist() == [1, 1, 1, 3, 3, 1]
    assert batch.window_BW.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert batch.ids_US[:3, 0].tolist() == [14, 14, 15]
    assert batch.label_B.tolist() == [-1, 0]
    assert [rows for _, rows in encoded.batches(2)] == [[1, 0], [2]]


def test_a_list_in_a_file_has_a_sentence_a_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"label": "x", "text": ["so  it. Is .", "", "end"]}\n', "utf-8")
    (text,) = read_labelled([tmp_path / "a.jsonl"], LabelColumns())
    assert split_document(text.text) == ["so it. Is .", "end"]
    (tmp_path / "a.jsonl").write_text('{"label": "x", "text": ["so", {}]}\n', "utf-8")
    with pytest.raises(UserError, match="must be a string"):
        list(read_labelled([tmp_path / "a.jsonl"], LabelColumns()))


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("So it is. It ends! no.\nThe end", ["So it is.", "It ends! no.", "The end"]),
        ("dr. no is it . . . there ? ! yes it . is", ["dr. no is it . . .", "there ? !", "yes it .", "is"]),
        (" \n ", []),
    ],
)
def test_texts_are_split_at_their_signs_and_lines(text: str, sentences: list[str]) -> None:
    assert split_document(text) == sentences


def test_two_levels_of_weights(folder: Path) -> None:
    model = load(folder / "run")
    (found,) = model.predict([TEXT], attention=True, key_terms=1)
    assert found.label == "neg"
    assert " ".join(found.words) == "We saw it . There was a train in it . It was awful . They went home then ."
    assert [found.words[one.first : one.end][-2] for one in found.sentences] == ["it", "it", "awful", "then"]
    assert sum(one.weight for one in found.sentences) == pytest.approx(1, abs=1e-5)
    assert sum(found.weights) == pytest.approx(1, abs=1e-5)
    for one in found.sentences:  # a word's weight is a share of its sentence's
        assert sum(found.weights[one.first : one.end]) == pytest.approx(one.weight, abs=1e-5)
    third = found.sentences[2]
    assert max(range(third.first, third.end), key=found.weights.__getitem__) == found.words.index("awful")
    assert len(found.key_terms) == 1
    alone, *_ = model.predict([TEXT, "Perfect.", ""], attention=True)
    assert alone.probability == pytest.approx(found.probability, abs=1e-6)


def test_a_long_sentence_is_weighed_in_parts(folder: Path) -> None:
    model = load(folder / "run")
    (whole,) = model.predict(["it was long and it was wonderful"], attention=True)
    assert [(one.first, one.end) for one in whole.sentences] == [(0, 7)]
    (parts,) = replace(model, max_length=3).predict(["it was long and it was wonderful"], attention=True)
    assert [(one.first, one.end) for one in parts.sentences] == [(0, 3), (3, 6), (6, 7)]
    assert parts.words == whole.words


def test_an_ensemble_of_documents(folder: Path) -> None:
    one = load(folder / "run")
    both = load(folder / "run", folder / "run")
    first, mean = (model.predict([TEXT], attention=True)[0] for model in (one, both))
    assert mean.weights == pytest.approx(first.weights, abs=1e-6)
    assert [tuple(each) for each in mean.sentences] == [pytest.approx(tuple(each)) for each in first.sentences]
    found = call("evaluate", folder / "run", "--ensemble", folder / "run", "--json")
    assert (
        json.loads(found.stdout)["accuracy"]
        == json.loads(call("evaluate", folder / "run", "--json").stdout)["accuracy"]
    )


def test_look_shows_both_levels(folder: Path) -> None:
    shown = call("look", folder / "run", TEXT)
    assert shown.exit_code == 0, shown.output
    rows = shown.stdout.splitlines()
    assert len(rows) == 5
    assert "%" in rows[3]
    assert "awful:" in rows[3]
    for name in ("look.html", "look.png"):
        drawn = call("look", folder / "run", TEXT, "--draw", folder / name)
        assert drawn.exit_code == 0, drawn.output
        assert (folder / name).stat().st_size > 1000
    (seen,) = load(folder / "run").look([TEXT])
    assert seen.map().weight_LHTS.shape == (1, 1, 1, 20)
    assert len(seen.plain()["answer"]["sentences"]) == 4
    assert "label" not in shown.stdout
    one = call("look", folder / "run", TEXT, "--view", "maximum")
    assert "We" in one.stdout.splitlines()[1]  # the words above, as of other texts
    for view, said in ((("--layer", 3), "layer: 3 given"), (("--view", "norms"), "norms given, but they were not")):
        assert said in str(call("look", folder / "run", TEXT, *view).exception)
    refused = call("look", folder / "run", TEXT, "--kind", "encoder").exception
    assert isinstance(refused, UserError)
    assert "of documents one sees pooling" in str(refused)


def test_lines_end_sentences(folder: Path) -> None:
    (found,) = load(folder / "run").predict(["it was long\n\nit was dull"], attention=True)
    assert [(one.first, one.end) for one in found.sentences] == [(0, 3), (3, 6)]


def test_a_terminal_has_bars(folder: Path) -> None:
    (found,) = load(folder / "run").predict([TEXT], attention=True)
    for encoding, bar in (("utf-8", "█"), ("ascii", "#")):
        file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        found.show(Console(file=file, force_terminal=True, width=60))
        file.seek(0)
        shown = file.read()
        assert bar * 10 in shown
        assert "awful" in shown


def test_report_and_server(folder: Path) -> None:
    report = (folder / "run" / "report.html").read_text("utf-8")
    assert '<ol class="document">' in report
    with serving(load_runs([folder / "run"])) as site:
        found = site.post("/v1/classify", q=[TEXT, ""], attention=True).json()
        assert found["answers"][0]["label"] == "neg"
        assert len(found["answers"][0]["sentences"]) == 4
        seen = site.post("/v1/look", text=TEXT).json()
        assert len(seen["answer"]["sentences"]) == 4


@pytest.mark.usefixtures("quick_start")
@pytest.mark.parametrize("sentences", ["{kind: recurrent, width: 8}", "{kind: transformer, width: 8, num_heads: 2}"])
def test_a_killed_training_ends_with_the_same_weights(folder: Path, sentences: str) -> None:
    short = [f"training.{one}" for one in ("max_steps=8", "save_every=3", "warmup_steps=2")]
    short += [f"model.sentences={sentences}", "model.kind=recurrent", "model.width=8", "model.word_dropout=0.2"]
    found = call("train", folder / "documents.yaml", *short, "--verify-resume", "--kills", 1)
    assert found.exit_code == 0, found.output
    assert "the same" in found.output


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (("model.sentences.pooling=most",), "model.sentences"),
        (("model.sentences.pooling_score=dot", "model.sentences.pooling=mean"), "it has no effect with pooling: mean"),
        (("model.sentences.pooling_score=location", "data.max_sentences=5000"), "data.max_sentences: 5000 given"),
        (("model.sentences=null", "data.max_sentences=7"), "given, but it is for documents (model.sentences)"),
        (("data.columns.dialogue=other", "data.context=2"), "documents (model.sentences) have none before"),
        (("model.sentences.kind=pile",), "model.sentences"),
    ],
)
def test_mistakes_in_a_config(changed: tuple[str, ...], message: str, folder: Path, tmp_path: Path) -> None:
    refused = call("train", folder / "documents.yaml", *changed, "--run", tmp_path / "run").exception
    assert isinstance(refused, UserError), refused
    assert message in str(refused)
    assert not (tmp_path / "run").exists()


def test_the_penalty_of_hops_is_a_mean_over_sentences(folder: Path) -> None:
    hops = {"kind": "recurrent", "width": 8, "pooling": "structured", "num_hops": 2}
    found = call(
        "train",
        folder / "documents.yaml",
        "model.pooling=structured",
        f"model.sentences={json.dumps(hops)}",
        "training.max_steps=3",
        "training.warmup_steps=1",
        "--run",
        folder / "hops",
    )
    assert found.exit_code == 0, found.output
    model = load(folder / "hops")
    one, two = (
        model.encode_all([Text(text)]).batch([range(1)]) for text in ("it was long.", "it was long.\nit was long.")
    )
    with torch.no_grad():
        single, double = model.network(one), model.network(two)
        own = model.network.read(one.ids_US, one.length_U).penalty_B
    weights_BTW = double.sentence_weight_BTW
    overlap_BTT = weights_BTW @ weights_BTW.mT - torch.eye(2)
    torch.testing.assert_close(double.penalty_B - own, overlap_BTT.square().sum((1, 2)))
    assert single.penalty_B > own
