"""The config of a classifier: every part is built, what can't be is refused, and a run goes on exactly."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from saccade.config.base import HeldOutPart
from saccade.data.kept import keep_what_is_read
from saccade.data.text.corpus import find_files
from saccade.data.text.headers import ODD
from saccade.errors import UserError
from saccade.runs import config as config_file
from saccade.runs import train
from saccade.runs.load import load_run
from saccade.tasks.classify import texts
from saccade.tasks.classify.config import ClassifyConfig
from saccade.tasks.classify.task import examine, load, prepare

CONSOLE = Console(quiet=True)
ROWS = [("1", "A", "is it ?", "question"), ("1", "B", "yes .", "answer"), ("2", "B", "it is .", "claim")] * 6


def written(folder: Path, **changes: dict[str, Any]) -> Path:
    """A config of a tiny run, with its data; each change is merged into its section."""
    rows = ["\t".join(row) for row in ROWS]
    (folder / "a.tsv").write_text("\n".join(rows), "utf-8")
    content: dict[str, Any] = {
        "task": "classify",
        "device": "cpu",
        "data": {
            "train": str(folder / "a.tsv"),
            "valid": str(folder / "a.tsv"),
            "columns": {"dialogue": 0, "speaker": 1, "text": 2, "label": 3},
        },
        "model": {"embedding_width": 6, "width": 8, "dropout": 0.1},
        "training": {"max_steps": 4, "batch_size": 5, "validate_every": 2, "save_every": 2, "precision": "float32"},
    }
    for name, change in changes.items():
        content[name] = {**content.get(name, {}), **change}
    (folder / "config.yaml").write_text(json.dumps(content), "utf-8")
    return folder / "config.yaml"


def config_of(folder: Path, **changes: dict[str, Any]) -> ClassifyConfig:
    config = config_file.load_config(written(folder, **changes))
    assert isinstance(config, ClassifyConfig)
    return config


@pytest.mark.parametrize("context", [0, 2])
@pytest.mark.parametrize(
    "model",
    [
        {"kind": "bag", "pooling": "max", "width": None},
        {"kind": "recurrent", "cell": "lstm", "pooling": "last", "num_layers": 2, "context": "lstm"},
        {"kind": "recurrent", "pooling_score": "scaled_dot", "pooling_normalizer": "sparsemax", "direction": "forward"},
        {"kind": "transformer", "num_heads": 2, "pooling": "structured", "num_hops": 3, "context": "attention"},
        {"kind": "transformer", "num_heads": 2, "positions": "learned", "pooling": "mean", "context_width": 5},
    ],
    ids=lambda model: "-".join(map(str, model.values())),
)
def test_every_part_trains_and_is_loaded_again(tmp_path: Path, model: dict[str, Any], context: int) -> None:
    path = written(tmp_path, model=model, data={"context": context})
    content = json.loads(path.read_text("utf-8"))
    content["model"] = {name: value for name, value in content["model"].items() if value is not None}
    path.write_text(json.dumps(content), "utf-8")
    config = config_file.load_config(path)
    train.train(config, tmp_path / "run", CONSOLE)
    predictor = load_run(tmp_path / "run")
    assert predictor.labels == ["answer", "claim", "question"]
    found = predictor.predict(
        list(predictor.read(tmp_path / "a.tsv")), attention=model["pooling"] != "last" if "pooling" in model else True
    )
    assert len(found) == len(ROWS)
    assert "Confusion" in (tmp_path / "run" / "report.html").read_text("utf-8")
    torch.testing.assert_close(
        predictor.network.state_dict(),
        load(config_file.load_config(tmp_path / "run" / "config.yaml"), tmp_path / "run").network.state_dict(),
    )


def test_several_labels_are_learned_and_loaded_again(tmp_path: Path) -> None:
    words = {"sport": "goal", "money": "bank", "sky": "star"}
    sets = [[name for bit, name in enumerate(words) if number >> bit & 1] for number in range(8)] * 8
    rows = [{"label": names, "text": " ".join(["the", *(words[name] for name in names)])} for names in sets]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    files = {"train": str(tmp_path / "a.jsonl"), "valid": str(tmp_path / "a.jsonl"), "columns": {}, "separator": ","}
    training = {
        "max_steps": 150,
        "batch_size": 16,
        "learning_rate": 0.02,
        "warmup_steps": 10,
        "class_weights": "balanced",
    }
    config = config_of(tmp_path, data=files, training=training)
    train.train(config, tmp_path / "run", console=CONSOLE)
    model = load_run(tmp_path / "run")
    (found,) = model.predict(["the goal star"])
    assert sorted(found.labels) == ["sky", "sport"]
    part = examine(config, model)
    assert "Examples of each set" in (tmp_path / "run" / "report.html").read_text("utf-8")
    assert part.scores["micro_f1"] > 90
    assert part.sections[0][0] == "Labels"


def test_only_the_set_that_is_scored_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(tmp_path)
    train.train(config, tmp_path / "run", CONSOLE, reports=False)
    model = load_run(tmp_path / "run")
    read = list[str]()

    def note(field: str, pattern: str) -> list[Path]:
        read.append(field)
        return find_files(field, pattern)

    monkeypatch.setattr(texts, "find_files", note)
    assert examine(config, model).name == "valid"
    assert read == ["data.valid"]
    with keep_what_is_read():
        for _ in range(2):
            assert texts.read_sets(config.data) == texts.read_sets(config.data)
    assert read[1:] == ["data.train", "data.valid"]


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    training = {"max_steps": 2, "class_weights": "balanced", "schedule": "constant"}  # the same however long it trains
    options: dict[str, Any] = {"data": {"context": 1}, "training": training}
    dropouts = {"word_dropout": 0.2, "embedding_dropout": 0.2}
    train.train(config_of(tmp_path, model=dropouts, **options), tmp_path / "parts", CONSOLE)
    options["training"]["max_steps"] = 4
    whole = config_of(tmp_path, model=dropouts, **options)
    train.train(whole, tmp_path / "parts", CONSOLE)
    train.train(whole, tmp_path / "whole", CONSOLE)
    parts, once = (load_run(tmp_path / name).network.state_dict() for name in ("parts", "whole"))
    assert all(torch.equal(parts[name], once[name]) for name in once)


def test_other_texts_are_another_run(tmp_path: Path) -> None:
    train.train(config_of(tmp_path), tmp_path / "run", CONSOLE)
    config = config_of(tmp_path, training={"max_steps": 6})
    (tmp_path / "a.tsv").write_text("\n".join("\t".join(row) for row in ROWS[:-1]), "utf-8")
    with pytest.raises(UserError, match="the training data have changed since this run began"):
        train.train(config, tmp_path / "run", CONSOLE)


def test_a_share_is_held_out_by_dialogue_and_found_again(tmp_path: Path) -> None:
    config = config_of(tmp_path, data={"valid": 6, "context": 1})
    said = Console(record=True, width=200, file=io.StringIO())
    prepare(config, tmp_path / "run", said)
    train.train(config, tmp_path / "run", CONSOLE)
    name, scores, *_ = examine(config, load(config, tmp_path / "run"))
    assert name == "valid"
    lines = said.export_text().splitlines()
    assert (
        lines[0] == f"data.valid: {scores['num_texts']} of the 18 texts of data.train, chosen by a hash of the text (6)"
    )
    assert sorted(line.split(",")[0] for line in lines[1:3]) == ["data.train: 12 texts", "data.valid: 6 texts"]
    with pytest.raises(UserError, match=r"data\.valid: 1e-09 given; of 12 it leaves none for validation"):
        prepare(config_of(tmp_path, data={"valid": {"share": 1e-9}}), tmp_path / "other", CONSOLE)


def test_what_configs_of_older_runs_hold_out(tmp_path: Path) -> None:
    assert config_of(tmp_path, data={"valid": None, "valid_share": 0.25}).data.valid == HeldOutPart(share=0.25)
    assert config_of(tmp_path, data={"valid_share": 0.25}).data.valid == str(tmp_path / "a.tsv")


def test_what_is_said_before_training(tmp_path: Path) -> None:
    (tmp_path / "b.tsv").write_text("1\tA\tyes .\tanswer\n1\tA\tno .\tother\n", "utf-8")
    said = Console(record=True, width=200, file=io.StringIO())
    data = {"valid": str(tmp_path / "b.tsv"), "max_length": 2, "context": 1}
    prepare(config_of(tmp_path, data=data), tmp_path / "run", said)
    lines = said.export_text().splitlines()
    assert lines == [
        "data.train: 18 texts, 36 tokens in 12 dialogues, 3 labels; the most frequent, question, has 33.3%",
        "data.train: 12 texts are cut to data.max_length",
        "data.valid: 2 texts, 4 tokens in 1 dialogues, 2 labels; the most frequent, answer, has 50.0%",
        "data.valid: labels that data.train doesn't have, which count as wrong: other",
        "The vocabulary has 9 tokens.",
    ]


def test_a_first_label_like_no_other_is_told(tmp_path: Path) -> None:
    (tmp_path / "b.tsv").write_text("kind\twhat was said\n" + "yes\tgo on .\nno\tstop .\n" * 10, "utf-8")
    said = Console(record=True, width=200, file=io.StringIO())
    files = dict.fromkeys(("train", "valid"), str(tmp_path / "b.tsv"))
    prepare(config_of(tmp_path, data={**files, "columns": {"label": 0, "text": 1}}), tmp_path / "run", said)
    lines = said.export_text().splitlines()
    assert [line for line in lines if "header" in line] == [f"data.{name}, first text: {ODD}" for name in files]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"data": {"context": 2, "columns": {"text": 2, "label": 3}}},
            "context: 2 given; it needs the column of",
        ),
        ({"data": {"columns": {"text": "text", "label": 3}}}, r"names and positions given together \(3, text\)"),
        (
            {"data": {"columns": {"text": -1, "label": 3}}},
            "text: -1 given; allowed: the name of a column, or its position",
        ),
        ({"data": {"valid": 0.0}}, "data.valid.share: 0.0 given; input should be greater than 0"),
        ({"data": {"valid": {"share": 0.1, "count": 3}}}, "data.valid: .* given; allowed: a share of the examples"),
        ({"data": {"valid": {"shar": 0.1, "count": 3}}}, r"data.valid.shar: unknown \(did you mean share\?\)"),
        ({"data": {"contxt": 2}}, r"data.contxt: unknown \(did you mean context\?\)"),
        ({"model": {"kind": "cnn"}}, "model: .* given; .*'recurrent', 'transformer', 'bag'"),
        ({"model": {"width": 7}}, "width: 7 given; two directions need an even width"),
        (
            {"model": {"kind": "transformer", "width": 8, "num_heads": 3}},
            "num_heads: 3 given; it must divide",
        ),
        (
            {"model": {"kind": "transformer", "width": 6, "num_heads": 2, "positions": "rotary"}},
            "it needs heads of an even width",
        ),
        (
            {"model": {"pooling": "mean", "pooling_score": "dot"}},
            "pooling_score: 'dot' given; it has no effect",
        ),
        ({"model": {"num_hops": 2}}, "num_hops: 2 given; it has no effect with pooling: attention"),
        ({"model": {"context_score": "dot"}}, "context_score: 'dot' given; it has no effect with context: gru"),
        (
            {"model": {"pooling_score": "location"}, "data": {"max_length": 600}},
            "data.max_length: 600 given",
        ),
        ({"training": {"class_weights": "even"}}, "class_weights"),
        ({"training": {"metric": "micro_f1"}}, "training.metric: given, but it is for several labels at once"),
        ({"decoding": {"threshold": 0.3}}, "decoding.threshold: given, but it is for several labels at once"),
        (
            {"data": {"separator": ","}, "training": {"label_smoothing": 0.1}},
            "training.label_smoothing: given, but it is for one label a text",
        ),
    ],
)
def test_what_can_not_be_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said) as found:
        config_of(tmp_path, **changes)
    assert "\n" not in str(found.value)


def test_one_label_is_no_choice(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    (tmp_path / "a.tsv").write_text("1\tA\tyes\tanswer\n", "utf-8")
    with pytest.raises(UserError, match="has one label, 'answer'; there must be two or more"):
        prepare(config, tmp_path / "run", CONSOLE)


def test_a_number_is_a_label(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text("task: classify\ndata: {train: a.txt}\ntraining: {class_weights: {0: 2.5}}\n", "utf-8")
    assert config_file.load_config(path).training.class_weights == {"0": 2.5}
