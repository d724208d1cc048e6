"""Words that people insist on, over HTTP: glossaries of requests and of the server, placeholders in texts and HTML."""

from __future__ import annotations

from pathlib import Path

import pytest

from runs import make_run
from saccade.errors import UserError
from saccade.serving.models import load_runs
from servers import Serving, serving

PAIR = {"source": "en", "target": "fr"}


def test_v1_takes_a_glossary_and_tells_how_it_was_used(served: Serving) -> None:
    body = {"q": ["a b c", "d"], "glossary": {"b": "h e", "zebra": "g"}, "model": "there"}
    first, second = served.client.post("/v1/translate", json=body).json()["translations"]
    assert " h e " in f" {first['text']} "
    assert first["sentences"][0]["terms"] == [{"source": "b", "target": "h e", "way": "as asked"}]
    assert "terms" not in second["sentences"][0]
    both = served.client.post("/v1/translate", json={**body, "alignment": True, "tokens": True, "num_best": 2})
    shown = both.json()["translations"][0]["sentences"][0]
    assert " h e " in f" {shown['text']} "
    assert shown["alignment"]
    assert len(shown["tokens"]) >= 3


@pytest.mark.parametrize("split", [True, False])
def test_v1_keeps_placeholders_unless_told(served: Serving, split: bool) -> None:
    body = {"q": "a {0} b. c %s <x id='1'/> d.", "model": "there", "split": split}
    found = served.client.post("/v1/translate", json={**body, "tokens": True, "alignment": True}).json()[
        "translations"
    ][0]
    assert [found["text"].count(one) for one in ("{0}", "%s", "<x id='1'/>")] == [1, 1, 1]
    assert {one["text"] for sentence in found["sentences"] for one in sentence["kept"]} == {"{0}", "%s", "<x id='1'/>"}
    other = served.client.post("/v1/translate", json={**body, "placeholders": "ignore"}).json()["translations"][0]
    assert "{0}" not in other["text"]


def test_libretranslate_takes_a_glossary_as_json_or_in_a_form(served: Serving) -> None:
    query = {"q": "a b c {0}", **PAIR}
    as_json = served.client.post("/translate", json={**query, "glossary": {"b": "h e"}, "alternatives": 1}).json()
    as_form = served.client.post("/translate", data={**query, "glossary": '{"b": "h e"}', "alternatives": "1"}).json()
    assert as_json == as_form
    for text in (as_json["translatedText"], *as_json["alternatives"]):
        assert " h e " in f" {text} "
        assert text.count("{0}") == 1


def test_html_keeps_placeholders_and_tags(served: Serving) -> None:
    query = {"q": "<p>a <b>b {0}</b> c %s</p>", **PAIR, "format": "html"}
    text = served.client.post("/translate", json=query).json()["translatedText"]
    assert all(text.count(one) == 1 for one in ("{0}", "%s"))
    assert text.count("<b>") == text.count("</b>") >= 1


@pytest.mark.parametrize(
    ("glossary", "message"),
    [
        ("[1]", "glossary parameter is not an object of strings"),
        ("{", "glossary parameter is not JSON"),
        ({"b": 1}, "glossary parameter is not an object of strings"),
        ({"b": " "}, "glossary: 'b': its target is blank; both sides must have text"),
        ({f"w{number}": "h" for number in range(1001)}, "glossary parameter has 1001 terms"),
    ],
)
def test_mistakes_are_answered_with_400(served: Serving, glossary: object, message: str) -> None:
    answer = served.client.post("/translate", json={"q": "a b", **PAIR, "glossary": glossary})
    assert answer.status_code == 400
    assert message in answer.json()["error"]


def test_a_server_has_a_glossary_of_its_own(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "languages.source=en", "languages.target=fr")
    (tmp_path / "terms.tsv").write_text("b\th e\nc\tg\n", encoding="utf-8")
    with serving(load_runs([run], glossaries=[str(tmp_path / "terms.tsv")])) as served:
        own = served.client.post("/translate", json={"q": "a b", **PAIR}).json()["translatedText"]
        other = served.client.post("/translate", json={"q": "b c", **PAIR, "glossary": {"b": "d f"}}).json()
    assert " h e " in f" {own} "
    assert " d f " in f" {other['translatedText']} "
    assert " g " in f" {other['translatedText']} "
    for given, message in {f"{tmp_path}/other=x.tsv": "is not one of the given runs", "none.tsv": "no file"}.items():
        with pytest.raises(UserError, match=message):
            load_runs([run], glossaries=[given])
    with pytest.raises(UserError, match="given for several runs"):
        load_runs([run, run], glossaries=["terms.tsv"])
