"""Packages for Argos Translate, judged by Argos Translate (the one that LibreTranslate installs) without a network."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from minisbd import SBDetect

from exports import phrases, pieces, portable, transformer
from saccade.attention.positions import Learned
from saccade.data.text import sentences
from saccade.errors import UserError
from saccade.export import argos
from saccade.export.proof import Proof
from saccade.export.splitter import make_splitter
from saccade.export.write import export
from saccade.tasks.base import Portable

LANGUAGES = ("de", "fr")


def prove(model: Portable, out: Path) -> Proof:
    return export("argos", model, out, quantization="float32", scored=phrases(6), most=9, say=lambda what: None)


def model(**more: object) -> Portable:
    both = (pieces(), pieces())
    network = transformer(tied="three", positions="rotary", activation="swiglu", vocabularies=both)
    return portable(network, *both, **{"languages": LANGUAGES, **more})


def test_argos_installs_a_package_and_translates_offline(tmp_path: Path) -> None:
    proof = prove(model(), tmp_path / "out.argosmodel")
    assert proof.missed == []
    assert proof.found["program"]["name"] == "argos-translate-lt"
    assert proof.found["program"]["same_as_engine"] == proof.found["program"]["of"] == 6
    assert json.loads((tmp_path / "out.proof.json").read_text("utf-8")) == proof.plain()
    assert {path.name for path in tmp_path.iterdir()} == {"out.argosmodel", "out.proof.json"}


def test_a_package_is_one_folder_with_all_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(argos, "PROGRAM", "not-installed")
    proof = prove(model(), tmp_path / "out.argosmodel")
    assert proof.found["program"] is None  # it is packed and proved without Argos, too
    with zipfile.ZipFile(tmp_path / "out.argosmodel") as packed:
        names = packed.namelist()
        metadata = json.loads(packed.read("translate_de_fr/metadata.json"))
    assert {name.split("/")[0] for name in names} == {"translate_de_fr"}
    assert {"translate_de_fr/minisbd/rules.onnx", "translate_de_fr/model/model.bin"} <= set(names)
    assert (metadata["from_name"], metadata["to_name"]) == ("German", "French")


def test_what_a_package_cannot_say_has_a_reason() -> None:
    assert argos.refuse(model()) is None
    assert "a run whose languages are not known" in str(argos.refuse(model()._replace(languages=None)))
    assert "tokenizer.shared: false" in str(argos.refuse(model()._replace(target=pieces("bpe"))))


def test_positions_that_end_are_refused() -> None:
    """Argos would fail in the middle of a text."""
    both = (pieces(), pieces())
    network = transformer(positions="learned", vocabularies=both)
    made = portable(network, *both, languages=LANGUAGES)
    assert "model.positions: learned, up to 64" in str(argos.refuse(made))
    network.positions = Learned(24, max_length=1024)
    assert argos.refuse(made) is None


def test_words_are_refused() -> None:
    assert "words or characters" in str(argos.refuse(portable(transformer(), languages=LANGUAGES)))


def test_a_package_is_a_file_with_its_ending(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"give it a name that ends with \.argosmodel"):
        prove(model(), tmp_path / "out")


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> SBDetect:
    path = tmp_path_factory.mktemp("splitter") / "rules.onnx"
    path.write_bytes(make_splitter("en"))
    return SBDetect(str(path), use_gpu=False, max_threads=1)


@pytest.mark.parametrize(
    "text",
    [
        "Hello there. How are you?  I am fine!",
        "Dr. Smith met J. K. Rowling at 5 p.m. and left. It rained.",
        '"Is it?" He left. (Yes.) "No..." And then? “Well.” Good',
        "Er kam, z.B. gestern. Dann ging er.",
        "你好。世界！再见",
        "Что это? Это дом. Ага",
        "It costs 3.5 euros. Buy it! no",
        "one only",
    ],
)
def test_the_splitter_splits_as_the_server_does(detector: SBDetect, text: str) -> None:
    assert detector.sentences(text) == [part.text for part in sentences.split(text)]


def test_links_and_long_texts_are_split_too(detector: SBDetect) -> None:
    assert detector.sentences("Visit www.a.com. Or b@c.de. Now") == ["Visit www.a.com.", "Or b@c.de.", "Now"]
    assert detector.sentences("This is a sentence of some length. " * 80) == ["This is a sentence of some length."] * 80
