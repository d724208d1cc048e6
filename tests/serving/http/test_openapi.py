"""The OpenAPI document is true: what it says may be asked is answered as it says; and it can be read on one page."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import CHECKS

from servers import Serving

CHOSEN = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
    "negative_data_rejection",
)  # fmt: skip
OF_THE_MODEL = ("/v1/look", "/v1/caption", "/v1/glimpse", "/v1/translate", "/v1/classify", "/v1/write", "/v1/tag")
"""What they take depends on the model, on options that fit, or on a picture that nobody draws by chance."""
EXAMPLES, SLOWEST = 15, 20.0
ROUTES = [
    ("POST", "/translate"), ("POST", "/detect"), ("POST", "/suggest"), ("GET", "/languages"),
    ("GET", "/frontend/settings"), ("POST", "/v1/translate"), ("POST", "/v1/look"), ("POST", "/v1/classify"),
    ("POST", "/v1/tag"), ("POST", "/v1/caption"), ("POST", "/v1/glimpse"), ("POST", "/v1/write"),
    ("GET", "/v1/models"), ("GET", "/health"),
    ("GET", "/ready"), ("GET", "/metrics"),
]  # fmt: skip


def test_every_route_is_documented(all_served: Serving) -> None:
    document = all_served.client.get("/openapi.json").json()
    found = [(method.upper(), path) for path, routes in document["paths"].items() for method in routes]
    assert sorted(found) == sorted(ROUTES)
    for routes in document["paths"].values():
        for route in routes.values():
            assert route["description"]
            assert "422" not in route["responses"]
    target = document["paths"]["/translate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert target["properties"]["target"]["enum"] == ["en", "fr"]


@pytest.mark.parametrize(("method", "path"), ROUTES, ids=lambda part: part)
@pytest.mark.parametrize("is_good", [True, False], ids=["good", "bad"])
def test_it_answers_as_it_says(all_served: Serving, method: str, path: str, is_good: bool) -> None:
    mode = schemathesis.GenerationMode.POSITIVE if is_good else schemathesis.GenerationMode.NEGATIVE
    schema = schemathesis.openapi.from_dict(all_served.client.get("/openapi.json").json())
    operation = schema[path][method]
    chosen = CHOSEN if path in OF_THE_MODEL else (*CHOSEN, "positive_data_acceptance")
    checks = [CHECKS.get_one(name) for name in chosen]

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck),
        derandomize=True, database=None,
    )  # fmt: skip
    def holds(case: Any) -> None:
        started = time.monotonic()
        case.call_and_validate(base_url=all_served.url, checks=checks, timeout=SLOWEST)
        assert time.monotonic() - started < SLOWEST

    if is_good or method == "POST":
        holds()


def test_only_what_this_server_has_is_documented(served: Serving) -> None:
    document = served.client.get("/openapi.json").json()
    paths = {path for path in document["paths"] if path.startswith("/v1/")}
    assert paths == {"/v1/translate", "/v1/look", "/v1/models"}
    names = document["components"]["schemas"]["TranslateRequest"]["properties"]["model"]["enum"]
    assert names == ["there", "back", None]


class Outside(HTMLParser):
    """The addresses that a page would load or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.found += [f"{tag} {given[name]}" for name in ("src", "style") if name in given]
        self.found += ["script"] if tag == "script" else []
        self.found += [f"link {given['href']}"] if tag == "link" else []


def test_the_documentation_is_one_page_that_loads_only_its_style(all_served: Serving) -> None:
    page = all_served.client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    seen = Outside()
    seen.feed(page.text)
    assert seen.found == ["link /static/eye.svg", "link /docs.css"]
    assert all_served.client.get("/static/eye.svg").status_code == 200  # its icon
    style = all_served.client.get("/docs.css")
    assert style.headers["content-type"].startswith("text/css")
    again = all_served.client.get("/docs.css", headers={"If-None-Match": style.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    for method, path in ROUTES:
        assert f"<code>{method} {path}</code>" in page.text
    links = set(re.findall(r'href="#(\w+)"', page.text))
    assert links
    assert links <= set(re.findall(r'id="(\w+)"', page.text))
