"""The vocabulary of a run: found in its folder, taken from the run it begins with and perhaps grown, or learned."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from saccade.data.text.grow import GrownTokenizer, grow
from saccade.data.text.tokenizer import MOST_CHARACTERS, AnyTokenizer, ListedPieces, load_tokenizer, sample_texts
from saccade.errors import UserError
from saccade.files import replace_file
from saccade.tasks.base import Rows
from saccade.tasks.console import busy, say

GROWN = "tokenizer.grown.json"  # the old ids that each new token of a side is made of


def prepare_tokenizer(
    config: Any, path: Path, texts: Iterable[str], learn: Callable[[Iterable[str]], AnyTokenizer], console: Console
) -> AnyTokenizer:
    """Return the one tokenizer of a run, stored at `path`: of texts that are spelled as it reads them."""
    if path.exists():
        return load_tokenizer(path)
    if config.base is None:
        tokenizer = learn(texts)
    else:
        tokenizer = load_tokenizer(Path(config.base) / path.name)
        if config.tokenizer.grow:
            chosen = sample_texts(texts, most=MOST_CHARACTERS, seed=config.seed).texts
            grown = grow_tokenizer(tokenizer, chosen, config.tokenizer.grow, "training text", console)
            store_grown(path.parent, [grown])
            tokenizer = grown.tokenizer
    tokenizer.save(path)
    return tokenizer


def grow_tokenizer(old: AnyTokenizer, texts: Iterable[str], count: int, what: str, console: Console) -> GrownTokenizer:
    """Grow a tokenizer by what the texts have often, and say by how much."""
    if isinstance(old, ListedPieces):
        raise UserError(f"tokenizer.grow: {count} given; a vocabulary of imported pieces does not grow; allowed: 0")
    with busy(console, f"looking for new tokens in the {what}"):
        found = grow(old, texts, count)
    fewer = f" (tokenizer.grow: {count:,} given; the text has no more)" if len(found.parts) < count else ""
    say(console, f"vocabulary of the {what}: {old.size:,} tokens, and {len(found.parts):,} new ones{fewer}")
    return found


def store_grown(folder: Path, grown: Sequence[GrownTokenizer]) -> None:
    """Store what the new tokens of each side are made of."""
    with replace_file(folder / GROWN) as draft:
        draft.write_text(json.dumps([one.parts for one in grown]), "utf-8")


def list_grown_rows(folder: Path, old: Sequence[int]) -> list[Rows]:
    """Return the rows of embeddings of grown tokenizers: those of the `old` sizes, and the means of the new tokens."""
    parts = json.loads((folder / GROWN).read_text("utf-8"))
    return [[*([row] for row in range(size)), *new] for size, new in zip(old, parts, strict=True)]


def find_grown_rows(config: Any, path: Path, *weights: str) -> dict[str, tuple[Rows, ...]]:
    """Return the rows of weights with a row for each token of the vocabulary at `path`, if it has grown."""
    if not config.tokenizer.grow:
        return {}
    (rows,) = list_grown_rows(path.parent, [load_tokenizer(Path(config.base) / path.name).size])
    return dict.fromkeys(weights, (rows,))
