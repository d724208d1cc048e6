"""The clients that people have, unchanged: two from PyPI, three from npm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from deep_translator import LibreTranslator
from deep_translator.exceptions import AuthorizationException
from libretranslatepy import LibreTranslateAPI

from saccade.serving.models import ServedRun
from servers import Serving, predictor_of, serving

KEY = "correct horse"
TEXTS = ["a b c", "d e", "f"]
NODE = Path(__file__).parents[3] / ".node"


@pytest.fixture(scope="module")
def right(translating: list[ServedRun]) -> list[str]:
    return [found.text for found in predictor_of(translating[0]).predict(TEXTS)]


def test_libretranslatepy(served: Serving, translating: list[ServedRun], right: list[str]) -> None:
    client = LibreTranslateAPI(served.url)
    assert [client.translate(text, "en", "fr") for text in TEXTS] == right
    assert client.detect("Where is the station, please?")[0]["language"] == "en"
    assert [language["code"] for language in client.languages()] == ["en", "fr"]
    with serving(translating, keys=(KEY,)) as guarded:
        assert LibreTranslateAPI(guarded.url, api_key=KEY).translate(TEXTS[0], "en", "fr") == right[0]
        with pytest.raises(HTTPError, match="403"):
            LibreTranslateAPI(guarded.url, api_key="wrong").translate(TEXTS[0], "en", "fr")


def test_deep_translator(served: Serving, translating: list[ServedRun], right: list[str]) -> None:
    client = LibreTranslator("en", "fr", api_key="x", custom_url=f"{served.url}/")
    assert [client.translate(text) for text in TEXTS] == right
    assert client.translate_batch(TEXTS) == right
    with serving(translating, keys=(KEY,)) as guarded:
        given = {"source": "en", "target": "fr", "custom_url": f"{guarded.url}/"}
        assert LibreTranslator(api_key=KEY, **given).translate(TEXTS[0]) == right[0]
        with pytest.raises(AuthorizationException):
            LibreTranslator(api_key="wrong", **given).translate(TEXTS[0])


def node(script: str, url: str) -> Any:
    """What a script prints as JSON, run by Node beside the packages that the Makefile installs."""
    if shutil.which("node") is None or not (NODE / "node_modules").is_dir():
        reason = "Node or its packages are missing: make test installs them where it may (apt-get, as root)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    command = ["node", "--input-type=module", "--eval", f"const url = {json.dumps(url)};\n{script}"]
    done = subprocess.run(command, cwd=NODE, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_libretranslate_ts(served: Serving, right: list[str]) -> None:
    found = node(
        f"""
        import package_ from "libretranslate-ts";
        const client = package_.libreTranslate;
        client.setApiEndpoint(url);
        const texts = {json.dumps(TEXTS)};
        console.log(JSON.stringify({{
          languages: await client.listLanguages(),
          detected: await client.detect("Where is the station, please?"),
          translated: await Promise.all(texts.map((text) => client.translate(text, "en", "fr"))),
          alternatives: await client.translate(texts[0], "en", "fr", 2),
          refused: await client.translate(texts[0], "en", "zz"),
        }}));
        """,
        served.url,
    )
    assert [language["code"] for language in found["languages"]] == ["en", "fr"]
    assert found["detected"]["language"] == "en"
    assert [one["translatedText"] for one in found["translated"]] == right
    assert len(found["alternatives"]["alternatives"]) == 2
    assert found["refused"]["error"] == "zz is not supported"


def test_translate(served: Serving, right: list[str]) -> None:
    found = node(
        f"""
        import translate from "translate";
        translate.engine = "libre";
        translate.url = `${{url}}/translate`;
        const asked = {json.dumps(TEXTS)}.map((text) => translate(text, {{ from: "en", to: "fr" }}));
        console.log(JSON.stringify(await Promise.all(asked)));
        """,
        served.url,
    )
    assert found == right


def test_libretranslate(served: Serving, right: list[str]) -> None:
    found = node(
        f"""
        import package_ from "libretranslate";
        const ask = (query, target) => package_.translate({{ query, source: "en", target, apiurl: url }});
        console.log(JSON.stringify({{
          translated: await Promise.all({json.dumps(TEXTS)}.map((text) => ask(text, "fr"))),
          refused: await ask("a", "zz").catch(String),
        }}));
        """,
        served.url,
    )
    assert found["translated"] == right
    assert "This language was not found" in found["refused"]
