"""Every format and every family of models: what it takes is proved by its real engine, the rest is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from exports import (
    EMBEDDED,
    SOURCE,
    TARGET,
    captioner,
    classifier,
    encoder,
    listed,
    phrases,
    pictures,
    pieces,
    portable,
    random_pairs,
    recurrent,
    sentences,
    tagger,
    texts,
    transformer,
)
from saccade.data.text.corpus import Pair
from saccade.data.text.tokenizer import SPECIAL, Tokenizer, Vocabulary
from saccade.errors import UserError
from saccade.export.formats import FORMATS, check_format, list_possible
from saccade.export.write import export
from saccade.inspection.insight import Head
from saccade.layers.dialogue import RecurrentContext
from saccade.layers.pooling import AttentionPooling, StructuredPooling
from saccade.models.pointing.copying import CopyingModel
from saccade.tasks.base import Portable, PortablePass, ScoredSet

LANGUAGES = ("de", "fr")
CHARACTERS = Vocabulary([*SPECIAL, *"abc defg"], "characters")


class Family(NamedTuple):
    """A kind of models: one of them, what it is scored on, and the formats that take it."""

    make: Callable[[], Portable | PortablePass]
    scored: Callable[[], ScoredSet]
    formats: str


def on_pieces(kind: str = "unigram", **sizes: Any) -> Portable:
    both = (pieces(kind), pieces(kind))
    return portable(transformer(vocabularies=both, **sizes), *both, languages=LANGUAGES, aligning=Head(1, 2))


def on_symbols(source: Tokenizer = SOURCE, target: Tokenizer = TARGET, **sizes: Any) -> Portable:
    return portable(transformer(vocabularies=(source, target), **sizes), source, target, languages=LANGUAGES)


def two_pieces(**sizes: Any) -> Portable:
    both = (pieces(), pieces("bpe"))
    return portable(transformer(vocabularies=both, **sizes), *both, languages=LANGUAGES)


def on_list() -> Portable:
    both = (listed(), listed())
    return portable(transformer(norm="post", vocabularies=both, tied="three"), *both, languages=LANGUAGES)


def copying() -> Portable:
    network = transformer()
    return portable(CopyingModel(network, width=24, source_width=24, score="additive"), languages=LANGUAGES)


def hearing() -> Portable:
    network = recurrent()
    network.source = torch.nn.Linear(3, 10)
    return portable(network, object(), languages=LANGUAGES)  # it has features in the place of a tokenizer


def random_ids() -> ScoredSet:
    return random_pairs(7)


def spelled() -> ScoredSet:
    return ScoredSet("spelled", [Pair("abc de", "g f"), Pair("d", "abcdefg abc"), Pair("x a", "b")])


def shouted() -> ScoredSet:
    return phrases(5, shout=True)


def five() -> ScoredSet:
    return phrases(5)


def upper() -> ScoredSet:
    """Shout; without full stops, at which Argos splits what goes on with a capital."""
    return ScoredSet("upper", [Pair(*(text.upper().replace(".", ",") for text in pair)) for pair in phrases(5).pairs])


def examples(made: list[Any]) -> Callable[[], ScoredSet]:
    return lambda: ScoredSet("drawn", made)


ALL = "ctranslate2 huggingface onnx argos"
FAMILIES = {
    "post-norm, sinusoidal, gelu": Family(lambda: on_pieces(norm="post", activation="gelu"), five, ALL),
    "pre-norm, sinusoidal, relu": Family(on_pieces, five, ALL),
    "one matrix, silu": Family(lambda: on_pieces(tied="three", activation="silu"), five, ALL),
    "three matrices, general score": Family(lambda: on_pieces(tied="none", norm="post", score="general"), five, ALL),
    "BPE, relu": Family(lambda: on_pieces("bpe", norm="post"), upper, ALL),
    "sines before cosines": Family(lambda: on_pieces(positions="sinusoidal_halves", norm="post"), five, ALL),
    "learned": Family(lambda: on_pieces(positions="learned"), five, "ctranslate2 huggingface onnx"),
    "two vocabularies": Family(lambda: two_pieces(norm="post"), shouted, "ctranslate2 huggingface onnx"),
    "two vocabularies, pre-norm": Family(two_pieces, shouted, "ctranslate2 onnx"),
    "rotary, swiglu": Family(
        lambda: on_pieces(positions="rotary", activation="swiglu"), five, "ctranslate2 onnx argos"
    ),
    "relative, post-norm": Family(lambda: on_pieces(positions="relative", norm="post"), five, "ctranslate2 onnx argos"),
    "words": Family(on_symbols, random_ids, "ctranslate2 onnx"),
    "characters": Family(lambda: on_symbols(CHARACTERS, CHARACTERS), spelled, "ctranslate2 onnx"),
    "listed pieces": Family(on_list, five, "ctranslate2 onnx"),
    "window": Family(lambda: on_pieces(window=2), five, "onnx"),
    "additive score": Family(lambda: on_pieces(score="additive"), five, "onnx"),
    "sparse weights": Family(lambda: on_pieces(normalizer="entmax15"), five, "onnx"),
    "Bahdanau's RNN": Family(lambda: portable(recurrent("bahdanau")), random_ids, "onnx"),
    "Luong's RNN": Family(lambda: portable(recurrent("luong", cell="lstm")), random_ids, "onnx"),
    "RNN without attention": Family(lambda: portable(recurrent("none")), random_ids, "onnx"),
    "bag of words to a label": Family(
        lambda: classifier(encoder("bag"), AttentionPooling(EMBEDDED)).portable(), examples(texts(9)), "onnx"
    ),
    "dialogue to labels": Family(
        lambda: classifier(
            encoder("lstm"), StructuredPooling(14, num_hops=2, hidden_width=5), RecurrentContext(28, 6), context=2
        ).portable(),
        examples(texts(9)),
        "onnx",
    ),
    "tags, RNN": Family(lambda: tagger().portable(), examples(sentences(9)), "onnx"),
    "tags, Transformer": Family(
        lambda: tagger("transformer", positions="relative").portable(), examples(sentences(9)), "onnx"
    ),
    "picture to sentence": Family(lambda: captioner().portable(), examples(pictures()), "onnx"),
    "features to sentence, hard": Family(
        lambda: captioner(kind="features", attention="hard").portable(), examples(pictures("features")), "onnx"
    ),
    "copying": Family(copying, random_ids, ""),
    "sound to text": Family(hearing, random_ids, ""),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_what_a_format_takes(name: str) -> None:
    assert list_possible(FAMILIES[name].make()) == [one for one in FORMATS if one in FAMILIES[name].formats.split()]


@pytest.mark.parametrize("name", FAMILIES)
def test_what_a_format_leaves_has_a_reason(name: str) -> None:
    """One line: the format, the reason, and the formats that can."""
    model, taken = FAMILIES[name].make(), FAMILIES[name].formats.split()
    for to in FORMATS.keys() - taken:
        with pytest.raises(UserError, match=rf"^{to} can't say .+; formats that can: ") as refused:
            check_format(to, model)
        assert str(refused.value).endswith(", ".join(one for one in FORMATS if one in taken) or "none")


PAIRS = [(name, one) for name, family in FAMILIES.items() for one in family.formats.split()]
QUANTIZED = [(name, one, kind) for name, one in PAIRS for kind in FORMATS[one].quantizations]


@pytest.mark.parametrize(("name", "to", "quantization"), QUANTIZED)
def test_its_engine_proves_it(tmp_path: Path, name: str, to: str, quantization: str) -> None:
    family, out = FAMILIES[name], tmp_path / f"out{FORMATS[to].ending}"
    proof = export(to, family.make(), out, quantization=quantization, scored=family.scored(), most=9, say=print)
    assert [one for one in proof.missed if not one.endswith("apart")] == []  # int8 is judged by scores of real models
    if quantization == "float32":
        assert proof.missed == []
        for counted in [*proof.found.get("outputs", {}).values(), proof.found.get("answers", {})]:
            assert counted.get("different", 0) == counted.get("tied", 0) == 0
    if to == "argos":
        assert proof.found["program"]["same_as_engine"] == proof.found["program"]["of"]


def test_the_matrix_has_every_format() -> None:
    assert {one for _, one in PAIRS} == set(FORMATS)
