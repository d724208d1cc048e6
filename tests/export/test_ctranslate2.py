"""Exports to CTranslate2, judged by CTranslate2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch

from exports import portable, random_pairs, transformer
from saccade.data.text.tokenizer import SPECIAL, Vocabulary
from saccade.export.ctranslate2 import CTranslate2Engine, refuse, write
from saccade.export.proof import Proof
from saccade.export.write import export
from saccade.inspection.insight import Head
from saccade.models.seq2seq import RecurrentSizes, Seq2Seq
from saccade.tasks.base import Portable

QUIET: Any = lambda what: None  # noqa: E731


def prove(model: Portable, folder: Path, **more: Any) -> Proof:
    scored = more.pop("scored", random_pairs(12))
    given = {"quantization": "float32", "most": 100, "say": QUIET, **more}
    return export("ctranslate2", model, folder / "exported", scored=scored, **given)


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "swiglu"])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "relative"])
def test_every_transformer_answers_the_same(tmp_path: Path, positions: str, norm: str, activation: str) -> None:
    model = portable(transformer(positions=positions, norm=norm, activation=activation), aligning=Head(0, 1))
    proof = prove(model, tmp_path)
    assert proof.missed == []
    assert proof.found["log_probability"]["largest_difference"] < 1e-5
    assert proof.found["attention"]["largest_difference"] < 1e-5
    assert all(outputs["same"] + outputs["cut"] == 12 for outputs in proof.found["outputs"].values())


@pytest.mark.parametrize("score", ["dot", "general", "reduced_rank", "mean", "concat"])
def test_other_scores_fold_into_the_projections(tmp_path: Path, score: str) -> None:
    assert prove(portable(transformer(score=score, positions="relative")), tmp_path).missed == []


@pytest.mark.parametrize("tied", ["three", "two", "none"])
def test_embeddings_are_one_matrix_or_several(tmp_path: Path, tied: str) -> None:
    both = Vocabulary([*SPECIAL, *"abcdefg"], "words")
    model = portable(transformer(tied=tied, vocabularies=(both, both)), both, both)
    assert prove(model, tmp_path, scored=random_pairs(12, (both, both))).missed == []
    assert (tmp_path / "exported" / "shared_vocabulary.json").exists()


def test_characters_are_a_vocabulary_too(tmp_path: Path) -> None:
    both = Vocabulary([*SPECIAL, *"abc defg"], "characters")
    model = portable(transformer(vocabularies=(both, both)), both, both)
    assert prove(model, tmp_path, scored=random_pairs(12, (both, both))).missed == []


def test_a_word_spelled_like_an_end_ends_nothing(tmp_path: Path) -> None:
    both = Vocabulary([*SPECIAL, "a", "</s>", "<s>"], "words")
    assert prove(portable(transformer(vocabularies=(both, both)), both, both), tmp_path).missed == []


def test_the_aligning_head_is_the_first(tmp_path: Path) -> None:
    """With another head said to align, the same engine's weights are wrong."""
    network = transformer()
    write(portable(network, aligning=Head(0, 2)), tmp_path, "float32")
    engine = CTranslate2Engine(portable(network), tmp_path)
    ((_, first),) = engine.attend([[4, 5, 6]], 8)
    write(portable(network), tmp_path, "float32")
    ((_, mean),) = CTranslate2Engine(portable(network), tmp_path).attend([[4, 5, 6]], 8)
    assert first.shape == mean.shape
    assert not torch.allclose(first, mean, atol=1e-3)


def test_a_wrong_weight_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = transformer()
    right = ctranslate2.specs.transformer_spec.TransformerSpec.validate

    def spoil(spec: Any) -> None:
        spec.decoder.layer[0].ffn.linear_0.bias[0] += 1.0
        right(spec)

    monkeypatch.setattr(ctranslate2.specs.transformer_spec.TransformerSpec, "validate", spoil)
    proof = prove(portable(network), tmp_path)
    assert any("log-probabilities differ by up to" in missed for missed in proof.missed)
    assert not proof.plain()["holds"]


def test_int8_is_smaller_and_judged_by_its_score(tmp_path: Path) -> None:
    model = portable(transformer(width=96, hidden_width=512))
    sizes = {}
    for quantization in ("float32", "int8"):
        proof = prove(model, tmp_path / quantization, quantization=quantization, scored=random_pairs(4))
        assert "bound" not in proof.found["log_probability"] or quantization == "float32"
        sizes[quantization] = (tmp_path / quantization / "exported" / "model.bin").stat().st_size
    assert sizes["int8"] < 0.6 * sizes["float32"]
    assert 1e-4 < proof.found["log_probability"]["largest_difference"] < 1  # it is another arithmetic


def test_an_export_changes_nothing_here(tmp_path: Path) -> None:
    model = portable(transformer())
    before = {name: value.clone() for name, value in model.network.state_dict().items()}
    write(model, tmp_path, "int8")
    assert all(torch.equal(value, before[name]) for name, value in model.network.state_dict().items())


def test_int8_with_another_score_misses_its_bound(tmp_path: Path) -> None:
    scores = iter([50.0, 49.0, 50.0, 49.9])  # ours and theirs, twice
    model = portable(transformer(), score=lambda outputs, references: {"bleu": next(scores)})
    proof = prove(model, tmp_path, quantization="int8")
    assert proof.missed == ["BLEU is 49.00 in CTranslate2 and 50.00 here (beam 1), more than 0.2 apart"]


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({"score": "additive"}, "model.score: additive"),
        ({"score": "cosine"}, "model.score: cosine"),
        ({"normalizer": "entmax15"}, "model.normalizer: entmax15"),
        ({"window": 3}, "model.window: 3"),
        ({"score": "general", "positions": "rotary"}, "model.score: general with rotary positions"),
    ],
)
def test_what_it_cannot_say_has_a_reason(sizes: dict[str, Any], reason: str) -> None:
    said = refuse(portable(transformer(**sizes)))
    assert said is not None
    assert reason in said


def test_an_rnn_is_refused() -> None:
    network = Seq2Seq(source=9, target_vocabulary=9, sizes=RecurrentSizes(8, 8, 1))
    assert "RNN" in str(refuse(portable(network)))
