"""Counts the outputs that were cut, and names the settings that cut them, so that no limit goes unseen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, final

from saccade.decoding import Cut
from saccade.tasks.base import Evaluation

Kind = Literal["length", "loop"]  # why an output was cut


class Setting(NamedTuple):
    """A setting of the section `decoding` that cuts outputs: why, and what is said of one and of several."""

    kind: Kind
    one: str
    several: str


BY_LENGTH = Setting("length", "reached its greatest length", "reached their greatest length")
BY_LOOP = Setting("loop", "was cut where it went in circles", "were cut where they went in circles")
SETTINGS: dict[Cut, Setting] = {"max_length": BY_LENGTH, "max_length_factor": BY_LENGTH, "max_rounds": BY_LOOP}


def tell_kind(setting: Cut | None) -> Kind | None:
    """Return why an output was cut, for people and programs; None: it was not."""
    return None if setting is None else SETTINGS[setting].kind


@final
@dataclass
class CutCounts:
    """The number of outputs, and how many of them each setting cut."""

    num_outputs: int = 0
    by_setting: Counter[str] = field(default_factory=Counter)

    def watch(self, outputs: Iterable[Any]) -> Iterator[Any]:
        """Pass outputs on, and count them, each with the next best ones; results that aren't written are never cut."""
        for best in outputs:
            for one in (best, *getattr(best, "others", ())):
                self.num_outputs += 1
                if (setting := getattr(one, "cut_by", None)) is not None:
                    self.by_setting[setting] += 1
            yield best

    def add(self, other: CutCounts) -> None:
        """Count what was counted elsewhere, too."""
        self.num_outputs += other.num_outputs
        self.by_setting.update(other.by_setting)

    def describe(self) -> list[str]:
        return describe_cuts(self.by_setting, self.num_outputs)

    def figures(self) -> dict[str, float]:
        """Return the counts as a validation's figures."""
        return {"num_outputs": self.num_outputs, **{f"cut_{name}": count for name, count in self.by_setting.items()}}

    def add_to(self, found: Evaluation) -> Evaluation:
        """Return an evaluation with these counts as its score `cut`, and a line for each setting that cut outputs."""
        scores = {**found.scores, "cut": dict(self.by_setting)}
        return found._replace(scores=scores, lines=[*found.lines, *self.describe()])


def describe_cuts(by_setting: Mapping[str, float], num_outputs: float) -> list[str]:
    """Return a line for each setting that cut outputs."""
    all_of_them = f"{num_outputs:,.0f} output{'' if num_outputs == 1 else 's'}"
    lines = []
    for name, setting in SETTINGS.items():
        if count := by_setting.get(name):
            did = setting.one if count == 1 else setting.several
            lines.append(f"{count:,.0f} of {all_of_them} {did}: decoding.{name}")
    return lines
