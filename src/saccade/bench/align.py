"""`saccade bench align`: compares the alignments of our heads with those of eflomal, on the same text and gold.

eflomal (Östling & Tiedemann 2016) learns from the text that it aligns: it reads the gold's sentences together with the
training text of our runs. Our runs saw the training text alone.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

from rich.table import Table

import saccade
from saccade.bench.peers.environments import Environment, PeerError
from saccade.data.text.corpus import Pair
from saccade.inspection.align.aligner import (
    Aligner,
    find_agreement,
    link_jointly,
    read_pairs,
    score_heads,
    swap,
)
from saccade.inspection.align.choose import read_with_gold
from saccade.inspection.align.gold import read_links
from saccade.inspection.align.heads import find_best_head
from saccade.inspection.align.links import SYMMETRIZERS, AlignmentScores, Gold, Links, reverse, score_links
from saccade.runs import config as config_file
from saccade.runs.load import load_run
from saccade.tasks.translate import corpora

REQUIREMENTS = ("eflomal",)
FILES = ("source.txt", "target.txt", "forward.txt", "reverse.txt")
COMMAND = ("eflomal-align", *itertools.chain.from_iterable(zip(("-s", "-t", "-f", "-r"), FILES, strict=True)))
Both = list[tuple[Links, Links]]  # of each sentence the links of each direction
Say = Callable[[str], None]


class AlignFiles(NamedTuple):
    """The sentences to align, and the file with their links drawn by hand."""

    source: Path
    target: Path | None
    gold: Path


@final
@dataclass(frozen=True)
class AlignPlan:
    """The runs, files and settings of an alignment benchmark."""

    runs: tuple[Path, Path]  # there and back
    files: AlignFiles
    peers_folder: Path
    is_lower: bool = False  # what eflomal reads


class AlignRow(NamedTuple):
    """The scores of one aligner for each symmetrization, and its time; or the reason why it has none."""

    title: str
    version: str
    ways: dict[str, AlignmentScores]
    seconds: float
    problem: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "ways": {way: scores.plain() for way, scores in self.ways.items()}}


def run(plan: AlignPlan, say: Say) -> list[AlignRow]:
    """Score our alignments with heads chosen in two ways, then those of eflomal; write nothing into the runs."""
    pairs, gold = read_with_gold(read_pairs(plan.files.source, plan.files.target), plan.files.gold)
    there, back = (load_run(folder).word_attention() for folder in plan.runs)
    say(f"saccade: choosing heads by {len(pairs):,} pairs, without their gold and by it")
    agreeing = find_agreement(there, back, pairs)
    by_agreement = Aligner(there, agreeing.forward), Aligner(back, agreeing.backward)
    swapped, true = list(swap(pairs)), [one.reverse() for one in gold]
    scores = score_heads(there, pairs, gold), score_heads(back, swapped, true)
    by_gold = Aligner(there, find_best_head(scores[0]).head), Aligner(back, find_best_head(scores[1]).head)
    ours = [_measure_ours(how, *both, pairs, gold) for how, both in (("agreement", by_agreement), ("gold", by_gold))]
    return [*ours, _measure_eflomal(plan, pairs, gold, say)]


def _measure_ours(
    how: str, forward: Aligner, backward: Aligner, pairs: Sequence[Pair], gold: Sequence[Gold]
) -> AlignRow:
    started = time.perf_counter()
    joint = list(link_jointly(forward, backward, pairs))
    seconds = time.perf_counter() - started
    swapped = map(reverse, backward.links(swap(pairs)))
    alone = list(zip(forward.links(pairs), swapped, strict=True))
    return AlignRow(f"saccade, heads by {how}", saccade.__version__, dict(score_ways(alone, joint, gold)), seconds)


def score_ways(alone: Both, joint: Both, gold: Sequence[Gold]) -> Iterator[tuple[str, AlignmentScores]]:
    """Score each direction alone, then both with every symmetrizer."""
    for index, way in enumerate(("forward", "reverse")):
        yield way, score_links((links[index] for links in alone), gold)
    for way, join in SYMMETRIZERS.items():
        yield way, score_links((join(*links) for links in joint), gold)


def _measure_eflomal(plan: AlignPlan, pairs: Sequence[Pair], gold: Sequence[Gold], say: Say) -> AlignRow:
    environment = Environment(plan.peers_folder / "eflomal", REQUIREMENTS)
    try:
        if not environment.is_ready:
            say(f"installing eflomal into {environment.folder} (once)")
            environment.install()
        (version,) = environment.versions("eflomal")
        text = itertools.chain(pairs, read_training_text(plan.runs[0]))
        say("eflomal: it learns from the run's training text (ten minutes for 300,000 pairs on two cores)")
        started = time.perf_counter()
        both = run_eflomal(environment, text, pairs, is_lower=plan.is_lower)
        return AlignRow("eflomal", version, dict(score_ways(both, both, gold)), time.perf_counter() - started)
    except PeerError as error:
        return AlignRow("eflomal", "-", {}, 0.0, str(error))


def read_training_text(folder: Path) -> Iterator[Pair]:
    """Read the sentence pairs that a run was trained on."""
    config = config_file.load_config(folder / "config.yaml")
    return itertools.chain.from_iterable(corpus.pairs() for corpus in corpora.training_corpora(config))


def run_eflomal(environment: Environment, text: Iterable[Pair], pairs: Sequence[Pair], *, is_lower: bool) -> Both:
    """Align a text with eflomal, and return the links of its first pairs."""
    with tempfile.TemporaryDirectory(prefix="saccade-bench-") as name:
        folder = Path(name)
        paths = [folder / file for file in FILES]
        with paths[0].open("w", encoding="utf-8") as source, paths[1].open("w", encoding="utf-8") as target:
            for pair in text:
                source.write(f"{pair.source.lower() if is_lower else pair.source}\n")
                target.write(f"{pair.target.lower() if is_lower else pair.target}\n")
        environment.run(COMMAND, folder)
        forward, backward = (list(itertools.islice(read_links(path), len(pairs))) for path in paths[2:])
    return list(zip(forward, backward, strict=True))


def table(rows: Sequence[AlignRow]) -> Table:
    """Build a table with a line for each symmetrization and a column for each aligner."""
    found = Table(header_style="bold", box=None, pad_edge=False)
    found.add_column("AER (precision, recall)", no_wrap=True)
    for row in rows:
        found.add_column(f"{row.title} {row.version}", justify="right")
    for way in rows[0].ways:
        found.add_row(way, *(_cell(row.ways.get(way)) for row in rows))
    found.add_row("seconds", *(f"missing: {row.problem}" if row.problem else f"{row.seconds:,.0f}" for row in rows))
    return found


def _cell(scores: AlignmentScores | None) -> str:
    if scores is None:
        return "-"
    aer, precision, recall = (100 * value for value in scores.plain().values())
    return f"{aer:.1f} ({precision:.1f}, {recall:.1f})"
