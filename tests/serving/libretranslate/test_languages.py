"""Names of languages, and which one a text is written in."""

from __future__ import annotations

import pytest

from saccade.data.text.languages import CODE, NAMES, name_of
from saccade.serving.libretranslate.detection import Detector

GREETINGS = {
    "en": "Where is the nearest railway station, please?",
    "fr": "Où est la gare la plus proche, s'il vous plaît ?",
    "de": "Wo ist bitte der nächste Bahnhof?",
}


@pytest.fixture(scope="module")
def detector() -> Detector:
    return Detector(["en", "fr", "de", "zh-Hans", "tlh"])


@pytest.mark.parametrize("code", list(GREETINGS))
def test_texts_are_told_apart(detector: Detector, code: str) -> None:
    best, *others = detector.detect(GREETINGS[code])
    assert best.language == code
    assert best.confidence > 80
    assert all(other.confidence < best.confidence for other in others)
    assert sum(one.confidence for one in detector.detect(GREETINGS[code])) == pytest.approx(100, abs=2)


def test_a_text_of_another_language_is_none_of_them() -> None:
    english = Detector(["en", "fr"])
    for text in (GREETINGS["de"], "Der Zug fährt heute leider nicht.", "你好，世界", "Добрый день, как дела?"):
        assert english.detect(text)[0].confidence < 10
    assert english.detect("The black cats sleep.")[0].confidence > 80
    both = Detector(["en", "fr", "de"])
    assert both.detect(GREETINGS["de"])[0].language == "de"
    assert both.detect(GREETINGS["de"], ["en", "fr"])[0].confidence < 10


def test_only_the_languages_that_may_be_are_considered(detector: Detector) -> None:
    assert detector.detect(GREETINGS["de"], ["en", "fr"])[0].language in ("en", "fr")
    assert detector.detect("你好，世界")[0].language == "zh-Hans"
    assert detector.detect("nuqneH")[-1] == ("tlh", 0.0)  # nobody can tell, but it is one of them
    assert Detector(["tlh"]).detect("Hello") == [("tlh", 0.0)]


@pytest.mark.parametrize("text", ["", " ", "12", "\x00", "\u202e", "\ud800", "a" * 100_000])
def test_any_text_has_an_answer(detector: Detector, text: str) -> None:
    assert len(detector.detect(text)) == 5


def test_names() -> None:
    assert (name_of("fr"), name_of("zh-Hans"), name_of("tlh")) == ("French", "Chinese", "tlh")
    assert all(CODE.fullmatch(code) and name[0].isupper() for code, name in NAMES.items())
