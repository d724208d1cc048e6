"""CTranslate2 folders that we exported become runs again, with the same answers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from exports import PHRASE, phrases, pieces, portable, transformer
from marian import write_json
from saccade.errors import UserError
from saccade.export.proof import Proof
from saccade.export.write import export
from saccade.imports import write
from saccade.runs.load import load_run
from saccade.tasks.base import Portable
from saccade.tasks.translate.predictor import Translator

TEXTS = [" ".join(PHRASE.split()[first : first + 3]) for first in range(6)]


def give(out: Path, quantization: str = "float32", **sizes: Any) -> Portable:
    """Export a model."""
    both = (pieces(), pieces())
    model = portable(transformer(vocabularies=both, **sizes), *both, languages=("de", "en"))
    export("ctranslate2", model, out, quantization=quantization, scored=phrases(3), most=3, say=lambda what: None)
    return model


def bring(folder: Path) -> Proof:
    return write.import_folder(folder, folder.with_name("run"), scored=phrases(8), most=8, say=lambda what: None)


@pytest.mark.parametrize(
    "sizes",
    [
        {"norm": "pre", "positions": "sinusoidal", "tied": "three"},
        {"norm": "post", "positions": "sinusoidal_halves", "tied": "three"},
        {"norm": "post", "positions": "learned", "activation": "gelu"},
        {"norm": "pre", "positions": "rotary", "activation": "swiglu", "tied": "none"},
        {"norm": "pre", "positions": "relative", "activation": "silu", "score": "general"},
    ],
    ids=lambda sizes: sizes["positions"],
)
def test_a_model_comes_back(tmp_path: Path, sizes: dict[str, Any]) -> None:
    model = give(tmp_path / "ct2", **sizes)
    proof = bring(tmp_path / "ct2")
    assert proof.missed == []
    assert proof.about["format"] == "CTranslate2"
    run = cast(Translator, load_run(tmp_path / "run", device="cpu"))
    assert run.languages == ("de", "en")
    longest = 64 if sizes["positions"] == "learned" else 4096
    assert run.options == replace(model.options, max_length=longest)
    given = replace(run, model=model.network, source=model.source, target=model.target)
    for ours, theirs in zip(run.predict(TEXTS, max_length=20), given.predict(TEXTS, max_length=20), strict=True):
        assert ours.text == theirs.text
        assert ours.score == pytest.approx(theirs.score, abs=1e-5)
    config = (tmp_path / "run" / "config.yaml").read_text("utf-8")
    assert all(f"{name}: {sizes[name]}" in config for name in ("norm", "positions"))


def test_what_was_lost_is_said(tmp_path: Path) -> None:
    give(tmp_path / "ct2", "int8")
    with pytest.raises(UserError, match=r"weight: its numbers were rounded \(quantized\), and what they were"):
        bring(tmp_path / "ct2")
    (tmp_path / "ct2" / "import.json").unlink()
    with pytest.raises(UserError, match=r"import.json: there is no such file; without it the tokenizers and settings"):
        bring(tmp_path / "ct2")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model.bin", "model.bin: it can't be read to its end; copy it again"),
        ("tokenizer.source.model", "tokenizer.source.model is damaged"),
        ("import.json", "import.json: this is not JSON"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, message: str) -> None:
    give(tmp_path / "ct2")
    path = tmp_path / "ct2" / name
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError) as caught:
        bring(tmp_path / "ct2")
    assert message in str(caught.value)


def test_a_wrong_field_is_named(tmp_path: Path) -> None:
    give(tmp_path / "ct2")
    path = tmp_path / "ct2" / "import.json"
    content = json.loads(path.read_text("utf-8"))
    write_json(path, {**content, "languages": "de"})
    with pytest.raises(UserError, match=r'import.json: languages: "de" given; allowed: a list'):
        bring(tmp_path / "ct2")
    write_json(path, {**content, "decoding": {**content["decoding"], "beam": 0}})
    with pytest.raises(UserError, match=r"decoding\.beam: 0 given"):
        bring(tmp_path / "ct2")
