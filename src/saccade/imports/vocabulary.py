"""The tokenizers of a Hugging Face folder: SentencePiece models, and lists of the ids of their pieces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from saccade.data.text.tokenizer import SPECIAL, ListedPieces
from saccade.errors import UserError
from saccade.imports.folder import Fields, read_bytes

Names = Mapping[int, str]  # of their ids


class SpecialIds(NamedTuple):
    """Their ids of our first four."""

    pad: int
    start: int
    end: int
    unknown: int


class TokenizerIds(NamedTuple):
    """A tokenizer of ours, and their id of each of its ids."""

    tokenizer: ListedPieces
    number_V: Tensor


def read_names(path: Path, size: int) -> dict[int, str]:
    """Read a list of pieces and their ids, which must be below the size that the config says."""
    found, fields = dict[int, str](), Fields(path)
    for name in fields.content:
        number = fields.read(name, int)
        if not 0 <= number < size:
            raise fields.refuse(name, f"0 to {size - 1}, as config.json has a vocabulary of {size:,}")
        if number in found:
            raise UserError(
                f"{path}: {name}: {number} given, which is {found[number]!r} too; allowed: an id of its own"
            )
        found[number] = name
    return found


def find_id(path: Path, names: Names, wanted: str) -> int:
    """Return the id of a piece; a missing one is refused."""
    for number, name in names.items():
        if name == wanted:
            return number
    raise UserError(f"{path}: {wanted}: missing")


def make_side(
    model: Path, names: Names, special: SpecialIds, size: int, *, tokens: Iterable[str] = (), **how: Any
) -> TokenizerIds:
    """Make a tokenizer whose first four ids are ours; the others keep their order. Ids without a name get one."""
    others = [number for number in range(size) if number not in special]
    symbols = [*SPECIAL, *(_name(names, number) for number in others)]
    try:
        silent = [_name(names, number) for number in others if names.get(number) in SPECIAL]
        tokenizer = ListedPieces(read_bytes(model), symbols, tokens=[*tokens, *silent], **how)
    except RuntimeError:
        raise UserError(f"{model}: this is no SentencePiece model") from None
    return TokenizerIds(tokenizer, torch.tensor([*special, *others]))


def _name(names: Names, number: int) -> str:
    """Return the name of an id; one that has none, or one that ours have, gets another."""
    found = names.get(number)
    return f"<unused {number}>" if found is None or found in SPECIAL else found
