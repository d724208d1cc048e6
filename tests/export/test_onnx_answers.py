"""Classifiers, taggers and captioners in ONNX, judged by ONNX Runtime."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from exports import (
    CAPTIONS,
    EMBEDDED,
    LABELS,
    captioner,
    classifier,
    documents,
    encoder,
    pictures,
    sentences,
    tagger,
    texts,
)
from saccade.attention import NORMALIZERS, SCORES
from saccade.data.labels.labelled import Spelling, Text
from saccade.data.tags.spans import allowed_pairs
from saccade.decoding import Stepper
from saccade.export.onnx.write import write
from saccade.export.proof import Proof, search_ours
from saccade.export.write import export
from saccade.layers.dialogue import AttentionContext, RecurrentContext
from saccade.layers.pooling import AttentionPooling, LastPooling, MaxPooling, MeanPooling, StructuredPooling
from saccade.models.classifier import DocumentReader
from saccade.tasks.base import Portable, PortablePass, ScoredSet
from saccade.tasks.texts import LongTextWarning


def prove(model: Portable | PortablePass, examples: list[Any], folder: Path) -> Proof:
    given: dict[str, Any] = {"quantization": "float32", "most": 100, "say": lambda what: None}
    return export("onnx", model, folder / "out", scored=ScoredSet("drawn", examples), **given)


@pytest.mark.parametrize("pooling", [MeanPooling, LastPooling, MaxPooling, AttentionPooling, StructuredPooling])
@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("bag", {}),
        ("rnn", {"direction": "forward"}),
        ("gru", {"num_layers": 2}),
        ("lstm", {"direction": "backward"}),
        ("transformer", {"positions": "learned", "norm": "post"}),
        ("transformer", {"positions": "relative", "window": 2, "activation": "swiglu"}),
    ],
)
def test_every_encoder_and_pooling_answers_the_same(
    tmp_path: Path, kind: str, more: dict[str, Any], pooling: Any
) -> None:
    read = encoder(kind, **more)
    pools = pooling(read.width, **({"num_hops": 3, "hidden_width": 7} if pooling is StructuredPooling else {}))
    proof = prove(classifier(read, pools).portable(), texts(), tmp_path)
    check(proof, 39, {"logits"} | ({"attention"} - {"attention" if pooling is LastPooling else ""}), kind)


def check(proof: Proof, count: int, outputs: set[str], kind: str = "") -> None:
    assert proof.missed == []
    assert set(proof.found["numbers"]) == outputs | ({"encoder_attention"} if kind == "transformer" else set())
    assert max(one["largest_difference"] for one in proof.found["numbers"].values()) < 2e-5
    assert proof.found["answers"] == {"same": count, "tied": 0, "different": 0}


@pytest.mark.parametrize("score", SCORES)
def test_every_score_pools(tmp_path: Path, score: str) -> None:
    pooling = AttentionPooling(EMBEDDED, score=score)
    check(prove(classifier(encoder("bag"), pooling).portable(), texts(), tmp_path), 39, {"logits", "attention"})


@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_every_normalizer_pools(tmp_path: Path, normalizer: str) -> None:
    pooling = AttentionPooling(14, normalizer=normalizer)
    check(prove(classifier(encoder("gru"), pooling).portable(), texts(), tmp_path), 39, {"logits", "attention"})


@pytest.mark.parametrize("context", ["rnn", "gru", "lstm", "attention"])
def test_texts_before_are_read_too(tmp_path: Path, context: str) -> None:
    before = AttentionContext(14, longest=4) if context == "attention" else RecurrentContext(14, 6, cell=context)
    model = classifier(encoder("gru"), MaxPooling(14), before, context=3)
    check(prove(model.portable(), texts(), tmp_path), 39, {"logits", "attention"})


@pytest.mark.parametrize("kind", ["gru", "bag", "transformer"])
@pytest.mark.parametrize("pooling", [MeanPooling, LastPooling, AttentionPooling])
def test_documents_are_read_by_their_sentences(tmp_path: Path, kind: str, pooling: Any) -> None:
    over = encoder(kind, 14, **({"named": None} if kind == "transformer" else {}))
    model = classifier(
        encoder("gru"),
        AttentionPooling(14),
        document=DocumentReader(over, pooling(over.width)),
        max_length=5,
        max_sentences=8,
    )
    proof = prove(model.portable(), documents(), tmp_path)
    check(proof, 24, {"logits", "attention"} | ({"sentence_attention"} if pooling is not LastPooling else set()))
    assert proof.found["answers"]["same"] == 24


def test_several_labels_at_once(tmp_path: Path) -> None:
    model = classifier(encoder("bag"), MeanPooling(EMBEDDED), separator=",", threshold=0.4)
    given = [text._replace(label=f"{text.label},fine") for text in texts()]
    proof = prove(model.portable(), given, tmp_path)
    check(proof, 39, {"logits", "attention"})
    assert set(proof.found["scores"]["saccade"]) == {"micro_f1", "macro_f1", "accuracy"}


ALLOWED_BIO = allowed_pairs(["O", "B-A", "I-A", "B-C", "I-C"], "bio")
ALLOWED = [[(before + tag) % 3 > 0 for tag in range(6)] for before in range(6)]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"kind": "gru", "num_layers": 2, "reader": "lstm"},
        {"kind": "transformer", "positions": "relative"},
        {"kind": "transformer", "positions": "rotary", "norm": "post", "width": 24, "num_heads": 3},
        {"character": 0, "shape": 0},
        {"character": 0},
        {"features": 2},
        {"allowed": ALLOWED},
        {"allowed": ALLOWED, "is_learned": False},
        {"documents": True},
        {"documents": True, "kind": "transformer", "positions": "sinusoidal", "features": 1},
    ],
)
def test_every_tagger_answers_the_same(tmp_path: Path, more: dict[str, Any]) -> None:
    model = tagger(**more)
    given = sentences(features=more.get("features", 0))
    check(prove(model.portable(), given, tmp_path), 29, {"emission", "log_probability"}, more.get("kind", ""))


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"attention": "hard"},
        {"kind": "features"},
        {"kind": "features", "attention": "hard", "start": "zeros", "layers": 2},
        {"kind": "clip"},
        {"kind": "clip", "attention": "hard", "start": "zeros"},
        {"cell": "gru", "layers": 2, "share_output": True},
        {"cell": "rnn", "normalizer": "sparsemax"},
    ],
)
def test_every_captioner_writes_the_same(tmp_path: Path, more: dict[str, Any]) -> None:
    proof = prove(captioner(**more).portable(), pictures(more.get("kind", "picture")), tmp_path)
    assert proof.missed == []
    assert proof.found["log_probability"]["largest_difference"] < 1e-5
    assert proof.found["attention"]["largest_difference"] < 1e-5
    assert all(outputs["same"] + outputs["cut"] == 17 for outputs in proof.found["outputs"].values())


EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def run_example(name: str, folder: Path, lines: list[str], *arguments: str) -> list[str]:
    """Run an example program where torch can't be imported."""
    path = EXAMPLES / name
    script = f"import runpy, sys; sys.modules['torch'] = None; runpy.run_path({str(path)!r}, run_name='__main__')"
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(EXAMPLES)!r}); {script}", str(folder)]
    done = subprocess.run([*command, *arguments], input="\n".join(lines), capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


SAID = ["Fine, a b? c d", "A\tdull", "", "B\ta A b", "A\tpoor a c", "B\tk", "A\tz"]


def test_the_example_labels_documents_without_torch(tmp_path: Path) -> None:
    reader = DocumentReader(encoder("gru"), AttentionPooling(14))
    model = classifier(encoder("bag"), MeanPooling(EMBEDDED), document=reader, max_length=4, max_sentences=3)
    model = replace(model, spelling=Spelling(lowercase=True, split_punctuation=True))
    write(model.portable(), tmp_path, "float32")
    given = [[], ["a b"], ["a, b", "A c! d e f z"]]
    found = run_example("onnx_label.py", tmp_path, ["\t".join(sentences) for sentences in given])
    ours = model.predict([Text("\n".join(sentences)) for sentences in given])
    assert found == [f"{one.label} {one.probability:.3f}" for one in ours]


@pytest.mark.parametrize("kind", ["plain", "dialogue", "several"])
def test_the_example_labels_the_same_without_torch(tmp_path: Path, kind: str) -> None:
    before = RecurrentContext(14, 6) if kind == "dialogue" else None
    kinds: dict[str, dict[str, Any]] = {"several": {"separator": ",", "threshold": 0.3}, "dialogue": {"context": 3}}
    more = kinds.get(kind, {})
    model = classifier(encoder("gru"), MeanPooling(14), before, max_length=4, **more)
    model = replace(model, spelling=Spelling(lowercase=True, split_punctuation=True))
    write(model.portable(), tmp_path, "float32")
    found = run_example("onnx_label.py", tmp_path, SAID)
    (tmp_path / "said").write_text("\n".join(SAID), "utf-8")
    with pytest.warns(LongTextWarning):
        ours = model.predict(list(model.read(tmp_path / "said")))
    wanted = [[one.label] if kind != "several" else sorted(one.labels or [], key=LABELS.index) for one in ours]
    shown = [
        " ".join(f"{label} {one.probabilities[label]:.3f}" for label in labels)
        for one, labels in zip(ours, wanted, strict=True)
    ]
    assert [line for line in found if line or kind != "dialogue"] == shown


@pytest.mark.parametrize("has_documents", [False, True])
def test_the_example_tags_the_same_without_torch(tmp_path: Path, has_documents: bool) -> None:
    model = tagger("gru", documents=has_documents, allowed=ALLOWED_BIO)
    lines = ["Anna c4 bee DD anna ANNA", "ß " + "xy" * 30, "e-f"]
    write(model.portable(), tmp_path, "float32")
    wanted = "".join(f"{one.line()}\n" for one in model.predict(lines)).splitlines()
    assert run_example("onnx_label.py", tmp_path, lines) == wanted


@pytest.mark.parametrize("kind", ["picture", "clip", "features"])
def test_the_example_describes_the_same_without_torch(tmp_path: Path, kind: str) -> None:
    model, names = captioner(kind=kind, attention="hard"), []
    for seen, _ in pictures(kind)[:3]:
        names.append(str(tmp_path / f"{seen.name}.npy"))
        np.save(names[-1], seen.source)
    write(model.portable(), tmp_path, "float32")
    sources = [np.load(name) for name in names]
    ours = search_ours(cast(Stepper, model.model), sources, 3, 9, model.portable().join)
    found = run_example("onnx_translate.py", tmp_path, names, "--beam", "3", "--limit", "9")
    assert found == [CAPTIONS.decode(ids) for ids in ours]
