"""LibreTranslate's interface: what its clients ask, in every way they ask it, and what they are told."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest

from saccade.serving.models import ServedRun
from servers import Serving, predictor_of, serving

ASKED = {"q": "a b c", "source": "en", "target": "fr"}


@pytest.fixture(scope="module")
def right(translating: list[ServedRun]) -> str:
    return predictor_of(translating[0]).predict(["a b c"])[0].text


def test_json_form_and_query_string_are_the_same(served: Serving, right: str) -> None:
    ways: list[dict[str, Any]] = [
        {"json": ASKED},
        {"data": ASKED},
        {"params": ASKED},
        {"files": {name: (None, value) for name, value in ASKED.items()}},
    ]
    for way in ways:
        found = served.client.post("/translate", **way)
        assert found.status_code == 200, found.text
        assert found.json() == {"translatedText": right}, way


def test_a_list_gets_lists(served: Serving, translating: list[ServedRun]) -> None:
    texts = ["a b", "c", "", "d e f"]
    found = served.post("/translate", **{**ASKED, "q": texts}, alternatives=1).json()
    best = predictor_of(translating[0]).predict_best(texts, num_best=2, width=2)
    assert found["translatedText"] == [one[0].text for one in best]
    assert [len(one) for one in found["alternatives"]] == [1, 1, 0, 1]
    english = ["Where is the station?", "Thank you very much."]
    found = served.post("/translate", q=english, source="auto", target="fr").json()
    assert [one["language"] for one in found["detectedLanguage"]] == ["en", "en"]


def test_alternatives_are_the_next_best(served: Serving, translating: list[ServedRun]) -> None:
    found = served.post("/translate", **ASKED, alternatives=3).json()
    (best,) = predictor_of(translating[0]).predict_best(["a b c"], num_best=4, width=4)
    assert [found["translatedText"], *found["alternatives"]] == [one.text for one in best]
    assert "detectedLanguage" not in found
    for given in (3.0, "3", "03"):
        assert served.post("/translate", **ASKED, alternatives=given).json() == found
    for none in (0, -1, "-1", "", None):
        assert "alternatives" not in served.post("/translate", **ASKED, alternatives=none).json()


def test_auto_finds_the_language_among_those_that_can_be_translated(served: Serving) -> None:
    english = {"q": "Where is the nearest station? Thank you.", "source": "auto"}
    found = served.post("/translate", **english, target="fr").json()
    assert found["detectedLanguage"]["language"] == "en"
    assert found["detectedLanguage"]["confidence"] > 90
    same = served.post("/translate", **english, target="en").json()
    assert same["translatedText"] == english["q"]  # it is English already


def test_long_texts_keep_their_white_space(served: Serving, translating: list[ServedRun]) -> None:
    text = "  a b.\n\n\tc d?  E f \n"
    found = served.post("/translate", **{**ASKED, "q": text}).json()["translatedText"]
    first, second, third = (one.text for one in predictor_of(translating[0]).predict(["a b.", "c d?  E f"[:4], "E f"]))
    assert found == f"  {first}\n\n\t{second}  {third} \n"


def test_html_keeps_its_tags(served: Serving, right: str) -> None:
    found = served.post("/translate", **{**ASKED, "q": "<p>a b c</p><script>a b c</script>"}, format="html").json()
    assert found["translatedText"] == f"<p>{right}</p><script>a b c</script>".replace("<unk>", "&lt;unk&gt;")


def test_inline_tags_come_back_in_every_alternative(served: Serving, translating: list[ServedRun]) -> None:
    asked = {**ASKED, "q": "a <b>b c</b> d", "format": "html", "alternatives": 2}
    found = served.post("/translate", **asked).json()
    (best,) = predictor_of(translating[0]).predict_best(["a b c d"], num_best=3, width=3)
    assert any(one.text for one in best)
    for html, one in zip([found["translatedText"], *found["alternatives"]], best, strict=True):
        assert unescape(re.sub("</?b>", "", html)) == one.text
        assert html.count("<b>") == html.count("</b>") >= (1 if one.text else 0)


def test_what_front_ends_ask(served: Serving) -> None:
    assert served.client.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["en", "fr"]},
        {"code": "fr", "name": "French", "targets": ["en", "fr"]},
    ]
    settings = served.client.get("/frontend/settings").json()
    assert settings["charLimit"] == 20_000
    assert settings["language"]["target"] == {"code": "fr", "name": "French"}
    assert (settings["keyRequired"], settings["suggestions"], settings["filesTranslation"]) == (False, False, False)
    assert served.client.get("/health").json() == {"status": "ok"}
    assert "/translate" in served.client.get("/spec").json()["paths"]


@pytest.mark.parametrize("way", ["json", "data", "params"])
def test_detect(served: Serving, way: str) -> None:
    asked: dict[str, Any] = {way: {"q": "Où est la gare, s'il vous plaît ?"}}
    best, other = served.client.post("/detect", **asked).json()
    assert (best["language"], other["language"]) == ("fr", "en")
    assert 50 < best["confidence"] <= 100


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"q": None}, 400, "Invalid request: missing q parameter"),
        ({"q": ""}, 400, "Invalid request: missing q parameter"),
        ({"q": []}, 400, "Invalid request: missing q parameter"),
        ({"q": 5}, 400, "Invalid request: q parameter is not a string, nor a list of strings"),
        ({"q": ["a", 5]}, 400, "Invalid request: q parameter is not a string, nor a list of strings"),
        ({"q": {"a": "b"}}, 400, "Invalid request: q parameter is not a string, nor a list of strings"),
        ({"source": None}, 400, "Invalid request: missing source parameter"),
        ({"target": None}, 400, "Invalid request: missing target parameter"),
        ({"target": ["fr"]}, 400, "Invalid request: target parameter is not a string"),
        ({"api_key": 5}, 400, "Invalid request: api_key parameter is not a string"),
        ({"source": "zz"}, 400, "zz is not supported"),
        ({"target": "zz"}, 400, "zz is not supported"),
        ({"target": "auto"}, 400, "auto is not supported"),
        ({"format": "xml"}, 400, "xml format is not supported"),
        ({"alternatives": "many"}, 400, "Invalid request: alternatives parameter is not a whole number"),
        ({"alternatives": [1]}, 400, "Invalid request: alternatives parameter is not a whole number"),
        ({"alternatives": 1.5}, 400, "Invalid request: alternatives parameter is not a whole number"),
        ({"alternatives": True}, 400, "Invalid request: alternatives parameter is not a whole number"),
        ({"alternatives": []}, 400, "Invalid request: alternatives parameter is not a whole number"),
        ({"alternatives": "1_0"}, 400, "Invalid request: alternatives parameter is not a whole number"),
        ({"alternatives": "9" * 5000}, 400, "Invalid request: alternatives parameter is not a whole number"),
        ({"alternatives": "16"}, 400, "Invalid request: alternatives parameter must be <= 15"),
        ({"alternatives": 1e300}, 400, "Invalid request: alternatives parameter must be <= 15"),
        ({"format": 0}, 400, "0 format is not supported"),
        ({"alternatives": 16}, 400, "Invalid request: alternatives parameter must be <= 15"),
        ({"q": "x" * 20_001}, 400, "Invalid request: request (20001) exceeds text limit (20000)"),
        ({"q": ["x"] * 257}, 400, "Invalid request: request (257) exceeds text limit (256)"),
        ({"q": "<b>" * 101, "format": "html"}, 400, "Invalid request: q is nested too deeply; allowed: 100 elements"),
    ],
)
def test_what_is_wrong_is_said(served: Serving, change: dict[str, Any], status: int, message: str) -> None:
    asked = {name: value for name, value in {**ASKED, **change}.items() if value is not None}
    found = served.post("/translate", **asked)
    assert (found.status_code, found.json()) == (status, {"error": message})


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'"a"', b'{"q": "\xff"}', b"[" * 70_000,
     b'{"a":' * 70_000, b'{"q": 1' + b"0" * 9999 + b"}"],
)  # fmt: skip
def test_what_is_no_json_object_is_refused(served: Serving, content: bytes) -> None:
    found = served.client.post("/translate", content=content, headers={"Content-Type": "application/json"})
    assert (found.status_code, found.json()) == (400, {"error": "Invalid JSON format"})


def test_a_form_with_too_many_fields_is_refused(served: Serving) -> None:
    found = served.client.post("/translate", data={f"f{number}": "x" for number in range(50)})
    assert (found.status_code, found.json()) == (400, {"error": "Invalid request: more than 32 fields"})


def test_a_pair_that_nobody_translates_is_named(translating: list[ServedRun]) -> None:
    with serving(translating[:1]) as one_way:
        found = one_way.post("/translate", q="a", source="fr", target="en")
    said = "English (en) is not available as a target language from French (fr)"
    assert (found.status_code, found.json()) == (400, {"error": said})


def test_suggestions_are_kept_where_the_operator_wants_them(
    served: Serving, translating: list[ServedRun], tmp_path: Path
) -> None:
    better = {"q": "a b", "s": "c « d »\n", "source": "en", "target": "fr"}
    refused = served.client.post("/suggest", data=better)
    assert (refused.status_code, refused.json()) == (403, {"error": "Suggestions are disabled on this server."})
    path = tmp_path / "better.jsonl"
    with serving(translating[:1], suggestions=path) as collecting:
        assert collecting.client.post("/suggest", data=better).json() == {"success": True}
        assert collecting.post("/suggest", **{**better, "target": "../x"}).status_code == 400
        assert collecting.client.get("/frontend/settings").json()["suggestions"] is True
    (line,) = path.read_text("utf-8").splitlines()
    assert json.loads(line) == {"source": "a b", "target": "c « d »\n", "from": "en", "to": "fr"}


def test_unknown_addresses_and_methods_speak_json(served: Serving) -> None:
    assert served.client.get("/nowhere").json() == {"error": "Not Found"}
    assert served.client.get("/translate").json() == {"error": "Method Not Allowed"}
    assert isinstance(served.client.get("/nowhere"), httpx.Response)
