"""A tagging run from its config: every kind, repairs, vectors; what is wrong is said in one line."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from rich.console import Console

from saccade.data.tags.lexicon import Lexicon
from saccade.errors import UserError
from saccade.runs import config as config_file
from saccade.runs import train
from saccade.runs.load import load_run
from saccade.tasks.base import Job
from saccade.tasks.tag import task
from saccade.tasks.tag.config import TagConfig
from saccade.tasks.tag.data import read_sets


def config_of(root: Path, **sections: dict[str, object]) -> TagConfig:
    data = {"train": f"{root}/train.txt", "valid": f"{root}/valid.txt", **sections.pop("data", {})}
    model = {"width": 8, "word_width": 5, "num_heads": 2, "reads_documents": False, **sections.pop("model", {})}
    training = {"max_steps": 1, "validate_every": 1, **sections.pop("training", {})}
    return config_file.check_config({"task": "tag", "data": data, "model": model, "training": training}, "x.yaml")


def prepared(root: Path, folder: Path, **sections: dict[str, object]) -> Job:
    return task.prepare(config_of(root, **sections), folder, Console(quiet=True))


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
    assert [count[:2] for count in job.counts] == [("data.train", 1), ("data.valid", 1)]
    job.network.eval()
    measured = job.validate()
    assert set(measured) == {"score", "valid_accuracy", "valid_loss"}
    assert measured["score"] == measured["valid_accuracy"]
    by_loss = prepared(tmp_path, tmp_path / "run", training={"metric": "loss"})
    by_loss.network.eval()
    assert by_loss.validate()["score"] < 0


def test_further_columns_are_learned_from(tmp_path: Path) -> None:
    """The words say nothing: only the second column tells the tag."""
    lines = ["same up A\nsame down B\n", "same down B\nsame up A\nsame up A\n"] * 20
    small(tmp_path, "\n".join(lines), "\n".join(lines[:2]))
    config = config_of(
        tmp_path,
        data={"feature_columns": [1]},
        model={"width": 16, "dropout": 0.0},
        training={"max_steps": 60, "validate_every": 60, "learning_rate": 0.02, "warmup_steps": 5},
    )
    train.train(config, tmp_path / "run", Console(quiet=True))
    model = load_run(tmp_path / "run")
    assert model.evaluate([tmp_path / "valid.txt"]).scores["accuracy"] == 100
    (tmp_path / "x.tsv").write_text("same\tdown\tA\nsame\tup\tA\n")
    assert [one.tags for one in model.predict(model.read(tmp_path / "x.tsv"))] == [("B", "A")]
    assert [one.tags for one in model.predict(["same down\n\nsame\tup", "same up", ""])] == [("B", "A"), ("A",), ()]
    assert model.traits.columns == ("column 1",)
    with pytest.raises(UserError, match=r"sentence 2, line 1: 1 column; this model reads a word, column 1"):
        model.predict(["same up", "same"])
    with pytest.raises(UserError, match=r"this model reads words with 1 further column \(data.feature_columns\)"):
        model.predict([["same", "same"]])


def test_words_and_tags_in_two_files(tmp_path: Path) -> None:
    for name, lines in (("words", "up down\nup\n" * 20), ("tags", "A B\nA\n" * 20)):
        (tmp_path / name).write_text(lines)
    pair = {"words": f"{tmp_path}/words", "tags": f"{tmp_path}/tags"}
    training: dict[str, object] = {"max_steps": 40, "validate_every": 40, "learning_rate": 0.02, "warmup_steps": 5}
    config = config_of(tmp_path, data={"train": pair, "valid": pair}, training=training)
    train.train(config, tmp_path / "run", Console(quiet=True))
    model = load_run(tmp_path / "run")
    assert model.evaluate([tmp_path / "words", tmp_path / "tags"]).scores["accuracy"] == 100
    with pytest.raises(UserError, match="files: 1 given; allowed: two, one with words and one with tags"):
        model.evaluate([tmp_path / "words"])
    with pytest.raises(UserError, match="words and tags in files apart have no columns"):
        config_of(tmp_path, data={"train": pair, "valid": pair, "feature_columns": [1]})


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
    (tmp_path / "lexicon.json").write_text(job.stored[task.LEXICON], "utf-8")
    lexicon = Lexicon.load(tmp_path / "lexicon.json")
    table = job.network.get_parameter("features.word.weight")
    assert table[lexicon.words.encode("a")[0]].tolist() == [1, 2, 3]  # its own spelling, not the first
    assert table[lexicon.words.encode("zebra")[0]].tolist() == [4, 5, 6]
    with pytest.raises(UserError, match=r"model\.vectors: .*\*\.txt stands for 3 files; there must be one"):
        prepared(tmp_path, tmp_path / "run", model={"vectors": f"{tmp_path}/*.txt"})
    with pytest.raises(UserError, match=r"model\.word_width: 5 given; the vectors in .* have 3 numbers"):
        prepared(tmp_path, tmp_path / "run", model={"vectors": str(tmp_path / "vectors.txt")})


def test_repairs_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of(small(tmp_path, "a I-X\nb B-X\n\nc B-Y\n"))
    task.prepare(config, tmp_path / "run", Console())
    said = " ".join(capsys.readouterr().out.split())
    assert f"data.train: tags that break the scheme were repaired: 1, the first at {tmp_path}/train.txt:1" in said


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": {"reads_documents": True}}, r"no document of data\.train has two sentences"),
        ({"training": {"metric": "f1"}, "data": {"scheme": "none"}}, "training.metric: 'f1' given; without spans"),
        ({"model": {"kind": "transformer", "num_heads": 3}}, "num_heads: 3 given; it must divide the width, 8"),
        ({"model": {"width": 7}}, "width: 7 given; two directions need an even width"),
        ({"model": {"characters": "none", "character_width": 9}}, "character_width: 9 given; it has no effect with"),
        ({"model": {"max_vectors": 9}}, "max_vectors: 9 given; it has no effect without vectors"),
        ({"model": {"kind": "transformer", "width": 6, "positions": "rotary"}}, "it needs heads of an even width"),
        ({"model": {"kind": "bag"}}, r"model: .* given"),
        ({"model": {"widht": 7}}, r"model\.widht: unknown \(did you mean width\?\)"),
        ({"data": {"tag_column": 5}}, r"train\.txt:1: the line has 2 columns; there is no column 5 for the tag"),
        ({"data": {"scheme": "bioes", "word_column": 1, "tag_column": 0}}, "the tag is 'a'; allowed in bioes"),
        ({"data": {"test": "missing.txt"}}, r"data\.test: there is no file at missing\.txt"),
    ],
)
def test_mistakes_in_one_line(tmp_path: Path, sections: dict[str, dict[str, object]], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        prepared(small(tmp_path), tmp_path / "run", **sections)
    assert "\n" not in str(caught.value)


def test_tags_that_are_not_learned(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.valid: every sentence has a tag that is not in data\.train"):
        prepared(small(tmp_path, valid="a B-Z\n"), tmp_path / "run")
    with pytest.raises(UserError, match=r"the tags of data\.train spell no spans"):
        prepared(small(tmp_path, "a DT\n", "a DT\n"), tmp_path / "run", training={"metric": "f1"})
    job = prepared(small(tmp_path, valid="a B-Z\n\na O\n"), tmp_path / "run")  # one is left to measure the loss on
    job.network.eval()
    assert job.validate()["valid_recall"] == 0


def test_the_recipes_are_configs() -> None:
    for name in ("conll2003", "wnut17"):
        config = config_file.load_config(Path(__file__).parents[3] / "configs" / f"{name}.yaml")
        assert isinstance(config, TagConfig)


def test_a_part_of_the_sentences_is_held_out(tmp_path: Path) -> None:
    sentences = [f"word{number} B-X\nend O\n\n" for number in range(20)]
    small(tmp_path, "".join(sentences + sentences))
    said = Console(record=True, width=200, file=io.StringIO())
    config = config_of(tmp_path, data={"valid": 10})
    job = task.prepare(config, tmp_path / "run", said)
    assert [count[:2] for count in job.counts] == [("data.train", 30), ("data.valid", 10)]
    line = said.export_text().splitlines()[0]
    assert line == "data.valid: 10 of the 40 sentences of data.train, chosen by a hash of the words (10)"
    words = {name: {one.words for one in part.sentences} for name, part in read_sets(config).repaired.items()}
    assert not words["data.train"] & words["data.valid"]
    train.train(config, tmp_path / "run", Console(quiet=True))
    assert task.examine(config, load_run(tmp_path / "run")).name == "valid"
