"""Who asks, and how often."""

from __future__ import annotations

import pytest

from saccade.serving.http.callers import RateLimit
from saccade.serving.http.responses import Refusal
from saccade.serving.models import ServedRun
from servers import serving

ASKED = {"q": "a b c", "source": "en", "target": "fr"}
KEYS = ("correct horse", "battery staple")


def test_a_minute_has_so_many_requests_at_once_or_one_by_one() -> None:
    now = 0.0
    rates = RateLimit(6, clock=lambda: now)
    for _ in range(6):
        rates.charge("a")
    with pytest.raises(Refusal, match="Slowdown: 6 per 1 minute") as refused:
        rates.charge("a")
    assert refused.value.headers == {"Retry-After": "10"}
    rates.charge("b")
    now = 10.0
    rates.charge("a")
    with pytest.raises(Refusal):
        rates.charge("a")
    now = 100.0
    for _ in range(6):
        rates.charge("a")


def test_addresses_are_limited(translating: list[ServedRun]) -> None:
    with serving(translating[:1], rate=2) as server:
        found = [server.post("/translate", **ASKED) for _ in range(3)]
        assert [one.status_code for one in found] == [200, 200, 429]
        assert found[2].json() == {"error": "Slowdown: 2 per 1 minute"}
        assert 20 < int(found[2].headers["retry-after"]) <= 30
        assert server.client.get("/health").status_code == 200  # nor are those that ask for no work
        assert 'saccade_refusals_total{reason="rate"} 1.0' in server.client.get("/metrics").text


def test_keys_are_limited_and_so_is_who_guesses_them(translating: list[ServedRun]) -> None:
    with serving(translating[:1], rate=2, keys=KEYS) as server:

        def ask(key: str) -> int:
            return server.post("/translate", **ASKED, api_key=key).status_code

        assert [ask(key) for key in (KEYS[0],) * 3 + (KEYS[1],) * 2] == [200, 200, 429, 200, 200]
        assert [ask("wrong horse") for _ in range(3)] == [403, 403, 429]
        headers = {"Authorization": f"Bearer {KEYS[0]}"}
        assert server.client.get("/metrics", headers=headers).status_code == 200
