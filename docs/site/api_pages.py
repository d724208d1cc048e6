"""Writes the pages of the API from signatures and docstrings."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import saccade

QUOTED = re.compile(r"(: |-> )'([^']*)'")  # annotations are strings here
SPECIAL = re.compile(r"([\\*_\[\]<>|#$])")
TITLES = {
    "saccade.md": ("saccade", "What `import saccade` gives."),
    "scores.md": ("Scores", "The classes of `saccade.SCORES`, by their names."),
    "normalizers.md": ("Normalisers", "The classes of `saccade.NORMALIZERS`, by their names."),
    "masks.md": ("Masks", "What `saccade.masks` has: predicates, True where a query may attend."),
    "models.md": ("Models", "Networks that tasks build; each is a `torch.nn.Module`."),
}


def write_pages() -> dict[str, str]:
    """Return the pages by their names."""
    objects: dict[str, Mapping[str, Any]] = {
        "saccade.md": _public(),
        "scores.md": saccade.SCORES,
        "normalizers.md": saccade.NORMALIZERS,
        "masks.md": _members(saccade.masks),
        "models.md": _models(),
    }
    return {name: _page(*TITLES[name], members) for name, members in objects.items()}


def _public() -> dict[str, Any]:
    found = {name: getattr(saccade, name) for name in saccade.__all__}
    return {name: one for name, one in found.items() if inspect.isclass(one) or inspect.isfunction(one)}


def _members(module: Any) -> dict[str, Any]:
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    found = {name: getattr(module, name) for name in names}
    return {
        name: one for name, one in found.items() if (inspect.isclass(one) or inspect.isfunction(one)) and one.__doc__
    }


def _models() -> dict[str, Any]:
    from saccade.models.classifier import TextClassifier
    from saccade.models.glimpse_network import GlimpseNetwork
    from saccade.models.seq2seq import Seq2Seq
    from saccade.models.tagger import TagNetwork
    from saccade.models.transformer import Transformer

    return {one.__name__: one for one in (Transformer, Seq2Seq, TextClassifier, TagNetwork, GlimpseNetwork)}


def _page(title: str, about: str, members: Mapping[str, Any]) -> str:
    return "\n".join(
        [f"# {title}", "", about, "", *(line for name, one in members.items() for line in _entry(name, one))]
    )


def _entry(name: str, one: Any) -> Iterable[str]:
    yield from (f"## {name}", "")
    yield from ("```python", f"{one.__name__}{_signature(one)}", "```", "")
    yield from _paragraphs(one)
    if not inspect.isclass(one):
        return
    for method, function in vars(one).items():
        if (not method.startswith("_") or method == "__call__") and inspect.isfunction(function) and function.__doc__:
            yield from (f"**{method}**", "", "```python", f"{method}{_signature(function)}", "```", "")
            yield from _paragraphs(function)


def _signature(one: Any) -> str:
    """Return a signature as a formatter would break it."""
    try:
        found = inspect.signature(one)
    except (TypeError, ValueError):
        return "(...)"
    text = QUOTED.sub(r"\1\2", str(found))
    if len(text) < 90:
        return text
    parts = [str(part) for part in found.parameters.values()]
    kinds = [part.kind for part in found.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        parts.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    returned = "" if found.return_annotation is found.empty else f" -> {found.return_annotation}"
    return QUOTED.sub(r"\1\2", "(\n" + "".join(f"    {part},\n" for part in parts) + f"){returned}")


def _paragraphs(one: Any) -> Iterable[str]:
    for paragraph in (inspect.getdoc(one) or "").split("\n\n"):
        if "   " in paragraph or _is_code(paragraph):  # a table of its own has spaces, too
            yield from ("```python", textwrap.dedent(paragraph), "```", "")
            continue
        code = paragraph.split("`")
        yield "`".join(part if number % 2 else SPECIAL.sub(r"\\\1", part) for number, part in enumerate(code))
        yield ""


def _is_code(paragraph: str) -> bool:
    """Return whether a paragraph is Python that sets something."""
    try:
        return any(isinstance(one, ast.Assign) for one in ast.parse(textwrap.dedent(paragraph)).body)
    except SyntaxError:
        return False
