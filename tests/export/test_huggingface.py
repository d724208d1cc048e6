"""Exports to Hugging Face, judged by its Auto classes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from exports import phrases, pieces, portable, transformer
from saccade.data.text.tokenizer import UNKNOWN, SentencePiece
from saccade.decoding import BeamOptions
from saccade.export import huggingface
from saccade.export.huggingface import refuse
from saccade.export.proof import Proof, search_ours
from saccade.export.write import export
from saccade.inspection.insight import Head
from saccade.tasks.base import Portable

FRESH = """
import json, sys
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
tokenizer, model = (kind.from_pretrained(sys.argv[1]) for kind in (AutoTokenizer, AutoModelForSeq2SeqLM))
read = tokenizer(json.loads(sys.argv[2]), return_tensors="pt", padding=True)
print(json.dumps(tokenizer.batch_decode(model.generate(**read), skip_special_tokens=True)))
"""


def prove(model: Portable, folder: Path, *, shout: bool = False) -> Proof:
    scored = phrases(6, shout=shout)
    return export(
        "huggingface", model, folder / "out", quantization="float32", scored=scored, most=9, say=lambda what: None
    )


@pytest.mark.parametrize(
    ("norm", "tied", "positions", "more"),
    [
        ("post", "three", "sinusoidal", {"activation": "gelu", "score": "general"}),
        ("post", "none", "sinusoidal", {"activation": "silu"}),
        ("pre", "three", "sinusoidal", {}),
        ("pre", "none", "learned", {"score": "dot"}),
    ],
)
def test_both_norms_answer_the_same(tmp_path: Path, norm: str, tied: str, positions: str, more: dict[str, Any]) -> None:
    both = (pieces(), pieces())
    network = transformer(norm=norm, tied=tied, positions=positions, vocabularies=both, **more)
    proof = prove(portable(network, *both, aligning=Head(0, 1)), tmp_path)
    assert proof.missed == []
    assert proof.about["architecture"].startswith("Marian" if norm == "post" else "Pegasus")
    assert proof.found["log_probability"]["largest_difference"] < 1e-5
    assert proof.found["attention"]["largest_difference"] < 1e-5
    assert all(outputs["same"] + outputs["cut"] == 6 for outputs in proof.found["outputs"].values())
    assert proof.found["tokenizers"] == {"sources": 6, "outputs": 6, "of": 6}


def test_two_vocabularies_are_two_tokenizers(tmp_path: Path) -> None:
    both = (pieces(), pieces("bpe"))
    proof = prove(portable(transformer(norm="post", vocabularies=both), *both), tmp_path, shout=True)
    assert proof.missed == []
    assert (tmp_path / "out" / "target_vocab.json").exists()


def test_generate_in_a_fresh_process_needs_nothing_of_ours(tmp_path: Path) -> None:
    both, texts = (pieces(), pieces()), [pair.source for pair in phrases(4).pairs]
    options = BeamOptions(max_length=12)
    model = portable(transformer(norm="post", tied="three", vocabularies=both), *both, options=options)
    prove(model, tmp_path)
    command = [sys.executable, "-W", "ignore", "-c", FRESH, str(tmp_path / "out"), json.dumps(texts)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    ours = search_ours(model.network, [pieces().encode(text) for text in texts], 1, 12)  # type: ignore[arg-type]
    assert json.loads(done.stdout) == [pieces().decode(ids) for ids in ours]


def test_a_wrong_tokenizer_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = (pieces(), pieces())
    right, first = huggingface._spell_vocabulary, pieces().pieces(pieces().encode("naïve"))[0]
    monkeypatch.setattr(huggingface, "_spell_vocabulary", lambda tokenizer: {**right(tokenizer), first: UNKNOWN})
    proof = prove(portable(transformer(norm="post", tied="three", vocabularies=both), *both), tmp_path)
    assert any("its tokenizer treats" in missed for missed in proof.missed)


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({"positions": "rotary"}, "model.positions: rotary"),
        ({"positions": "learned", "norm": "post"}, "model.positions: learned with model.norm: post"),
        ({"activation": "swiglu"}, "model.activation: swiglu"),
        ({"score": "additive"}, "model.score: additive"),
        ({"norm": "pre", "two": True}, "model.norm: pre with vocabularies of two sizes"),
    ],
)
def test_what_it_cannot_say_has_a_reason(sizes: dict[str, Any], reason: str) -> None:
    both: tuple[SentencePiece, SentencePiece] = (pieces(), pieces("bpe") if sizes.pop("two", False) else pieces())
    if both[0] is not both[1]:
        assert both[0].size != both[1].size
    assert reason in str(refuse(portable(transformer(vocabularies=both, **sizes), *both)))


def test_words_are_refused() -> None:
    assert "words or characters" in str(refuse(portable(transformer())))
