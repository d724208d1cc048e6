"""M2M100, NLLB and Pegasus folders become runs that answer as Hugging Face does; languages are chosen once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from typer.testing import CliRunner

from many_languages import m2m_folder, nllb_folder, pegasus_folder
from marian import PHRASES, write_json
from saccade.cli import app
from saccade.errors import UserError
from saccade.export.proof import Proof
from saccade.imports import write
from saccade.imports.huggingface import read_model
from saccade.runs.load import load_run
from saccade.tasks.translate.predictor import Translator

FAMILIES: dict[str, tuple[Callable[..., Path], tuple[str, str] | None]] = {
    "m2m100": (m2m_folder, ("de", "en")),
    "nllb": (nllb_folder, ("deu_Latn", "eng_Latn")),
    "pegasus": (pegasus_folder, None),
}
TEXTS = [" ".join(PHRASES["source"].split()[first : first + 4]) for first in range(8)]


def bring(folder: Path, run: Path, languages: tuple[str, str] | None, **more: Any) -> Proof:
    return write.import_folder(folder, run, languages=languages, most=8, say=lambda what: None, **more)


@pytest.fixture(params=FAMILIES)
def given(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path, tuple[str, str] | None]:
    make, languages = FAMILIES[request.param]
    return make(tmp_path / "folder"), tmp_path / "run", languages


def test_logits_weights_outputs_and_tokenizers_are_the_same(
    given: tuple[Path, Path, tuple[str, str] | None],
) -> None:
    proof = bring(*given)
    assert proof.missed == []
    assert proof.found["logits"]["largest_difference"] < 1e-5
    assert max(proof.found["weights"]["largest_difference"].values()) < 2e-6
    assert all(outputs["same"] + outputs["tied"] == proof.about["pairs"] for outputs in proof.found["outputs"].values())
    assert proof.found["tokenizers"] == dict.fromkeys(("sources", "outputs", "of"), proof.about["pairs"])


def generate(folder: Path, languages: tuple[str, str] | None, **how: Any) -> list[str]:
    """Return what the Auto classes write, as their guides tell to call them."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    named = {} if languages is None else {"src_lang": languages[0]}
    tokenizer, model = AutoTokenizer.from_pretrained(folder, **named), AutoModelForSeq2SeqLM.from_pretrained(folder)
    if languages is not None:
        spelled = languages[1] if "_" in languages[1] else f"__{languages[1]}__"
        how["forced_bos_token_id"] = tokenizer.convert_tokens_to_ids(spelled)
    read = tokenizer(TEXTS, return_tensors="pt", padding=True)
    written = model.generate(**read, suppress_tokens=[model.config.pad_token_id], **how)
    return [" ".join(text.split()) for text in tokenizer.batch_decode(written, skip_special_tokens=True)]


def test_a_run_writes_what_generate_writes_in_that_language(
    given: tuple[Path, Path, tuple[str, str] | None],
) -> None:
    bring(*given)
    run = cast(Translator, load_run(given[1], device="cpu"))
    found = run.predict(TEXTS, beam=1, max_length=25, max_length_factor=25, max_rounds=0)
    assert [one.text for one in found] == generate(given[0], given[2], num_beams=1, max_new_tokens=25)
    assert len({one.text for one in found}) > 3
    if given[2] is not None:
        assert {one.pieces[0] for one in found} == {f"__{given[2][1]}__" if len(given[2][1]) == 2 else given[2][1]}


def test_another_language_is_another_run(tmp_path: Path) -> None:
    folder = nllb_folder(tmp_path / "folder")
    first, other = (read_model(folder, ("deu_Latn", code)) for code in ("eng_Latn", "fra_Latn"))
    assert first.sections["languages"] == {"source": "deu-Latn", "target": "eng-Latn"}
    assert first.target.tokenizer.pieces(first.target.tokenizer.encode("")) == ["eng_Latn"]
    assert other.target.tokenizer.pieces(other.target.tokenizer.encode("der Hund"))[0] == "fra_Latn"
    assert first.source.tokenizer.encode("") == []
    assert first.source.tokenizer.pieces(first.source.tokenizer.encode("der"))[0] == "deu_Latn"


def test_languages_are_those_of_the_tokenizer_unless_they_are_given(tmp_path: Path) -> None:
    folder = m2m_folder(tmp_path / "folder")
    change(folder / "tokenizer_config.json", src_lang="fr", tgt_lang="de")
    assert read_model(folder).sections["languages"] == {"source": "fr", "target": "de"}
    assert read_model(folder, ("de", "fr")).sections["languages"] == {"source": "de", "target": "fr"}


def test_every_command_takes_it(tmp_path: Path) -> None:
    folder, run, pairs = m2m_folder(tmp_path / "folder"), tmp_path / "run", tmp_path / "pairs.tsv"
    pairs.write_text("der alte Hund\tthe old dog\ndie Katze\tthe cat\n", encoding="utf-8")
    barred = tmp_path / "barred.txt"
    barred.write_text("der Hund ||| the dog\n", encoding="utf-8")
    for command in (
        ["import", str(folder), str(run), "--languages", "de,en", "--input", str(pairs), "--json"],
        ["predict", str(run), "--input", str(barred)],
        ["look", str(run), "der alte Hund"],
        ["look", str(run), "der alte Hund", "--target", "the old dog"],
        ["look", str(run), "--trust", "der alte Hund"],
        ["look", str(run), "--align", "--input", str(barred)],
        ["evaluate", str(run), str(pairs)],
    ):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, (command, done.output, done.exception)
    CliRunner().invoke(app, ["export", str(run), "ctranslate2", str(tmp_path / "ct2"), "--input", str(pairs)])
    proof = json.loads((tmp_path / "ct2" / "proof.json").read_text("utf-8"))  # a beam there may lose its prefix
    assert proof["log_probability"]["largest_difference"] < 1e-4
    assert proof["outputs"]["beam 1"]["different"] == 0
    done = CliRunner().invoke(app, ["export", str(run), "onnx", str(tmp_path / "onnx"), "--input", str(pairs)])
    assert "onnx can't say a language that each output begins with" in str(done.exception)


def change(path: Path, **fields: Any) -> None:
    write_json(path, {**json.loads(path.read_text("utf-8")), **fields})


def remove(path: Path) -> None:
    path.unlink()


def damage(path: Path) -> None:
    path.write_bytes(b"\x7fnothing of the kind")


@pytest.mark.parametrize(
    ("family", "name", "how", "message"),
    [
        ("m2m100", "config.json", {"vocab_size": 150}, "config.json: vocab_size: 150 given; allowed: 191 or more"),
        (
            "m2m100",
            "config.json",
            {"max_position_embeddings": 62},
            "max_position_embeddings: 62 given; allowed: a m",
        ),
        (
            "m2m100",
            "config.json",
            {"eos_token_id": 0},
            "eos_token_id: 0 given; allowed: 2, the id of </s>",
        ),
        ("m2m100", "generation_config.json", {"forced_bos_token_id": 7}, "forced_bos_token_id: 7 given; allowed: null"),
        ("m2m100", "tokenizer_config.json", {"language_codes": "none"}, 'language_codes: "none" given; allowed: "m2m1'),
        ("m2m100", "vocab.json", remove, "vocab.json: there is no such file"),
        ("m2m100", "sentencepiece.bpe.model", damage, "sentencepiece.bpe.model: this is no SentencePiece model"),
        ("m2m100", "model.safetensors", remove, "model.safetensors: there is no such file"),
        ("nllb", "tokenizer.json", remove, "tokenizer.json: there is no such file"),
        ("nllb", "tokenizer.json", {"model": {"vocab": []}}, "tokenizer.json: model.vocab: a table of pieces"),
        (
            "nllb",
            "tokenizer.json",
            {"model": {"vocab": {"a": 900}}},
            "tokenizer.json: a: 900 given; allowed: an id",
        ),
        ("nllb", "tokenizer_config.json", {"legacy_behaviour": True}, "legacy_behaviour: true given; allowed: false"),
        ("nllb", "sentencepiece.bpe.model", remove, "sentencepiece.bpe.model: there is no such file"),
        ("pegasus", "spiece.model", damage, "spiece.model: this is no SentencePiece model"),
        ("pegasus", "config.json", {"vocab_size": 99}, "config.json: vocab_size: 99 given; allowed: "),
    ],
)
def test_a_mistake_names_the_file_and_the_field(
    tmp_path: Path, family: str, name: str, how: dict[str, Any] | Callable[[Path], None], message: str
) -> None:
    make, languages = FAMILIES[family]
    folder = make(tmp_path / "folder")
    if isinstance(how, dict):
        change(folder / name, **how)
    else:
        how(folder / name)
    with pytest.raises(UserError) as caught:
        bring(folder, tmp_path / "run", languages)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("family", "languages", "message"),
    [
        ("m2m100", [], "--languages: none given; this model translates between 100: af, am, ar"),
        ("m2m100", ["--languages", "de,xx"], "--languages: 'xx' given; allowed: af, am"),
        (
            "m2m100",
            ["--languages", "de"],
            "--languages: 'de' given; allowed: two codes, of source and target",
        ),
        (
            "nllb",
            ["--languages", "de,en"],
            "--languages: 'de' given; allowed: ace_Latn, deu_Latn, eng_Latn, fra",
        ),
        ("pegasus", ["--languages", "de,en"], "--languages: given, but"),
    ],
)
def test_languages_that_are_not_there_are_refused(
    tmp_path: Path, family: str, languages: list[str], message: str
) -> None:
    folder = FAMILIES[family][0](tmp_path / "folder")
    done = CliRunner().invoke(app, ["import", str(folder), str(tmp_path / "run"), *languages])
    assert isinstance(done.exception, UserError)
    assert message in str(done.exception)


def test_positions_of_m2m100_are_its_own(tmp_path: Path) -> None:
    from transformers import M2M100ForConditionalGeneration

    folder = m2m_folder(tmp_path / "folder")
    theirs = M2M100ForConditionalGeneration.from_pretrained(folder).model.encoder.embed_positions.weights
    ours = read_model(folder, ("de", "en")).network.positions
    assert ours is not None
    torch.testing.assert_close(ours.table, theirs[2:], rtol=0, atol=1e-6)
