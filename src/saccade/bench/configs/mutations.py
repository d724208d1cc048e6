"""Mutations of valid configs and data files: what people mistype, and what broken disks and programs write."""

from __future__ import annotations

import copy
import gzip
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3, 7, 2**31, 2**63, -(10**30), 10**9, 0.5, -0.5, 1e-300, 1e308, float("nan"),
    float("inf"), "", " ", "auto", "no", "é\u0301", "\u202e", "😀", "x" * 5000, "../../etc/passwd", "/dev/null",
    [], [1, "a"], {}, {"a": 1}, [[]], "1e3", "0x10", "null", "float32", "cuda",
)  # fmt: skip
TRICKS = (  # lines of YAML
    "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: &d [*c, *c]\n",
    "model: !!python/object/apply:os.system ['true']\n",
    "model: !unknown {width: 16}\n",
    "? [complex, key]\n: value\n",
    "<<: {seed: 3}\n",
    "seed: *nowhere\n",
    "1: 2\n",
    "null: 1\n",
    "seed: 1\nseed: 2\n",
    "deep: " + "[" * 3000 + "\n",
    "deep: " + "{a: " * 1500 + "\n",
    "--- # another document\nseed: 1\n",
    "%YAML 9.9\n---\n",
    "\t seed: 1\n",
    "seed: 2001-01-01\n",
    "seed: !!binary aGVsbG8=\n",
    "seed: 1_000\n",
    "seed: 190:20:30\n",
)


def change_config(content: dict[str, Any], known: dict[str, Any], chance: random.Random) -> tuple[bytes, str]:
    """Return a config's bytes after a change, and what was changed; `known` are the fields that may be added."""
    way = chance.choice(WAYS)
    changed = copy.deepcopy(content)
    what = way(changed, known, chance)
    if isinstance(what, bytes):
        return what, way.__name__.strip("_")
    return yaml.safe_dump(changed, sort_keys=False, allow_unicode=True).encode("utf-8", "replace"), what


def _places(section: dict[Any, Any], above: str = "") -> Iterator[tuple[dict[Any, Any], Any, str]]:
    """Yield each key of a nested mapping, with the mapping that it stands in and its full name."""
    for key, value in section.items():
        yield section, key, f"{above}{key}"
        if isinstance(value, dict):
            yield from _places(value, f"{above}{key}.")


def _remove(content: dict[str, Any], known: dict[str, Any], chance: random.Random) -> str:
    del known
    section, key, name = chance.choice(list(_places(content)))
    del section[key]
    return f"{name} removed"


def _rename(content: dict[str, Any], known: dict[str, Any], chance: random.Random) -> str:
    del known
    section, key, name = chance.choice(list(_places(content)))
    new = chance.choice((f"{key}s", str(key)[:-1], str(key).upper(), f" {key}", f"{key}\u200b", ""))
    section[new] = section.pop(key)
    return f"{name} renamed to {new!r}"


def _replace(content: dict[str, Any], known: dict[str, Any], chance: random.Random) -> str:
    del known
    section, key, name = chance.choice(list(_places(content)))
    section[key] = chance.choice(VALUES)
    return f"{name}: {section[key]!r:.60}"


def _add(content: dict[str, Any], known: dict[str, Any], chance: random.Random) -> str:
    """Give a field that the config leaves to its default."""
    section, names = chance.choice(list(known.items()))
    place = content.setdefault(section, {}) if section else content
    if not isinstance(place, dict):
        return f"{section} left alone"
    name = chance.choice(sorted(names))
    place[name] = chance.choice(VALUES)
    return f"{section}.{name}: {place[name]!r:.60}"


def _swap(content: dict[str, Any], known: dict[str, Any], chance: random.Random) -> str:
    del known
    (one, first, name), (other, second, there) = chance.choices(list(_places(content)), k=2)
    one[first], other[second] = copy.deepcopy(other[second]), copy.deepcopy(one[first])
    return f"{name} and {there} exchanged"


def _trick(content: dict[str, Any], known: dict[str, Any], chance: random.Random) -> bytes:
    del known
    lines = yaml.safe_dump(content, sort_keys=False).splitlines(keepends=True)
    lines.insert(chance.randint(0, len(lines)), chance.choice(TRICKS))
    return "".join(lines).encode()


def _break_text(content: dict[str, Any], known: dict[str, Any], chance: random.Random) -> bytes:
    del known
    return break_bytes(yaml.safe_dump(content, sort_keys=False).encode(), chance)


WAYS: tuple[Callable[[dict[str, Any], dict[str, Any], random.Random], str | bytes], ...] = (
    _remove, _rename, _replace, _replace, _add, _add, _add, _swap, _trick, _break_text,
)  # fmt: skip


def change_file(path: Path, chance: random.Random) -> str:
    """Change a data file in place; return what was changed."""
    if chance.random() < 0.05:
        path.unlink()
        if chance.random() < 0.5:
            path.mkdir()
        return f"{path.name} gone"
    packed = path.suffix == ".gz" and chance.random() < 0.5
    content = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
    changed = break_bytes(content, chance)
    path.write_bytes(gzip.compress(changed) if packed else changed)
    return f"{path.name} broken"


def break_bytes(content: bytes, chance: random.Random) -> bytes:
    """Return the bytes of a file cut, mixed, or with bytes that do not belong there."""
    lines = content.split(b"\n")
    at, place = chance.randrange(len(lines)), chance.randrange(len(content) + 1)
    strange = chance.choice(STRANGE)
    return chance.choice(
        (
            lambda: content[:place],
            lambda: content[place:],
            lambda: content[:place] + strange + content[place:],
            lambda: content[:place] + chance.randbytes(chance.randint(1, 5)) + content[place + 3 :],
            lambda: b"\n".join(lines[:at] + lines[at + 1 :]),
            lambda: b"\n".join([*lines[:at], lines[at], *lines[at:]]),
            lambda: b"\n".join([*lines[:at], strange, *lines[at:]]),
            lambda: b"\r\n".join(lines),
            lambda: b"",
            lambda: strange,
            lambda: chance.randbytes(300),
            lambda: content.replace(b"\t", b" "),
            lambda: content.replace(b" ", b"\t"),
            lambda: b"\xef\xbb\xbf" + content,
            lambda: content.decode("utf-8", "replace").encode("utf-16"),
        )
    )()


STRANGE = (
    b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\n", b"\r", b"\t\t\t", b" " * 50, b"x" * 50_000, b"a b " * 10_000,
    b"{", b"\"",
    b"[]", b"{}", b"null", "\u2028".encode(), "\u0085".encode(), "é\u0301".encode(), b"-DOCSTART-", b"O", b"1e999",
    b"\\ud800", b"-1", b"999999999999",
)  # fmt: skip
