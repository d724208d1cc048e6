"""Reads the files of a model's folder; every mistake names the file and the field. Nothing in them is executed."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar, final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from saccade.errors import UserError

T = TypeVar("T")
REQUIRED: Any = object()
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
MOST = 1 << 20  # of anything in a model
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
CONVERT = (
    "from transformers import AutoModelForSeq2SeqLM as M; "
    "M.from_pretrained('{0}', weights_only=True).save_pretrained('{0}')"
)
KINDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    list: "a list",
    dict: "a table",
}


@final
class Fields:
    """The fields of a JSON file."""

    def __init__(self, path: Path, *, optional: bool = False) -> None:
        self.path = path
        self.content: dict[str, Any] = {} if optional and not path.is_file() else _read_json(path)

    def read(self, name: str, kind: type[T], default: T = REQUIRED) -> T:
        """Return a field; null is as good as missing."""
        value = self.content.get(name)
        if value is None:
            if default is REQUIRED:
                raise UserError(f"{self.path}: {name}: missing")
            return default
        allowed = (int, float) if kind is float else kind
        if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
            raise self.refuse(name, KINDS[kind])
        return value  # type: ignore[return-value]

    def read_token(self, name: str, default: str) -> str:
        """Return the text of a token; a table tells it as its content."""
        value: Any = self.content.get(name)
        return (
            str(value["content"]) if isinstance(value, dict) and "content" in value else self.read(name, str, default)
        )

    def size(self, name: str, default: int = REQUIRED, *, least: int = 1) -> int:
        """Return a whole number that a model can have."""
        value = self.read(name, int, default)
        if not least <= value <= MOST:
            raise self.refuse(name, f"{least:,} to {MOST:,}")
        return value

    def rate(self, name: str) -> float:
        """Return how much is dropped."""
        value = self.read(name, float, 0.0)
        if not 0 <= value < 1:
            raise self.refuse(name, "0 or more, less than 1")
        return value

    def choose(self, name: str, allowed: Collection[T], default: T = REQUIRED) -> T:
        """Return a field that has one of some values."""
        value: Any = self.content.get(name, default)
        listed = ", ".join(map(json.dumps, allowed))
        if value is REQUIRED:
            raise UserError(f"{self.path}: {name}: missing; allowed: {listed}")
        if value not in allowed:
            raise self.refuse(name, listed)
        return value

    def refuse(self, name: str, allowed: str) -> UserError:
        """Make the error that says what a field may be."""
        given = json.dumps(self.content.get(name), ensure_ascii=False)
        return UserError(f"{self.path}: {name}: {given[:60]} given; allowed: {allowed}")


def _read_json(path: Path) -> dict[str, Any]:
    stored = read_bytes(path)
    try:
        content = json.loads(stored)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: this is not JSON: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: a table of fields is wanted, and this is none")
    return content


def read_bytes(path: Path) -> bytes:
    """Read a file's bytes; a missing one is refused."""
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    return path.read_bytes()


@final
class Tensors:
    """The weights of a folder; each is taken once, and what is left over can be told."""

    def __init__(self, folder: Path) -> None:
        self._files = _find_weights(folder)
        self.main = folder / WEIGHTS
        self._taken = set[str]()

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def take(self, name: str, *shape: int) -> Tensor:
        """Return a tensor of this shape, in float32."""
        if name not in self._files:
            raise UserError(f"{self.main}: {name}: missing")
        self._taken.add(name)
        path = self._files[name]
        with safe_open(path, framework="pt") as stored:
            found: Tensor = stored.get_tensor(name)
        if found.shape != shape:
            given, wanted = (" x ".join(map(str, size)) for size in (found.shape, shape))
            raise UserError(f"{path}: {name}: {given} given; allowed: {wanted}, as config.json says")
        if not found.is_floating_point():
            given = str(found.dtype).removeprefix("torch.")
            raise UserError(f"{path}: {name}: {given} given; allowed: float32, float16, bfloat16, float64")
        if not bool(torch.isfinite(found.float()).all()):
            raise UserError(f"{path}: {name}: not all of it is a number; allowed: finite numbers")
        return found.float().contiguous()

    def count_parts(self, prefix: str) -> int:
        """Return how many names there are right after a prefix: of layers, their number."""
        return len({name.removeprefix(prefix).split(".")[0] for name in self._files if name.startswith(prefix)})

    def take_one(self, names: Collection[str], *shape: int) -> Tensor:
        """Return what has several names; those that are there must be equal."""
        there = [name for name in names if name in self._files] or list(names)[:1]
        found = self.take(there[0], *shape)
        for name in there[1:]:
            if not torch.equal(self.take(name, *shape), found):
                raise self.refuse(name, f"the same as {there[0]}, as config.json ties them")
        return found

    def refuse(self, name: str, allowed: str) -> UserError:
        """Make the error that says what a tensor may be."""
        return UserError(f"{self._files[name]}: {name}: other numbers given; allowed: {allowed}")

    def forget(self, name: str) -> None:
        """Leave a tensor out that nothing reads there either."""
        self._taken.add(name)

    def refuse_others(self) -> None:
        """Refuse weights that nothing has asked for: the model would be another."""
        if left := sorted(self._files.keys() - self._taken):
            others = f" (and {len(left) - 1:,} more)" if len(left) > 1 else ""
            raise UserError(
                f"{self._files[left[0]]}: {left[0]}: unknown{others}; this model would not be the same here"
            )


def _find_weights(folder: Path) -> dict[str, Path]:
    """Return the file of each tensor."""
    if (folder / WEIGHTS).is_file():
        files = [folder / WEIGHTS]
    elif (folder / INDEX).is_file():
        names = Fields(folder / INDEX).read("weight_map", dict)
        files = [folder / Path(str(name)).name for name in sorted({*names.values()})]
    else:
        raise UserError(_describe_missing(folder))
    found = dict[str, Path]()
    for path in files:
        try:
            with safe_open(path, framework="pt") as stored:
                found |= dict.fromkeys(stored.keys(), path)
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path}: it can't be read ({error}); copy it again") from None
    return found


def _describe_missing(folder: Path) -> str:
    """Say what to do about weights that are not there, or only as a pickle."""
    for name in PICKLES:
        if (folder / name).exists():
            line = f'python -c "{CONVERT.format(folder)}"'
            return f"{folder / name}: reading this file could run a program that is hidden in it; convert it: {line}"
    return f"{folder / WEIGHTS}: there is no such file"
