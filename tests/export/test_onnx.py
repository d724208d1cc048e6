"""Exports to ONNX, judged by ONNX Runtime, and by the example that needs no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from exports import SOURCE, TARGET, listed, phrases, pieces, portable, random_pairs, recurrent, transformer
from saccade.attention import NORMALIZERS, SCORES
from saccade.data.text.tokenizer import Tokenizer
from saccade.decoding import Stepper
from saccade.export.onnx.write import refuse, write
from saccade.export.proof import Proof, search_ours
from saccade.export.write import export
from saccade.inspection.insight import Head
from saccade.tasks.base import Portable

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "onnx_translate.py"
WITHOUT_TORCH = f"import runpy, sys; sys.modules['torch'] = None; runpy.run_path({str(EXAMPLE)!r}, run_name='__main__')"


def prove(model: Portable, folder: Path) -> Proof:
    given: dict[str, Any] = {"quantization": "float32", "most": 9, "say": lambda what: None}
    return export("onnx", model, folder / "out", scored=random_pairs(9), **given)


@pytest.mark.parametrize(
    ("positions", "norm", "activation", "more"),
    [
        ("sinusoidal", "pre", "relu", {}),
        ("learned", "post", "gelu", {"tied": "none"}),
        ("rotary", "pre", "swiglu", {"window": 3}),
        ("relative", "post", "silu", {"window": 2}),
        *(
            ("rotary" if number % 2 else "sinusoidal", "pre", "relu", {"score": score})
            for number, score in enumerate(SCORES)
        ),
        ("rotary", "pre", "gelu", {"score": "additive"}),
        *(("relative", "post", "gelu", {"normalizer": normalizer}) for normalizer in NORMALIZERS),
        ("sinusoidal", "pre", "relu", {"normalizer": "entmax15", "score": "additive", "window": 1}),
    ],
)
def test_every_transformer_answers_the_same(
    tmp_path: Path, positions: str, norm: str, activation: str, more: dict[str, Any]
) -> None:
    model = portable(transformer(positions=positions, norm=norm, activation=activation, **more), aligning=Head(0, 2))
    proof = prove(model, tmp_path)
    assert proof.missed == []
    assert proof.found["log_probability"]["largest_difference"] < 1e-5
    assert proof.found["attention"]["largest_difference"] < 1e-5
    assert all(outputs["same"] + outputs["cut"] == 9 for outputs in proof.found["outputs"].values())


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("kind", ["words", "pieces", "listed", "bahdanau", "luong", "none"])
def test_the_example_writes_the_same_without_torch(tmp_path: Path, beam: int, kind: str) -> None:
    words = kind not in ("pieces", "listed")
    one: Tokenizer = listed() if kind == "listed" else pieces()
    both: tuple[Tokenizer, Tokenizer] = (SOURCE, TARGET) if words else (one, one)
    texts = [pair.source for pair in (random_pairs(5) if words else phrases(4)).pairs]
    rnn = None if kind in ("words", "pieces", "listed") else recurrent(kind, cell="lstm", options={"scope": "local_m"})
    model = portable(rnn or transformer(positions="rotary", vocabularies=both), *both)
    write(model, tmp_path, "float32")
    command = [sys.executable, "-c", WITHOUT_TORCH, str(tmp_path), "--beam", str(beam), "--limit", "9"]
    done = subprocess.run(command, input="\n".join(texts), capture_output=True, text=True, check=True)
    ours = search_ours(cast(Stepper, model.network), [both[0].encode(text) for text in texts], beam, 9)
    assert done.stdout.splitlines() == [both[1].decode(ids) for ids in ours]


def test_int8_is_smaller_and_judged_by_its_score(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, sizes = portable(transformer(width=96, hidden_width=512)), {}
    for quantization in ("float32", "int8"):
        proof = export(
            "onnx",
            model,
            tmp_path / quantization,
            quantization=quantization,
            scored=random_pairs(4),
            most=9,
            say=lambda what: None,
        )
        assert ("bound" in proof.found["log_probability"]) == (quantization == "float32")
        sizes[quantization] = (tmp_path / quantization / "decoder.onnx").stat().st_size
    assert sizes["int8"] < 0.4 * sizes["float32"]
    assert 1e-4 < proof.found["log_probability"]["largest_difference"] < 1  # it is another arithmetic
    assert not caplog.records


def test_a_wrong_weight_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from saccade.export.onnx import scores

    monkeypatch.setattr(scores, "FAR", 0.0)  # forbidden keys take weight from the others
    assert any("log-probabilities differ" in missed for missed in prove(portable(transformer()), tmp_path).missed)


def test_sound_is_refused_with_a_reason() -> None:
    network = recurrent()
    network.source = torch.nn.Linear(3, 10)
    assert "input: sound" in str(refuse(portable(network)))


@pytest.mark.parametrize(
    ("attention", "more"),
    [
        *(("luong", {"options": {"score": score}, "direction": "both"}) for score in SCORES),
        ("bahdanau", {"layers": 2}),
        ("bahdanau", {"cell": "lstm", "layers": 2, "options": {"score": "general", "normalizer": "hard"}}),
        ("luong", {"cell": "rnn", "direction": "backward", "feeds_input": False}),
        (
            "luong",
            {"cell": "lstm", "direction": "forward", "options": {"score": "dot", "scope": "local_m", "radius": 1}},
        ),
        ("bahdanau", {"cell": "gru", "options": {"scope": "local_m", "radius": 2}}),
        ("luong", {"options": {"score": "general", "scope": "local_p", "radius": 2}}),
        ("none", {"direction": "backward", "layers": 2, "cell": "lstm"}),
        ("bahdanau", {"options": {"normalizer": "entmax15", "scope": "local_m", "radius": 2}}),
        ("luong", {"feeds_input": False, "options": {"normalizer": "sparsemax", "scope": "local_p", "radius": 2}}),
    ],
)
def test_every_rnn_answers_the_same(tmp_path: Path, attention: str, more: dict[str, Any]) -> None:
    proof = prove(portable(recurrent(attention, **more)), tmp_path)
    assert proof.missed == []
    assert proof.found["log_probability"]["largest_difference"] < 1e-5
    assert ("attention" in proof.found) == (attention != "none")
    assert all(outputs["same"] + outputs["cut"] == 9 for outputs in proof.found["outputs"].values())


def test_a_zero_vector_has_no_direction(tmp_path: Path) -> None:
    network = transformer(score="cosine")
    for attention in (network.encoder[0].attention, network.decoder[0].cross):
        torch.nn.init.zeros_(cast(Any, attention).key.weight)
        torch.nn.init.zeros_(cast(Any, attention).key.bias)
    assert prove(portable(network), tmp_path).missed == []
