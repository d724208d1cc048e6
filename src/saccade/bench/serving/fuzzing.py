"""Malformed and unusual requests: a server should answer each of them quickly, and never with status 500."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlencode

from saccade.bench.serving.http_client import Connection, RunningServer

PATIENCE = 60.0  # seconds; longer is a hang
FORM, JSON, PARTS = "application/x-www-form-urlencoded", "application/json", "multipart/form-data; boundary=x"
KINDS = (JSON, JSON, FORM, PARTS, "text/plain", "application/json; charset=utf-16", "", "application/octet-stream")
FIELDS: dict[str, dict[str, Any]] = {  # of each route, a request that is fine
    "/translate": {"q": "a b", "source": "auto", "target": "fr", "format": "html", "alternatives": 2, "api_key": ""},
    "/detect": {"q": "a b"},
    "/suggest": {"q": "a", "s": "b", "source": "en", "target": "fr"},
    "/v1/translate": {"q": ["a", "b"], "num_best": 2, "alignment": True, "tokens": True, "beam": 3, "split": False},
    "/v1/look": {"text": "a b", "kinds": ["cross"], "layers": [0], "heads": [0], "norms": True, "views": ["rollout"]},
    "/v1/classify": {"q": "a b", "attention": True, "key_terms": 2},
    "/v1/tag": {"q": ["a b", {"words": ["a", "b"], "column 1": ["c", "d"]}], "probabilities": True},
    "/v1/caption": {"image": "iVBORw0KGgo=", "num_best": 2, "attention": True},
    "/v1/glimpse": {"image": "iVBORw0KGgo="},
    "/v1/listen": {"sound": "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=", "beam": 2, "num_best": 2},
    "/v1/write": {"q": "a b", "temperature": 0.5, "top_k": 3, "top_p": 0.9, "seed": 1, "max_length": 9},
    "/v1/answer": {"q": "a b. who is it?"},
}
SIGNS = "\x00\x01\x1b\x7f\x85\xa0\u200b\u200f\u202e\u2066\u2069\ufeff\ufffe\U000e0001\U0010ffff\ud800\udfff😀é\u0301アж"
PIECES = [
    "<![",
    "<!",
    "<?",
    "<b>",
    "</b>",
    "<p>",
    "</",
    "<!--",
    "&#x110000;",
    "&amp",
    "<script>",
    "<a href='",
    ">",
    "a ",
    ". ",
    "\n",
    "one ",
]


class FuzzRequest(NamedTuple):
    """A request: its path, its body and its content type."""

    path: str
    body: bytes
    kind: str


class FuzzReport(NamedTuple):
    """The statuses of all answers, the number of missing ones, the slowest (seconds), and the harmful requests."""

    statuses: Counter[int]
    num_hung: int
    slowest: float
    bad: list[FuzzRequest]

    def as_dict(self) -> dict[str, Any]:
        statuses = {str(status): count for status, count in sorted(self.statuses.items())}
        return {"statuses": statuses, "hung": self.num_hung, "slowest": self.slowest, "bad": len(self.bad)}


def generate_requests(count: int, seed: int = 1) -> Iterator[FuzzRequest]:
    """Generate `count` requests; the same seed gives the same requests."""
    chance = random.Random(seed)
    for _ in range(count):
        path = chance.choice(list(FIELDS))
        body, kind = chance.choice(WAYS)(chance, path)
        query = f"?{urlencode({'q': _text(chance)[:80].encode('utf-8', 'replace')})}" if chance.random() < 0.1 else ""
        yield FuzzRequest(path + query, body, kind)


def _change_fields(chance: random.Random, path: str) -> tuple[bytes, str]:
    """Return a good request in which some fields are missing, strange or new."""
    fields = dict(FIELDS[path])
    for name in chance.sample(list(fields), chance.randint(1, len(fields))):
        if chance.random() < 0.2:
            del fields[name]
        else:
            fields[name] = _value(chance)
    if chance.random() < 0.1:
        fields[_text(chance)] = _value(chance)
    return json.dumps(fields).encode(), JSON


def _good(chance: random.Random, path: str) -> tuple[bytes, str]:
    """Return a good request about a strange text."""
    text = _text(chance)
    fields: dict[str, Any] = {name: text if name in ("q", "text") else value for name, value in FIELDS[path].items()}
    return json.dumps(fields, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass"), JSON


def _form(chance: random.Random, path: str) -> tuple[bytes, str]:
    fields = {name: chance.choice((str(value), _text(chance))) for name, value in FIELDS[path].items()}
    return urlencode({name: value.encode("utf-8", "replace") for name, value in fields.items()}).encode(), FORM


def _parts(chance: random.Random, path: str) -> tuple[bytes, str]:
    """Return the parts of a form, complete or broken off."""
    lines = [
        f'--x\r\nContent-Disposition: form-data; name="{name}"{chance.choice(NAMES)}\r\n\r\n{_text(chance)}\r\n'
        for name in FIELDS[path]
    ]
    body = "".join([*lines, "--x--\r\n"]).encode("utf-8", "replace")
    return body[: chance.randint(0, len(body))] if chance.random() < 0.5 else body, PARTS


def _deep(chance: random.Random, path: str) -> tuple[bytes, str]:
    del path
    depth = chance.choice((10, 1000, 100_000))
    return chance.choice((b"[", b'{"q":', b'{"q":[')) * depth, JSON


def _break_bytes(chance: random.Random, path: str) -> tuple[bytes, str]:
    """Return a good request with bytes changed, cut or added: bad UTF-8 and bad JSON."""
    body = bytearray(json.dumps(FIELDS[path]).encode())
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(body) + 1)
        body[at : at + chance.randint(0, 3)] = chance.randbytes(chance.randint(0, 3))
    return bytes(body), chance.choice(KINDS)


def _noise(chance: random.Random, path: str) -> tuple[bytes, str]:
    del path
    return chance.randbytes(chance.choice((0, 1, 100, 5000))), chance.choice(KINDS)


def _huge(chance: random.Random, path: str) -> tuple[bytes, str]:
    """Return a request that is larger than any limit allows."""
    size = chance.choice((30_000, 300_000))
    fields = {**FIELDS[path], "q": chance.choice(("x" * size, ["x"] * (size // 10), {"x": "x" * size}))}
    return json.dumps(fields).encode(), JSON


WAYS: tuple[Callable[[random.Random, str], tuple[bytes, str]], ...] = (
    _change_fields, _change_fields, _good, _form, _parts, _deep, _break_bytes, _noise, _huge,
)  # fmt: skip
NAMES = ("", '; filename="../../x.png"', "; filename*=utf-8''%ff", "\r\nContent-Type: image/png")


def _text(chance: random.Random) -> str:
    kind = chance.random()
    if kind < 0.4:
        return "".join(chance.choice(SIGNS) for _ in range(chance.randint(0, 40)))
    if kind < 0.7:
        return "".join(chance.choice(PIECES) for _ in range(chance.randint(0, 30)))
    if kind < 0.9:
        return "".join(chr(chance.randrange(0x11000)) for _ in range(chance.randint(0, 60)))
    return chance.choice((" ", "\n", ".", "a", "é", "。")) * chance.choice((1, 100, 900))


def _value(chance: random.Random, depth: int = 0) -> Any:
    """Return a random value of any type that JSON has."""
    kind = chance.randrange(10 if depth < 3 else 8)
    if kind == 8:
        return [_value(chance, depth + 1) for _ in range(chance.randint(0, 4))]
    if kind == 9:
        return {_text(chance): _value(chance, depth + 1) for _ in range(chance.randint(0, 3))}
    numbers = (0, -1, 1, 2**31, 2**63, -(10**30), 0.5, 1e308, float("nan"), float("inf"), 10**400)
    picture = base64.b64encode(chance.randbytes(chance.randint(0, 80))).decode()
    codes = ("en", "fr", "auto", "zz", "../etc/passwd", "cross", "flow")
    return (None, True, False, chance.choice(numbers), _text(chance), picture, chance.choice(codes), "")[kind]


async def fuzz(
    where: RunningServer,
    count: int,
    *,
    seed: int = 1,
    clients: int = 16,
    say: Callable[[int], None] = lambda done: None,
) -> FuzzReport:
    """Send `count` requests from several clients at once; `say` is told the number of each that is sent."""
    todo = _count_aloud(generate_requests(count, seed), say)
    found = list(await asyncio.gather(*(_client(where, todo) for _ in range(clients))))
    return FuzzReport(
        sum((one.statuses for one in found), Counter()),
        sum(one.num_hung for one in found),
        max(one.slowest for one in found),
        [bad for one in found for bad in one.bad],
    )


def _count_aloud(todo: Iterator[FuzzRequest], say: Callable[[int], None]) -> Iterator[FuzzRequest]:
    for number, one in enumerate(todo, 1):
        say(number)
        yield one


async def _client(where: RunningServer, todo: Iterator[FuzzRequest]) -> FuzzReport:
    statuses, bad, slowest, hung = Counter[int](), list[FuzzRequest](), 0.0, 0
    for one in todo:
        started = time.perf_counter()
        connection = await Connection.open(where.host, where.port)
        try:
            reply = await asyncio.wait_for(connection.post(*one), PATIENCE)
            statuses[reply.status] += 1
            if reply.status >= 500:
                bad.append(one)
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            hung += 1
            bad.append(one)
        finally:
            connection.close()
        slowest = max(slowest, time.perf_counter() - started)
    return FuzzReport(statuses, hung, slowest, bad)
