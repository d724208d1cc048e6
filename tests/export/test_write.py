"""Exports are written whole or not at all, with a proof; the command says what it did."""

from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console
from typer.testing import CliRunner

from exports import phrases, pieces, portable, random_pairs, transformer
from runs import make_run
from saccade.cli import app
from saccade.errors import UserError
from saccade.export import formats, write
from saccade.export.ctranslate2 import CTranslate2Engine
from saccade.export.proof import Bounds, count_ties, max_difference
from saccade.files import create_folder
from saccade.runs import config as config_file
from saccade.runs import train
from saccade.tasks import TASKS


def test_a_proof_lies_in_the_folder(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    done = CliRunner().invoke(app, ["export", str(run), "ctranslate2", str(tmp_path / "out"), "--json"])
    assert done.exit_code == 0, done.output
    stored = json.loads((tmp_path / "out" / "proof.json").read_text("utf-8"))
    assert stored == json.loads(done.stdout)
    assert stored["holds"] is True
    assert stored["pairs"] == 1
    assert set(stored["versions"]) == {"python", "saccade", "torch", "ctranslate2"}
    assert {path.name for path in tmp_path.iterdir()} == {"run", "run.txt", "out"}


def test_other_pairs_prove_it(tmp_path: Path) -> None:
    run, pairs = make_run(tmp_path / "run"), tmp_path / "pairs.tsv"
    pairs.write_text("a b\tc\n\te\nd\tf g\na\tb\n", encoding="utf-8")
    command = ["export", str(run), "ctranslate2", str(tmp_path / "out"), "--input", str(pairs), "--sentences", "2"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "2 pairs of pairs.tsv: log-probabilities differ by at most" in done.output
    assert f"The model is in {tmp_path / 'out'}, its proof in {tmp_path / 'out' / 'proof.json'}" in done.output


def test_a_missed_bound_is_one_sentence_and_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strict = formats.FORMATS["ctranslate2"]._replace(quantizations={"float32": Bounds(log_probability=0.0)})
    monkeypatch.setitem(formats.FORMATS, "ctranslate2", strict)
    run = make_run(tmp_path / "run")
    done = CliRunner().invoke(app, ["export", str(run), "ctranslate2", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "log-probabilities differ by up to" in done.stderr
    assert json.loads((tmp_path / "out" / "proof.json").read_text("utf-8"))["holds"] is False


@pytest.mark.parametrize(
    ("arguments", "override", "message"),
    [
        (["marian", "out"], "", "format: 'marian' given; allowed: ctranslate2"),
        (["ctranslate2", "out", "--quantization", "int4"], "", "--quantization: 'int4' given; allowed: float32, int8"),
        (["ctranslate2", "out", "--target", "x"], "", "--target: given without --input"),
        (["ctranslate2", "run"], "", "run: it is there already"),
        (
            ["ctranslate2", "out"],
            "model.score=additive",
            "ctranslate2 can't say model.score: additive is no dot product; formats that can: onnx",
        ),
    ],
)
def test_mistakes_are_told_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], override: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    run = make_run(tmp_path / "run", *([override] if override else []))
    done = CliRunner().invoke(app, ["export", str(run), *arguments])
    assert isinstance(done.exception, UserError)
    assert message in str(done.exception)
    assert {path.name for path in tmp_path.iterdir()} == {"run", "run.txt"}


def test_a_failed_export_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write, "prove", fail)
    with pytest.raises(OSError, match=re.escape(f"No space left on device: '{tmp_path / 'out'}'")):
        write.export(
            "ctranslate2",
            portable(transformer()),
            tmp_path / "out",
            quantization="float32",
            scored=random_pairs(3),
            most=3,
            say=lambda what: None,
        )
    assert list(tmp_path.iterdir()) == []


def test_a_proof_says_how_far_it_is_and_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.export.proof.AT_ONCE", 2)
    said = list[str]()
    proof = write.export(
        "ctranslate2",
        portable(transformer()),
        tmp_path / "out",
        quantization="float32",
        scored=random_pairs(5),
        most=5,
        minutes=0,
        say=said.append,
    )
    assert proof.missed == []
    for outputs in proof.found["outputs"].values():
        assert outputs["not compared"] == 3
        assert sum(outputs.values()) == 5
    assert "3 not compared" in proof.lines()[-1]
    assert "comparing outputs, beam 4: 0 of 5, the next ones in CTranslate2" in said


def test_a_folder_appears_when_it_is_whole(tmp_path: Path) -> None:
    with create_folder(tmp_path / "deep" / "new") as draft:
        (draft / "file").write_text("x", "utf-8")
        assert not (tmp_path / "deep" / "new").exists()
    assert (tmp_path / "deep" / "new" / "file").read_text("utf-8") == "x"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["new"]


def test_what_is_not_a_number_is_a_difference() -> None:
    assert max_difference([1.0, 2.0], [1.5, 1.0]) == 1.0
    assert math.isnan(max_difference([1.0, math.nan, 0.0], [1.0, 1.0, 1.0]))


def test_an_engine_without_numbers_misses_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(*given: Any) -> list[list[float]]:
        return [[0.0] * len(ids) + [math.nan] for ids in given[2]]

    monkeypatch.setattr(CTranslate2Engine, "log_probabilities", answer)
    run = make_run(tmp_path / "run")
    done = CliRunner().invoke(app, ["export", str(run), "ctranslate2", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "log-probabilities differ by up to nan" in done.stderr


def test_outputs_that_only_rounding_parts_are_tied() -> None:
    model = portable(transformer())
    assert count_ties(model, [[4, 5]], ([[4, 5, 6]], [[4, 5, 6]])) == 1
    assert count_ties(model, [[4, 5]], ([[4, 5, 6]], [[4, 7, 6]])) == 0


def test_training_says_first_what_a_config_allows(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a b c d e f g\n" * 4, encoding="utf-8")
    files = {"source": str(text), "target": str(text)}
    content = {
        "device": "cpu",
        "data": {"train": files, "valid": files},
        "tokenizer": {"kind": "words"},
        "model": {"width": 8, "num_heads": 2, "hidden_width": 8, "num_layers": 1},
        "training": {"max_steps": 1, "precision": "float32"},
    }
    console = Console(file=io.StringIO(), width=100)
    train.train(config_file.check_config(content, "test"), tmp_path / "run", console)
    assert "\nexport: ctranslate2, onnx\n" in cast(io.StringIO, console.file).getvalue()


def test_what_a_model_allows_is_one_line(tmp_path: Path) -> None:
    model = portable(transformer())
    assert "ctranslate2" in formats.describe_exports(model)
    assert formats.describe_exports(None) == "export: no format can say this model"
    run = make_run(tmp_path / "run", "model.normalizer=hard")
    config = config_file.load_config(run / "config.yaml")
    predictor = TASKS[config.task].load(config, run)
    assert "ctranslate2" not in formats.describe_exports(predictor.portable())


def test_a_full_disk_is_an_error_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import save_file
    from transformers import PreTrainedModel

    def fail(model: PreTrainedModel, folder: Path) -> None:
        save_file({"bias": model.get_buffer("final_logits_bias")}, folder / "nowhere" / "model.safetensors")

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", fail)
    both, how = (pieces(), pieces()), {"quantization": "float32", "most": 3, "say": lambda what: None}
    model = portable(transformer(norm="post", tied="three", positions="sinusoidal", vocabularies=both), *both)
    with pytest.raises(OSError, match="No such file or directory"):
        write.export("huggingface", model, tmp_path / "out", scored=phrases(3), **cast(Any, how))
    assert not list(tmp_path.iterdir())
