"""Loads a config from a file and overrides; errors are one line."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from saccade import manifest
from saccade.config.base import FILES_OR_PART, ONE_OR_SEVERAL, VALUE_OR_AUTO, HeldOutPart, RunSection
from saccade.errors import UserError, suggest

MOST_VALUES = 10_000  # of a config, with what its aliases stand for


class StrictLoader(yaml.SafeLoader):
    """YAML's safe loader, which refuses a key that is given twice: one of the two values would be ignored.

    It also refuses aliases that stand for more values than a config may have: ten lines can name billions.
    """

    def get_single_node(self) -> yaml.Node | None:
        """Refuse too many values before any of them is made."""
        node = super().get_single_node()
        if node is not None:
            self._check_size(node, {})
        return node

    def _check_size(self, node: yaml.Node, sizes: dict[yaml.Node, int | None]) -> int:
        """Return how many values a node has when its aliases are replaced; those of an open one are not known."""
        if node in sizes:
            if (known := sizes[node]) is None:
                raise yaml.MarkedYAMLError(
                    problem="an alias stands inside of what it names", problem_mark=node.start_mark
                )
            return known
        sizes[node] = None
        inner = node.value if isinstance(node, yaml.CollectionNode) else ()
        parts = (part for one in inner for part in (one if isinstance(one, tuple) else (one,)))
        size = sizes[node] = 1 + sum(self._check_size(part, sizes) for part in parts)
        if size > MOST_VALUES:
            raise yaml.MarkedYAMLError(problem=f"more than {MOST_VALUES:,} values", problem_mark=node.start_mark)
        return size

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that comes again in the same mapping."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if again := [key for key in keys if keys.count(key) > 1]:
            raise yaml.MarkedYAMLError(problem=f"{again[0]} is given twice", problem_mark=node.start_mark)
        return super().construct_mapping(node, deep)


Overrides = Iterable[str] | Mapping[str, Any]  # "section.field=value", or values by "section.field"
Kinds = Mapping[str, type[RunSection]]  # the config of each task by its name; the first is the default


def read_config(path: Path, overrides: Overrides) -> dict[str, Any]:
    """Read a YAML file and change some fields, unchecked."""
    try:
        content = yaml.load(path.read_text("utf-8"), StrictLoader)
    except FileNotFoundError:
        raise UserError(f"config: there is no file at {path}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: this is not UTF-8") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
        raise UserError(f"{path}: this is not YAML: {reason}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: a config is a mapping of sections (data, tokenizer, model, training, decoding)")
    return override_fields(content, overrides)


def check_config(content: dict[str, Any], where: str, kinds: Kinds) -> Any:
    """Build the config of its task from plain data."""
    name = content.get("task", next(iter(kinds)))
    if not isinstance(name, str) or name not in kinds:
        raise UserError(f"{where}: task: {name!r} given; allowed: {', '.join(kinds)}")
    kind = kinds[name]
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise UserError(f"{where}: {'; '.join(_describe(problem, kind) for problem in error.errors())}") from None


def save_config(config: RunSection, path: Path) -> None:
    """Write the filled-in config as YAML into a run folder."""
    manifest.write(path.parent, path.name, yaml.safe_dump(config.model_dump(), sort_keys=False, allow_unicode=True))


def override_fields(content: Mapping[str, Any], overrides: Overrides) -> dict[str, Any]:
    """Return the content of a config with some fields changed; the given one stays as it is."""
    changed = copy.deepcopy(dict(content))
    pairs = overrides.items() if isinstance(overrides, Mapping) else map(_parse, overrides)
    for name, value in pairs:
        *sections, field = name.split(".")
        place = changed
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise UserError(f"{name}: {section} is not a section")
        place[field] = value
    return changed


def _parse(override: str) -> tuple[str, Any]:
    name, equals, value = override.partition("=")
    if not equals or not name:
        raise UserError(f"{override!r}: an override is section.field=value, say training.max_steps=100")
    try:
        return name, yaml.load(value, StrictLoader)
    except (yaml.YAMLError, RecursionError, ValueError):
        text = quote(f"{name}={json.dumps(value, ensure_ascii=False)}")  # JSON's strings are YAML's, too
        raise UserError(f"{override!r}: {value!r} is not a YAML value; if it is text: {text}") from None


def _describe(problem: Any, kind: type[RunSection]) -> str:
    places = [*_places(problem["loc"], kind)]
    where = ".".join(name for name, _ in places)
    if problem["type"] == "extra_forbidden":
        name, section = places[-1]
        fields = (field.alias or known for known, field in section.model_fields.items())
        return f"{where}: unknown{suggest(name, fields)}"
    if problem["type"] == "missing":
        return f"{where}: missing"
    reason = problem["msg"].removeprefix("Value error, ")
    if VALUE_OR_AUTO[0] in problem["loc"]:
        reason += ", or auto"
    if isinstance(problem["input"], dict) and problem["type"] == "value_error" and not reason.startswith("allowed"):
        return f"{where}.{reason}".strip(".")  # a section's reason begins with the name of the field
    return f"{where}: {problem['input']!r} given; {reason[0].lower()}{reason[1:]}" if where else reason


def _places(location: tuple[int | str, ...], kind: type[RunSection]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the names a user wrote on the way to a problem, each with the section it stands in.

    Pydantic also names which of several kinds of section was chosen; no user wrote that.
    """
    here: list[type[BaseModel]] = [kind]
    for part in location:
        if part in (*ONE_OR_SEVERAL, *VALUE_OR_AUTO):
            continue
        if part in FILES_OR_PART:
            here = [section for section in here if (section is HeldOutPart) == (part == FILES_OR_PART[1])] or here
            continue
        if len(here) > 1 and part not in here[0].model_fields:
            here = [section for section in here if part in get_args(section.model_fields["kind"].annotation)]
            continue
        yield str(part), here[0]
        if isinstance(part, str) and part in here[0].model_fields:
            here = list_sections(here[0].model_fields[part].annotation) or here


def list_sections(annotation: Any) -> list[type[BaseModel]]:
    """Return the kinds of section that a field may hold, perhaps in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return list(dict.fromkeys(section for part in get_args(annotation) for section in list_sections(part)))
