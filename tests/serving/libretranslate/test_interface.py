"""LibreTranslate's documented interface, route by route, against a live server: fields, types, statuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from saccade.serving.libretranslate.routes import FORMATS
from saccade.serving.models import ServedRun
from servers import Serving, serving

ASKED = {"q": "a b c", "source": "en", "target": "fr"}
ENGLISH = "Where is the nearest station? Thank you."
NEEDED = {"/translate": ("q", "source", "target"), "/detect": ("q",)}


def test_languages_name_every_code_that_is_a_source_or_a_target(translating: list[ServedRun]) -> None:
    """A front end looks every target up among the codes, as clients do with the source and the target that they ask."""
    with serving(translating[:1]) as one_way:
        found = one_way.client.get("/languages").json()
    assert found == [
        {"code": "en", "name": "English", "targets": ["en", "fr"]},
        {"code": "fr", "name": "French", "targets": []},
    ]
    codes = {language["code"] for language in found}
    assert all(target in codes for language in found for target in language["targets"])


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("alternatives", [0, 2])
@pytest.mark.parametrize("source", ["en", "auto"])
@pytest.mark.parametrize("is_list", [False, True], ids=["text", "list"])
def test_a_translation_has_the_fields_that_were_asked_for(
    served: Serving, kind: str, alternatives: int, source: str, is_list: bool
) -> None:
    q: Any = [ENGLISH, "Thank you."] if is_list else ENGLISH
    found = served.post("/translate", q=q, source=source, target="fr", format=kind, alternatives=alternatives)
    assert (found.status_code, found.headers["content-type"]) == (200, "application/json")
    columns = found.json()
    rows = (
        [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)] if is_list else [columns]
    )
    assert len(rows) == (2 if is_list else 1)
    for row in rows:
        wanted: dict[str, type] = {"translatedText": str}
        wanted |= {"alternatives": list} if alternatives else {}
        wanted |= {"detectedLanguage": dict} if source == "auto" else {}
        assert {name: type(value) for name, value in row.items()} == wanted
        assert len(row.get("alternatives", [])) <= alternatives
        if source == "auto":
            assert row["detectedLanguage"]["language"] == "en"
            assert 0 < row["detectedLanguage"]["confidence"] <= 100


@pytest.mark.parametrize("path", NEEDED)
@pytest.mark.parametrize("way", ["json", "data", "params"])
def test_what_is_missing_is_named_in_every_way_of_asking(served: Serving, path: str, way: str) -> None:
    for name in NEEDED[path]:
        given: dict[str, Any] = {way: {key: value for key, value in ASKED.items() if key != name}}
        found = served.client.post(path, **given)
        assert (found.status_code, found.json()) == (400, {"error": f"Invalid request: missing {name} parameter"})
    assert served.client.get(path, params=ASKED).status_code == 405


@pytest.mark.parametrize("kind", FORMATS)
def test_what_has_no_words_is_its_own_translation(served: Serving, kind: str) -> None:
    smiles = ["\N{GRINNING FACE}", " \u2026 ", "*** \u00a1! ***"]
    found = served.post("/translate", q=smiles, source="en", target="fr", format=kind).json()
    assert found["translatedText"] == smiles
    assert served.post("/v1/translate", q=smiles[0]).json()["translations"][0]["text"] == smiles[0]


def test_several_texts_are_of_one_language(served: Serving) -> None:
    french = "Où est la gare, s'il vous plaît ?"
    assert served.post("/detect", q=[french, "Merci beaucoup."]).json()[0]["language"] == "fr"
    for q, said in (([], "missing q parameter"), ([1], "q parameter is not a string, nor a list of strings")):
        found = served.post("/detect", q=q)
        assert (found.status_code, found.json()) == (400, {"error": f"Invalid request: {said}"})


def test_who_asks_for_files_is_told_that_there_are_none(served: Serving) -> None:
    """As a LibreTranslate whose operator has switched them off, which /frontend/settings says as well."""
    said = {"error": "Files translation are disabled on this server."}
    file = {"file": ("test.txt", b"a b c")}
    found = served.client.post("/translate_file", data={"source": "en", "target": "fr"}, files=file)
    assert (found.status_code, found.json()) == (403, said)
    found = served.client.get("/download_file/test.txt")
    assert (found.status_code, found.json()) == (400, said)
    settings = served.client.get("/frontend/settings").json()
    assert (settings["filesTranslation"], settings["supportedFilesFormat"]) == (False, [])


def test_an_operators_limits_are_told(translating: list[ServedRun]) -> None:
    with serving(translating, max_characters=6, max_texts=2) as small:
        assert small.client.get("/frontend/settings").json()["charLimit"] == 6
        assert small.post("/translate", **{**ASKED, "q": "a b c"}).status_code == 200
        for q, size in (("a b c d", "7"), (["a b c", "d e"], "8"), (["a", "b", "c"], "3")):
            found = small.post("/translate", **{**ASKED, "q": q})
            limit = 2 if size == "3" else 6
            said = f"Invalid request: request ({size}) exceeds text limit ({limit})"
            assert (found.status_code, found.json()) == (400, {"error": said})
            assert small.post("/detect", q=q).json() == {"error": said}


def test_a_list_of_html_stays_a_list_of_html(served: Serving) -> None:
    found = served.post("/translate", **{**ASKED, "q": ["<p>a b</p>", "<i>c</i>"]}, format="html").json()
    first, second = found["translatedText"]
    assert (first[:3], first[-4:], second[:3], second[-4:]) == ("<p>", "</p>", "<i>", "</i>")


def test_detections_are_sorted(served: Serving) -> None:
    found = served.post("/detect", q=ENGLISH).json()
    assert [set(one) for one in found] == [{"confidence", "language"}] * 2
    assert found[0]["language"] == "en"
    assert found[0]["confidence"] > found[1]["confidence"] >= 0


def test_a_text_of_another_language_is_translated_with_a_low_confidence(served: Serving) -> None:
    german = "Wo ist bitte der nächste Bahnhof?"
    found = served.post("/translate", q=german, source="auto", target="fr").json()
    assert found["detectedLanguage"]["confidence"] < 10
    assert served.post("/detect", q=german).json()[0]["confidence"] < 10


@pytest.mark.parametrize("code", ["en", "EN", "en-US", "en_GB", "En-latn-us"])
def test_variants_of_a_language_fall_back_to_it(served: Serving, code: str) -> None:
    assert served.post("/translate", **{**ASKED, "source": code}).json() == served.post("/translate", **ASKED).json()
    found = served.post("/v1/translate", q="a", source=code, target="fr-CA").json()
    assert (found["source"], found["target"]) == ("en", "fr")
    assert served.post("/translate", **{**ASKED, "source": "eng"}).json() == {"error": "eng is not supported"}


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "application/vnd.api+json", "text/plain", ""])
def test_json_is_read_under_any_name(served: Serving, kind: str) -> None:
    body = b' {"q": "a b c", "source": "en", "target": "fr"}'
    found = served.client.post("/translate", content=body, headers={"Content-Type": kind})
    assert found.json() == served.post("/translate", **ASKED).json()
    text = served.client.post("/translate", params=ASKED, content=b"no object", headers={"Content-Type": "text/plain"})
    assert text.json() == found.json()


def test_settings_health_and_the_specification(served: Serving) -> None:
    wanted = {
        "apiKeys": bool, "charLimit": int, "filesTranslation": bool, "frontendTimeout": int, "keyRequired": bool,
        "language": dict, "suggestions": bool, "supportedFilesFormat": list,
    }  # fmt: skip
    settings = served.client.get("/frontend/settings").json()
    assert {name: type(value) for name, value in settings.items()} == wanted
    assert served.client.get("/health").json() == {"status": "ok"}
    paths = served.client.get("/spec").json()["paths"]
    assert {"/translate", "/detect", "/languages", "/frontend/settings", "/suggest", "/health"} <= set(paths)


def test_suggestions_are_private_and_under_the_languages_of_the_server(
    translating: list[ServedRun], tmp_path: Path
) -> None:
    path = tmp_path / "better.jsonl"
    with serving(translating, suggestions=path) as collecting:
        assert path.stat().st_mode & 0o077 == 0
        for name in ("q", "s", "source", "target"):
            asked = {key: value for key, value in {**ASKED, "s": "x"}.items() if key != name}
            found = collecting.post("/suggest", **asked)
            assert (found.status_code, found.json()) == (400, {"error": f"Invalid request: missing {name} parameter"})
        assert collecting.post("/suggest", **{**ASKED, "target": "fr-CA"}, s="x").json() == {"success": True}
    assert '"to": "fr"' in path.read_text("utf-8")
