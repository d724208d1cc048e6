"""Who may ask a server: by which of its names, and from which pages."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from saccade.errors import UserError
from saccade.serving.http.origins import (
    OTHER_HOST,
    OTHER_SITE,
    TWO_HOSTS,
    allowed_sites,
    is_loopback,
    read_names,
    read_origins,
)
from saccade.serving.models import ServedRun
from servers import Serving, serving

ASKED = {"q": "a b c", "source": "en", "target": "fr"}
OTHER = {"error": "Pages of other sites may not use this server (see --cors)"}


def asked(*hosts: str, version: str = "1.1", method: str = "POST", **headers: str) -> dict[str, Any]:
    """A request as ASGI has it."""
    named = [("host", host) for host in hosts] + [(name.replace("_", "-"), value) for name, value in headers.items()]
    return {
        "method": method,
        "http_version": version,
        "headers": [(name.encode(), value.encode()) for name, value in named],
    }


def test_another_name_is_another_server(served: Serving, translating: list[ServedRun]) -> None:
    for name in ("localhost", "LOCALHOST:5000", "127.0.0.1", "[::1]:80"):
        assert served.client.get("/health", headers={"Host": name}).status_code == 200, name
    for name in ("evil.example", "localhost.evil.example", "127.0.0.1.nip.io:5000", "192.168.0.4", ""):
        found = served.client.get("/health", headers={"Host": name})
        assert found.status_code == 400, name
        assert "see --allow-host" in found.json()["error"]
    with serving(translating[:1], hosts=("translate.example",)) as named:
        assert named.client.get("/health", headers={"Host": "translate.example"}).status_code == 200


def test_a_request_has_one_host() -> None:
    sites = allowed_sites("127.0.0.1", (), ())
    assert sites.refuses(asked("localhost", "evil.example")) == TWO_HOSTS
    assert sites.refuses(asked("localhost", "localhost")) == TWO_HOSTS
    assert sites.refuses(asked()) == TWO_HOSTS
    assert sites.refuses(asked(version="1.0")) is None  # of old, a request needs none; no browser sends such
    assert sites.refuses(asked("localhost:5000")) is None


def test_other_machines_reach_it_by_address_and_by_its_own_name_only() -> None:
    """A page that gives its own name the address of this server (DNS rebinding) still has that name."""
    sites = allowed_sites("0.0.0.0", ("translate.example",), ())
    for name in ("192.168.0.4:5000", "[fe80::1]:5000", "localhost", socket.gethostname(), "Translate.example:443"):
        assert sites.refuses(asked(name)) is None, name
    assert sites.refuses(asked("evil.example:5000", origin="http://evil.example:5000")) == OTHER_HOST
    assert allowed_sites("0.0.0.0", ("*",), ()).refuses(asked("any.example")) is None
    names = ", ".join(sorted([socket.gethostname().lower(), "translate.example"]))
    assert f"by IP address, and as {names} (see " in (sites.warning or "")
    assert allowed_sites("127.0.0.1", (), ()).warning is None
    assert is_loopback("127.0.0.2")
    assert is_loopback("localhost")
    assert not is_loopback("192.168.0.4")


@pytest.mark.parametrize(
    ("headers", "is_allowed"),
    [
        ({}, True),  # no browser
        ({"origin": "http://localhost:5000"}, True),
        ({"origin": "http://localhost:3000"}, False),  # another server of this machine
        ({"origin": "https://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"origin": "https://my.example"}, True),
        ({"origin": "https://my.example", "sec_fetch_site": "cross-site"}, True),
        ({"origin": "https://evil.example", "sec_fetch_site": "cross-site"}, False),
        ({"origin": "http://localhost:3000", "sec_fetch_site": "same-site"}, False),
        ({"sec_fetch_site": "cross-site"}, False),
        ({"sec_fetch_site": "none"}, True),
        ({"origin": "https://public.example", "sec_fetch_site": "same-origin"}, True),  # a proxy changed Host
    ],
)
def test_pages_of_other_sites_may_not_post(headers: dict[str, str], is_allowed: bool) -> None:
    sites = allowed_sites("127.0.0.1", (), ("https://my.example",))
    assert sites.refuses(asked("localhost:5000", **headers)) == (None if is_allowed else OTHER_SITE)
    assert allowed_sites("127.0.0.1", (), ("*",)).refuses(asked("localhost:5000", **headers)) is None
    assert sites.refuses(asked("localhost:5000", method="GET", **headers)) is None  # they can't read the answer


def test_with_cors_only_the_named_sites_post_and_read(served: Serving, translating: list[ServedRun]) -> None:
    evil = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    refused = served.client.post("/translate", data=ASKED, headers=evil)
    assert (refused.status_code, refused.json()) == (403, OTHER)
    with serving(translating[:1], cors=("https://good.example",)) as shared:
        good = shared.client.post("/translate", json=ASKED, headers={"Origin": "https://good.example"})
        assert good.status_code == 200
        assert good.headers["access-control-allow-origin"] == "https://good.example"
        for path in ("/translate", "/suggest", "/v1/translate"):
            refused = shared.client.post(path, data=ASKED, headers=evil)
            assert (refused.status_code, refused.json()) == (403, OTHER)
            assert "access-control-allow-origin" not in refused.headers
    with serving(translating[:1], cors=("*",)) as open_to_all:
        assert open_to_all.client.post("/translate", data=ASKED, headers=evil).status_code == 200


def test_what_users_write_is_what_browsers_send_or_is_refused() -> None:
    given = ("https://My.Example/", "https://my.example:443", "http://[::1]:80", "http://x:5000", "*", "app://x")
    assert read_origins(given) == ("https://my.example",) * 2 + ("http://[::1]", "http://x:5000", "*", "app://x")
    for wrong in ("foo", "my.example", "https://my.example/page", "https://", "https://a,https://b", "https://a b", ""):
        with pytest.raises(
            UserError, match=r"--cors: '.*' given; allowed: an origin such as https://my.example, or \*"
        ):
            read_origins([wrong])
    assert read_names(["Translate.example", "::1", "*"]) == ("translate.example", "::1", "*")
    for wrong in ("https://x.example", "x.example:443", "x/y", ""):
        with pytest.raises(UserError, match=r"--allow-host: '.*' given; allowed: a name"):
            read_names([wrong])
