"""Counts the outputs that were cut, and names the settings that cut them, so that no limit goes unseen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, final

from saccade.tasks.base import Evaluation

REASONS = {  # settings of the section `decoding`, and what one or several outputs did that they cut
    "max_length": ("reached its greatest length", "reached their greatest length"),
    "max_length_factor": ("reached its greatest length", "reached their greatest length"),
    "max_rounds": ("was cut where it went in circles", "were cut where they went in circles"),
}


@final
@dataclass
class CutCounts:
    """The number of outputs, and how many of them each setting cut; `max_length` is the setting's value."""

    max_length: int
    num_outputs: int = 0
    by_setting: Counter[str] = field(default_factory=Counter)

    def watch(self, outputs: Iterable[Any]) -> Iterator[Any]:
        """Pass outputs on, and count them; each with the next best ones."""
        for best in outputs:
            for one in (best, *best.others):
                self.num_outputs += 1
                if one.cut is not None:
                    self.by_setting[self._setting(one)] += 1
            yield best

    def _setting(self, output: Any) -> str:
        if output.cut == "loop":
            return "max_rounds"
        return "max_length" if len(output.log_probabilities) >= self.max_length else "max_length_factor"

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
    counts = {name: by_setting[name] for name in REASONS if by_setting.get(name)}
    all_of_them = f"{num_outputs:,.0f} output{'' if num_outputs == 1 else 's'}"
    return [
        f"{count:,.0f} of {all_of_them} {REASONS[name][count != 1]}: decoding.{name}" for name, count in counts.items()
    ]
