"""The configs that are compared: every combination of the varied fields, matched in size to the first."""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from rich.console import Console

from saccade.config.load import StrictLoader, override_fields, read_config
from saccade.errors import UserError
from saccade.runs import adapt
from saccade.runs import config as config_file
from saccade.tasks import TASKS
from saccade.tasks.steps import settle_steps

Changes = Mapping[str, Any]  # values by "section.field"
STEPS = [2**power for power in range(8)]  # by which a width may be allowed to grow
LARGEST = 64  # times what the config says
MOST_VARIANTS = 100


class RunOutline(NamedTuple):
    """Facts of a run that are known before it trains."""

    parameters: int
    rate: float
    max_steps: int
    validate_every: int


class Variant(NamedTuple):
    """A config to compare: its changes to the given one, and what comes of them."""

    name: str
    changes: Changes
    outline: RunOutline

    @property
    def slug(self) -> str:
        """Return the name as a folder's."""
        return re.sub(r"[^\w.=,+-]+", "_", self.name)


def list_changes(vary: Sequence[str]) -> list[Changes]:
    """Return the changes of every combination of `section.field=value,value,...`."""
    fields = dict(_parse(one) for one in vary)
    if len(fields) < len(vary):
        raise UserError("--vary: one field is given twice; put all its values behind one")
    combinations = list(itertools.product(*fields.values()))
    if len(combinations) > MOST_VARIANTS:
        raise UserError(f"--vary: {len(combinations):,} combinations given; allowed: {MOST_VARIANTS} or fewer")
    return [dict(zip(fields, values, strict=True)) for values in combinations]


def _parse(given: str) -> tuple[str, list[Any]]:
    name, equals, values = given.partition("=")
    if not equals or not name:
        raise UserError(f"--vary: {given!r} given; it is section.field=value,value, say model.score=dot,additive")
    try:
        found = yaml.load(f"[{values}]", StrictLoader)
    except (yaml.YAMLError, RecursionError, ValueError):
        raise UserError(f"--vary: {values!r} is not a list of YAML values") from None
    if len(found) < 2 or any(found.count(one) > 1 for one in found):
        raise UserError(f"--vary: {given} given; a comparison takes two or more different values of {name}")
    return name, found


def name_changes(changes: Changes) -> str:
    """Return a short name: the last part of each field, and its value."""
    said = ((field.rpartition(".")[2], value) for field, value in changes.items())
    return ", ".join(f"{field}={value if isinstance(value, str) else _flow(value)}" for field, value in said)


def _flow(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip()


def outline(config: str, overrides: Sequence[str], changes: Changes, tokenizers: str | None = None) -> RunOutline:
    """Build a run without training it; its tokenizers are left in a folder that others take them from."""
    with tempfile.TemporaryDirectory() as empty:
        folder = Path(tokenizers or empty)
        checked = load(Path(config), overrides, changes, Path(empty))
        job = TASKS[checked.task].prepare(checked, folder, Console(quiet=True))
        training = settle_steps(job.config or checked, job.plan).training
    parameters = sum(parameter.numel() for parameter in job.network.parameters())
    return RunOutline(parameters, float(training.learning_rate), int(training.max_steps), int(training.validate_every))


def share_tokenizers(fields: Sequence[str]) -> bool:
    """Return whether variants that differ in these fields have the same tokenizers: models don't change the text."""
    return all(field.split(".")[0] in ("model", "training") for field in fields)


def load(config: Path, overrides: Sequence[str], changes: Changes, folder: Path) -> Any:
    """Read a config with a variant's changes."""
    content = override_fields(read_config(config, overrides), changes)
    return config_file.check_config(adapt.fill_in(content, folder), str(config))


def make(
    config: Path,
    overrides: Sequence[str],
    changes: Sequence[Changes],
    build: Callable[[Sequence[Changes]], Sequence[RunOutline]],
    *,
    match: str | None,
    tolerance: float,
) -> list[Variant]:
    """Return all variants, the field `match` of each chosen so that it has as many parameters as the first."""
    made = [Variant(name_changes(one), one, found) for one, found in zip(changes, build(changes), strict=True)]
    if len({one.slug for one in made}) < len(made):
        raise UserError("--vary: two values are alike as names of folders; write one of them differently")
    if match is None:
        return made
    if any(match in one.changes for one in made):
        raise UserError(f"--match: {match} given, which --vary changes; allowed: another field")
    start = _read_number(load(config, overrides, made[0].changes, Path()), match)
    wanted = made[0].outline.parameters

    def build_one(change: Changes) -> RunOutline:
        return build([change])[0]

    return [made[0], *(match_size(one, build_one, match, start, wanted, tolerance) for one in made[1:])]


def match_size(
    variant: Variant, build: Callable[[Changes], RunOutline], field: str, start: int, wanted: int, tolerance: float
) -> Variant:
    """Change a field, in steps that its config allows, until the number of parameters is within the tolerance."""

    @cache
    def outline_at(value: int) -> RunOutline:
        return variant.outline if value == start else build({**variant.changes, field: value})

    def off(value: int) -> float:
        return abs(outline_at(value).parameters / wanted - 1)

    if off(start) <= tolerance:
        return variant
    best = min(_bracket(lambda value: outline_at(value).parameters, start, wanted, field), key=off)
    if off(best) > tolerance:
        found = outline_at(best).parameters
        raise UserError(
            f"--match: {variant.name} has {found:,} parameters at {field}={best}, {100 * (found / wanted - 1):+.1f}% "
            f"of the {wanted:,} wanted, and nothing nearer; allowed: {100 * tolerance:g}% (--tolerance)"
        )
    name = f"{variant.name}, {field.rpartition('.')[2]}={best}"
    return Variant(name, {**variant.changes, field: best}, outline_at(best))


def _bracket(count: Callable[[int], int], start: int, wanted: int, field: str) -> list[int]:
    """Return the values next to each other, both allowed, between which the wanted number of parameters lies."""
    step = next((one for one in STEPS if _is_allowed(count, start + one)), None)
    if step is None or count(start + step) <= count(start):
        raise UserError(f"--match: {field} given, and a larger one makes no larger model; allowed: a width")
    low, high, stride = start, start, step
    while count(high) < wanted and high < LARGEST * start:
        low, high, stride = high, high + stride, 2 * stride
    while count(low) > wanted and low > step:
        low, high, stride = max(low - stride, low % step or step), low, 2 * stride
    while high - low > step:
        middle = low + (high - low) // (2 * step) * step
        low, high = (middle, high) if count(middle) < wanted else (low, middle)
    return [low, high]


def _is_allowed(count: Callable[[int], int], value: int) -> bool:
    try:
        count(value)
    except (UserError, ValueError):
        return False
    return True


def _read_number(config: Any, field: str) -> int:
    """Return the whole number that a field of a config has."""
    found = config
    for name in field.split("."):
        found = getattr(found, name, None)
    if not isinstance(found, int) or isinstance(found, bool):
        raise UserError(f"--match: {field} is {found!r} in the config; allowed: a field with a whole number")
    return found
