"""Marian folders as OPUS-MT lays them out become runs that answer as Hugging Face does on the same weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from typer.testing import CliRunner

import saccade
from marian import PHRASES, end_near, opus_folder
from saccade.cli import app
from saccade.data.text.corpus import Pair
from saccade.errors import UserError
from saccade.export.proof import Proof
from saccade.imports import huggingface, write
from saccade.imports.huggingface import read_model
from saccade.manifest import find_changed
from saccade.runs.load import load_run
from saccade.tasks.base import ScoredSet
from saccade.tasks.translate.predictor import Translator

TEXTS = ["der alte Hund", "die kleine Katze schläft im Haus .", "der Baum 😀 steht", "Hund"]


def bring(folder: Path, run: Path, **more: Any) -> Proof:
    return write.import_folder(folder, run, most=12, say=lambda what: None, **more)


def load(run: Path) -> Translator:
    return cast(Translator, load_run(run, device="cpu"))


def generate(folder: Path, texts: list[str]) -> list[tuple[str, float]]:
    """Return what the Auto classes write with the folder's own settings, and its score."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSeq2SeqLM.from_pretrained(folder)
    read = tokenizer(texts, return_tensors="pt", padding=True)
    written = model.generate(**read, max_new_tokens=40, return_dict_in_generate=True, output_scores=True)
    found = tokenizer.batch_decode(written.sequences, skip_special_tokens=True)
    return list(zip(found, written.sequences_scores.tolist(), strict=True))


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"separate": True},
        {"languages": (">>fra<<", ">>deu<<")},
        {"activation_function": "relu", "sizes": {"encoder_layers": 3, "decoder_layers": 1}},
        {"tie_word_embeddings": False, "share_encoder_decoder_embeddings": False},
    ],
    ids=["opus", "separate vocabularies", "several languages", "other sizes", "untied"],
)
def test_logits_weights_and_outputs_are_the_same(tmp_path: Path, layout: dict[str, Any]) -> None:
    proof = bring(opus_folder(tmp_path / "opus", end_bias=2.0, **layout), tmp_path / "run")
    assert proof.missed == []
    assert proof.found["logits"]["largest_difference"] < 1e-5
    assert max(proof.found["weights"]["largest_difference"].values()) < 1e-6
    for outputs in proof.found["outputs"].values():
        assert outputs["different"] == 0
        assert outputs["same"] > 3
    assert proof.found["tokenizers"] == dict.fromkeys(("sources", "outputs", "of"), proof.about["pairs"])


@torch.no_grad()
def test_the_width_keeps_its_order(tmp_path: Path) -> None:
    """Sums in another order would round otherwise: with them, weights of a model of this width differ by 7e-7."""
    folder = opus_folder(tmp_path / "opus", sizes={"d_model": 256, "heads": 4})
    proof = bring(folder, tmp_path / "run")
    assert set(proof.found["weights"]["largest_difference"].values()) == {0.0}
    assert cast(Any, load(tmp_path / "run").model).sizes.positions == "sinusoidal_halves"


def test_long_outputs_are_the_same(tmp_path: Path) -> None:
    folder = opus_folder(tmp_path / "opus", scale=1.2)
    end_near(folder, TEXTS, length=15, slope=0.3)
    proof = bring(folder, tmp_path / "run")
    assert proof.missed == []
    assert proof.found["outputs"]["beam 4"]["different"] == 0
    lengths = [len(one.pieces) for one in load(tmp_path / "run").predict(TEXTS * 3, width=4, length_penalty=0)]
    assert 8 < sum(lengths) / len(lengths) < 40


def test_answers_with_its_own_settings_are_those_of_generate(tmp_path: Path) -> None:
    folder = opus_folder(tmp_path / "opus", end_bias=2.0)
    bring(folder, tmp_path / "run")
    run = load(tmp_path / "run")
    assert run.options.width == 4
    assert run.options.length_penalty == 1
    texts = [" ".join(PHRASES["source"].split()[first : first + 4]) for first in range(12)]
    both = list(zip(run.predict(texts), generate(folder, texts), strict=True))
    same = [(ours.score, score) for ours, (text, score) in both if ours.text == text and ours.ended]
    assert len(same) > 3  # generate may end a search before another output is better
    assert [one for one, _ in same] == pytest.approx([other for _, other in same], abs=1e-5)


def test_a_run_is_whole_and_knows_its_settings(tmp_path: Path) -> None:
    run = tmp_path / "run"
    bring(opus_folder(tmp_path / "opus"), run)
    assert find_changed(run) == []
    stored = json.loads((run / "manifest.json").read_text("utf-8"))["files"]
    assert {"config.yaml", "tokenizer.source.json", "tokenizer.target.json", "proof.json"} <= set(stored)
    translator = load(run)
    assert translator.languages == ("de", "en")
    assert translator.max_source_length == 511
    assert translator.options.max_length == 511
    assert {path.name for path in tmp_path.iterdir()} == {"opus", "run"}


def test_start_and_padding_have_no_probability(tmp_path: Path) -> None:
    model = read_model(opus_folder(tmp_path / "opus"))
    with torch.no_grad():
        read = torch.ones(1, 1, dtype=torch.long)
        vectors = model.network(torch.tensor([[9, 8, 2]]), torch.tensor([3]), read)
        probability_V = model.network.logits(vectors)[0, 0].softmax(-1)
    assert probability_V[:2].tolist() == [0, 0]
    assert probability_V[2:].min() > 0


def test_a_language_is_one_token(tmp_path: Path) -> None:
    source = read_model(opus_folder(tmp_path / "opus", languages=(">>fra<<",))).source.tokenizer
    assert source.pieces(source.encode(">>fra<< der Hund"))[:2] == [">>fra<<", "▁der"]
    assert ">>fra<<" not in source.pieces(source.encode("der >>fra<< Hund"))
    assert source.encode(">>deu<< Hund")[0] != source.encode(">>fra<< Hund")[0]


def test_every_command_takes_an_import(tmp_path: Path) -> None:
    folder, run, pairs = opus_folder(tmp_path / "opus", end_bias=2.0), tmp_path / "run", tmp_path / "pairs.tsv"
    pairs.write_text("der alte Hund\tthe old dog\ndie Katze\tthe cat\n", encoding="utf-8")
    text, barred = tmp_path / "in.txt", tmp_path / "barred.txt"
    text.write_text("der Hund\n\ndie Katze\n", encoding="utf-8")
    barred.write_text("der Hund ||| the dog\n", encoding="utf-8")
    for command in (
        ["import", str(folder), str(run), "--input", str(pairs), "--json"],
        ["predict", str(run), "--input", str(text)],
        ["look", str(run), "der alte Hund"],
        ["look", str(run), "--align", "--input", str(barred)],
        ["evaluate", str(run), str(pairs)],
        ["export", str(run), "ctranslate2", str(tmp_path / "ct2"), "--input", str(pairs)],
        ["export", str(run), "onnx", str(tmp_path / "onnx"), "--input", str(pairs)],
    ):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, (command, done.output)
    assert json.loads((run / "proof.json").read_text("utf-8"))["set"] == "pairs.tsv"


@pytest.mark.parametrize("lora", [0, 8])
def test_an_import_is_trained_on(tmp_path: Path, lora: int) -> None:
    bring(opus_folder(tmp_path / "folder"), tmp_path / "run")
    lines = {"source": "der alte Hund\n", "target": "the old dog\n"}
    files = {side: str(tmp_path / side) for side in lines}
    for side, line in lines.items():
        (tmp_path / side).write_text(line * 7, encoding="utf-8")
    given = {"from": tmp_path / "run", "data": {"train": files, "valid": files}}
    steps = {
        "max_steps": 60,
        "validate_every": 60,
        "warmup_steps": 3,
        "metric": "loss",
        "learning_rate": 0.02,
        "ema": 0.0,
    }
    training = {"training": {**steps, "lora": lora}}
    run = saccade.train({**given, **training}, folder=tmp_path / "more", quiet=True)
    assert load(tmp_path / "run").predict(["der alte Hund"])[0].line() != "the old dog"
    assert load(run.folder).predict(["der alte Hund"])[0].line() == "the old dog"
    refusals = {
        "tokenizer.grow": (5, "imported pieces does not grow"),
        "tokenizer.vocabulary_size": (70, "which this run begins with, has 'auto'"),
        "data.old_share": (0.2, "was imported and names no texts; name some in data.old"),
    }
    for field, (value, message) in refusals.items():
        with pytest.raises(UserError, match=message):
            saccade.train(given, {field: value}, folder=tmp_path / "other", quiet=True)


def test_an_import_goes_back(tmp_path: Path) -> None:
    """Imported, exported and imported again, a model still answers the same."""
    folder = opus_folder(tmp_path / "opus", end_bias=2.0)
    bring(folder, tmp_path / "run")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("der alte Hund\tthe old dog\ndie Katze\tthe cat\n", encoding="utf-8")
    command = ["export", str(tmp_path / "run"), "huggingface", str(tmp_path / "back"), "--input", str(pairs)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert bring(tmp_path / "back", tmp_path / "again").missed == []
    first, again = load(tmp_path / "run"), load(tmp_path / "again")
    assert [one.text for one in first.predict(TEXTS)] == [one.text for one in again.predict(TEXTS)]
    assert first.target.size == again.target.size


def test_a_missed_bound_is_one_sentence_and_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = huggingface._silence

    def spoil(network: Any, *others: Any) -> None:
        right(network, *others)
        network.encoder[0].feed_forward.inner.bias.data[0] += 0.1

    monkeypatch.setattr(huggingface, "_silence", spoil)
    command = ["import", str(opus_folder(tmp_path / "opus")), str(tmp_path / "run"), "--sentences", "3"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 1
    assert "logits differ by up to" in done.stderr
    assert json.loads((tmp_path / "run" / "proof.json").read_text("utf-8"))["holds"] is False


def test_our_own_export_is_imported(tmp_path: Path) -> None:
    """Post-norm is Marian, pre-norm Pegasus, with sinusoids or learned positions."""
    from exports import phrases, pieces, portable, transformer
    from saccade.export.write import export

    both = (pieces(), pieces())
    for number, (norm, tied, positions) in enumerate(
        [("post", "three", "sinusoidal"), ("pre", "three", "sinusoidal"), ("pre", "none", "learned")]
    ):
        model = portable(transformer(norm=norm, tied=tied, positions=positions, vocabularies=both), *both)
        out, run = tmp_path / f"out{number}", tmp_path / f"run{number}"
        export("huggingface", model, out, quantization="float32", scored=phrases(3), most=3, say=lambda what: None)
        proof = bring(out, run, scored=ScoredSet("phrases", [Pair(one, "Hund") for one in TEXTS]))
        assert proof.missed == []
        imported = load(run)
        given = replace(imported, model=model.network, source=pieces(), target=pieces())
        ours, theirs = imported.predict(TEXTS, max_length=20), given.predict(TEXTS, max_length=20)
        assert [one.text for one in ours] == [one.text for one in theirs]
        assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=1e-5)


def test_every_id_there_has_one_here(tmp_path: Path) -> None:
    numbers = read_model(opus_folder(tmp_path / "opus")).numbering.target_V.tolist()
    assert numbers[:4] == [len(numbers) - 2, len(numbers) - 2, 0, 1]  # their <pad> is the first id that is read, too
    assert sorted(set(numbers)) == list(range(len(numbers) - 1))


def test_an_engine_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(UserError, match=r"an import needs transformers: pip install 'saccade\[export\]'"):
        bring(tmp_path, tmp_path / "run")
