"""Runs whose texts are no sentences, and runs without languages: what they are given, and where they are served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rich.console import Console

from runs import make_run
from saccade.errors import UserError
from saccade.runs import config as config_file
from saccade.runs.train import MAY_CHANGE
from saccade.serving.models import ServedRun, load_runs
from saccade.tasks.translate.task import prepare
from servers import Serving, serving

TEXT = "One aa. Two bb. Ten c!"


@pytest.fixture(scope="module")
def nameless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Three runs without languages: of each kind of texts."""
    folder, runs = tmp_path_factory.mktemp("whole"), []
    for kind in ("anything", "documents", "sentences"):
        torch.manual_seed(7)
        runs.append(make_run(folder / kind, f"texts={kind}", "decoding.max_length=6"))
    with serving(load_runs(runs)) as found:
        yield found


def parts(server: Serving, text: str, **body: object) -> list[str]:
    answer = server.post("/v1/translate", q=text, **body)
    assert answer.status_code == 200, answer.text
    (found,) = answer.json()["translations"]
    return [part["source"] for part in found["sentences"]]


def test_texts_are_given_as_the_run_says(nameless: Serving) -> None:
    sentences = ["One aa.", "Two bb.", "Ten c!"]
    assert parts(nameless, TEXT, model="sentences") == sentences
    assert parts(nameless, TEXT, model="documents") == [TEXT]
    assert parts(nameless, TEXT, model="anything") == [TEXT]
    assert parts(nameless, TEXT, model="anything", split=True) == sentences
    assert parts(nameless, TEXT, model="sentences", split=False) == [TEXT]


def test_a_document_is_split_only_where_it_is_too_long_and_that_is_said(nameless: Serving) -> None:
    long = " ".join(["A b c dd."] * 400)
    answer = nameless.post("/v1/translate", q=[long, TEXT], model="documents").json()["translations"]
    assert [len(one["sentences"]) for one in answer] == [2, 1]
    assert answer[0]["note"] == "longer than the model reads at once (1,024 pieces): answered in 2 parts"
    assert "note" not in answer[1]
    refused = nameless.post("/v1/translate", q=long, model="anything")
    assert refused.status_code == 400
    assert "exceeds text limit (1024 pieces) for a text that is not split" in refused.json()["error"]


def test_a_run_without_languages_is_served_by_its_name(nameless: Serving) -> None:
    found = nameless.post("/v1/translate", q="a", model="documents").json()
    assert (found["source"], found["target"]) == (None, None)
    refused = nameless.post("/v1/translate", q="a", model="documents", source="en")
    assert (refused.status_code, "has no languages" in refused.text) == (400, True)
    models = nameless.client.get("/v1/models").json()["models"]
    assert [(one["title"], one["texts"], one["languages"]) for one in models] == [
        ("Text to text", kind, None) for kind in ("anything", "documents", "sentences")
    ]


@pytest.mark.parametrize("path", ["/translate", "/detect"])
def test_libretranslate_says_where_to_ask_a_server_without_languages(nameless: Serving, path: str) -> None:
    assert nameless.client.get("/languages").json() == []
    refused = nameless.post(path, q="a", source="en", target="fr")
    assert refused.status_code == 400
    assert refused.json() == {"error": "no model of this server has languages; see /v1/models, and POST to /v1/<task>"}


def test_libretranslate_obeys_too(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "texts=anything", "languages.source=en", "languages.target=fr")
    with serving(load_runs([run])) as server:
        whole = server.post("/translate", q=TEXT, source="en", target="fr").json()["translatedText"]
        html = server.post("/translate", q=f"<p>{TEXT}</p>", source="en", target="fr", format="html").json()
        split = server.post("/v1/translate", q=TEXT, split=True).json()["translations"][0]["text"]
        assert whole == server.post("/v1/translate", q=TEXT).json()["translations"][0]["text"] != split
        assert html == {"translatedText": f"<p>{whole}</p>"}


def test_a_run_of_old_is_split_where_it_translates(tmp_path: Path, translating: list[ServedRun]) -> None:
    run = make_run(tmp_path / "run")  # its config says auto
    assert load_runs([run])[0].texts == "anything"
    assert load_runs([run], [f"{run}=en-fr"])[0].texts == "sentences"
    assert translating[0].texts == "sentences"


def test_auto_is_settled_from_the_sources_and_said(tmp_path: Path) -> None:
    (tmp_path / "rows.tsv").write_text("A cat. It sleeps.\tsleep\n" * 4, "utf-8")
    files = {"source": str(tmp_path / "rows.tsv")}
    content = {"data": {"train": files, "valid": files}, "tokenizer": {"kind": "words"}, "model": {"width": 16}}
    config = config_file.check_config(content, "test")
    console = Console(record=True, width=200)
    settled = prepare(config, tmp_path / "run", console).config
    assert settled is not None
    assert settled.model_dump()["texts"] == "documents"
    assert "texts: documents (a server gives a text to the model whole, unless it is too long)" in console.export_text()
    assert "texts" in MAY_CHANGE


def test_sounds_are_no_texts() -> None:
    files = {"source": "x.tsv"}
    with pytest.raises(UserError, match="texts: 'documents' given; with input: features sources are no texts"):
        config_file.check_config(
            {"input": "features", "texts": "documents", "data": {"train": files, "valid": files}}, "test"
        )
