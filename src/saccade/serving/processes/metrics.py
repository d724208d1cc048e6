"""The metrics of several processes: each leaves its own in a folder, and whoever is asked returns the sum."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import final

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

KEPT = ("counter", "histogram")  # what is still true of a process that has ended
LARGEST = {"process_start_time_seconds", "process_max_fds"}  # are no sums
SUFFIX = {"counter": "_total"}


@final
class SharedMetrics:
    """A folder with a file of metrics for each process, the ones that have ended included."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: bytes) -> None:
        """Replace what a process said last."""
        draft = self.folder / f".{name}"
        draft.write_bytes(text)
        draft.replace(self.folder / f"{name}.live")

    def retire(self, name: str) -> None:
        """Keep the counters of a process that has ended."""
        live = self.folder / f"{name}.live"
        if live.exists():
            live.replace(self.folder / f"{name}.ended")

    def add_up(self, name: str, own: bytes) -> bytes:
        """Return the sum of a process's present metrics and of what the others have said last."""
        live = [path.read_bytes() for path in sorted(self.folder.glob("*.live")) if path.stem != name]
        ended = [path.read_bytes() for path in sorted(self.folder.glob("*.ended"))]
        found = [*_parse([own, *live]), *(one for one in _parse(ended) if one.type in KEPT)]
        return _render(found).encode()


@final
@dataclass
class TeamCounts:
    """Counters of the process that starts the others."""

    lost: int = 0
    answered: int = 0
    cut: int = 0
    reloads: int = 0

    def describe(self, serving: int) -> bytes:
        """Return the counts as metrics."""
        said = "# HELP saccade_processes Processes that serve.\n# TYPE saccade_processes gauge\n"
        said += f"saccade_processes {serving}\n"
        counters = {
            "processes_lost": ("Processes that ended by themselves, and were replaced.", {"": self.lost}),
            "requests_lost": (
                "Requests that lost processes had: answered with 503, or cut in their answer.",
                {'{how="503"}': self.answered, '{how="cut"}': self.cut},
            ),
            "reloads": ("Times that run folders were loaded anew.", {"": self.reloads}),
        }
        for name, (help_, values) in counters.items():
            said += f"# HELP saccade_{name}_total {help_}\n# TYPE saccade_{name}_total counter\n"
            said += "".join(f"saccade_{name}_total{labels} {value}\n" for labels, value in values.items())
        return said.encode()


def _parse(texts: Iterable[bytes]) -> list[Metric]:
    return [metric for text in texts for metric in text_string_to_metric_families(text.decode())]


def _render(metrics: Iterable[Metric]) -> str:
    """Add samples of the same name and labels, and write each metric once."""
    first, values = dict[str, Metric](), dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]]()
    for metric in metrics:
        first.setdefault(metric.name, metric)
        sums = values.setdefault(metric.name, {})
        for sample in metric.samples:
            place = sample.name, tuple(sample.labels.items())
            before = sums.get(place, 0.0)
            is_sum = metric.name not in LARGEST and not metric.name.endswith("_created")
            sums[place] = before + sample.value if is_sum else max(before, sample.value)
    lines = list[str]()
    for name, metric in first.items():
        whole = name + SUFFIX.get(metric.type, "")
        lines += [f"# HELP {whole} {metric.documentation}", f"# TYPE {whole} {metric.type}"]
        for (sample_name, labels), value in values[name].items():
            inside = ",".join(f'{label}="{_escape(text)}"' for label, text in labels)
            lines.append(f"{sample_name}{{{inside}}} {value}" if inside else f"{sample_name} {value}")
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
