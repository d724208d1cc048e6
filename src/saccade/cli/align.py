"""`saccade look --align`: from files to links in a file, with the heads that align best."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from saccade.cli import terminal
from saccade.data.text.corpus import Pair
from saccade.errors import UserError
from saccade.files import replace_file
from saccade.inspection.align import chosen_head
from saccade.inspection.align.gold import read_gold
from saccade.inspection.align.heads import HeadScore, best, candidates
from saccade.inspection.align.links import SYMMETRIZERS, AlignmentScores, Gold, Links, pharaoh, scored
from saccade.inspection.insight import Head
from saccade.runs.load import load_run
from saccade.tasks.translate import align
from saccade.tasks.translate.align import Aligner
from saccade.tasks.translate.predictor import Translator
from saccade.tasks.translate.word_weights import num_layers_and_heads

ENOUGH = 1000  # pairs to choose heads by, where there is no gold
SYMMETRIZE = "grow-diag-final-and"
HOW = "--gold or --reverse would choose better"


@final
@dataclass(frozen=True)
class AlignJob:
    """What to align, and how."""

    source: Path | None
    target: Path | None = None
    gold: Path | None = None
    reverse: Path | None = None  # a run of the opposite direction
    symmetrize: str | None = None
    output: Path | None = None
    as_json: bool = False

    def __post_init__(self) -> None:
        if self.source is None:
            raise UserError("--input: none given; allowed with --align: a file of source texts, or one with both sides")
        if self.symmetrize is not None and self.reverse is None:
            raise UserError("--symmetrize: given without --reverse, a run of the opposite direction")
        if self.symmetrize is not None and self.symmetrize not in SYMMETRIZERS:
            raise UserError(f"--symmetrize: {self.symmetrize!r} given; allowed: {', '.join(SYMMETRIZERS)}")

    def pairs(self) -> Iterator[Pair]:
        """From the files."""
        assert self.source is not None
        return align.read_pairs(self.source, self.target)


class AligningRun(NamedTuple):
    """A run folder and its model."""

    folder: Path
    translator: Translator

    @classmethod
    def load(cls, folder: Path) -> AligningRun:
        """It must be one that aligns, with a head that it has, if one was chosen."""
        translator = load_run(folder)
        known = candidates(*num_layers_and_heads(translator))  # refuses what doesn't align
        head = translator.aligning
        if head is not None and head not in known:
            raise UserError(f"{folder / chosen_head.NAME}: {described(head)}: this model has none; delete the file")
        return cls(folder, translator)

    @property
    def aligner(self) -> Aligner:
        """With the head that was chosen."""
        assert self.translator.aligning is not None
        return Aligner(self.translator, self.translator.aligning)

    def with_head(self, head: Head) -> AligningRun:
        """The run that aligns with this head."""
        return self._replace(translator=replace(self.translator, aligning=head))


class AlignReport(NamedTuple):
    """What gold says of each run's heads, and of the two best together."""

    heads: dict[Path, list[HeadScore]]
    together: dict[str, AlignmentScores]

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        runs = [
            {"run": str(folder), "best": _plain(best(scores)), "heads": [_plain(score) for score in scores]}
            for folder, scores in self.heads.items()
        ]
        return {"runs": runs, "together": {name: scores.plain() for name, scores in self.together.items()}}

    def show(self, console: Console) -> None:
        """For people."""
        for folder, scores in self.heads.items():
            console.print(f"\n{escape(str(folder))}: AER of every head, in percent", highlight=False)
            console.print(_grid(scores))
            console.print(f"Best: {described(best(scores).head)}; {said(best(scores).scores)}.", highlight=False)
        for name, together in self.together.items():
            console.print(f"{name:20} {said(together)}", highlight=False)


def run(model: Path, job: AlignJob, console: Console) -> None:
    """Choose heads if that is asked for, then write the links of every pair."""
    if job.reverse is not None and job.reverse.resolve() == model.resolve():
        raise UserError(f"--reverse: {job.reverse} given, the run itself; wanted: one of the opposite direction")
    runs = [AligningRun.load(folder) for folder in (model, job.reverse) if folder is not None]
    if job.gold is not None:
        runs, report = choose_by_gold(runs, *with_gold(job.pairs(), job.gold))
        if job.as_json:
            typer.echo(json.dumps(report.plain()))
        else:
            report.show(console)
        if job.output is None:
            return
    elif any(one.translator.aligning is None for one in runs):
        some = list(itertools.islice(job.pairs(), ENOUGH))
        runs = choose_by_agreement(runs, some) if len(runs) == 2 else choose_by_coverage(runs, some)
    _write(links(runs, job.pairs(), job.symmetrize or SYMMETRIZE), job)


def with_gold(pairs: Iterable[Pair], path: Path) -> tuple[list[Pair], list[Gold]]:
    """All pairs, and what people linked in them."""
    read = list(pairs)
    return read, read_gold(path, [(len(pair.source.split()), len(pair.target.split())) for pair in read])


def choose_by_gold(
    runs: list[AligningRun], pairs: list[Pair], gold: Sequence[Gold]
) -> tuple[list[AligningRun], AlignReport]:
    """The best head of each run is kept with it."""
    heads: dict[Path, list[HeadScore]] = {}
    sides = [(pairs, gold), (list(align.turned(pairs)), [true.reversed() for true in gold])]
    for one, (read, true) in zip(runs, sides, strict=False):
        watched = terminal.counted(iter(read), len(read), hidden=False)
        heads[one.folder] = align.against_gold(one.translator, watched, true)
        found = best(heads[one.folder])
        chosen_head.save(one.folder, found.head, chosen_by="gold", num_pairs=len(pairs), **found.scores.plain())
    runs = [one.with_head(best(heads[one.folder]).head) for one in runs]
    return runs, AlignReport(heads, _together(runs, pairs, gold) if len(runs) == 2 else {})


def _together(runs: Sequence[AligningRun], pairs: list[Pair], gold: Sequence[Gold]) -> dict[str, AlignmentScores]:
    forward, backward = (one.aligner for one in runs)
    both = list(align.aligned_jointly(forward, backward, pairs))
    return {name: scored((join(*one) for one in both), gold) for name, join in SYMMETRIZERS.items()}


def choose_by_agreement(runs: list[AligningRun], pairs: list[Pair]) -> list[AligningRun]:
    """The two heads of opposite directions that agree most are kept."""
    forward, backward = runs
    found = align.agreement(forward.translator, backward.translator, pairs)
    heads = (found.forward, found.backward)
    for one, head in zip(runs, heads, strict=True):
        chosen_head.save(one.folder, head, chosen_by="agreement", num_pairs=len(pairs), f1=found.f1)
        typer.echo(f"{one.folder}: {described(head)}", err=True)
    typer.echo(f"They agree most: F1 {found.f1:.3f} of each other on {len(pairs):,} pairs.", err=True)
    return [one.with_head(head) for one, head in zip(runs, heads, strict=True)]


def choose_by_coverage(runs: list[AligningRun], pairs: list[Pair]) -> list[AligningRun]:
    """Where there is nothing better to choose by; nothing is kept."""
    (one,) = runs
    found = align.coverage(one.translator, pairs)
    what = f"its links reach most source words ({found.share:.0%} of {len(pairs):,} pairs)"
    typer.echo(f"{one.folder}: {described(found.head)}, as {what}; {HOW}", err=True)
    return [one.with_head(found.head)]


def links(runs: Sequence[AligningRun], pairs: Iterable[Pair], symmetrize: str) -> Iterator[Links]:
    """Of one run, or of two made one."""
    if len(runs) == 1:
        return align.aligned(runs[0].aligner, pairs)
    forward, backward = (one.aligner for one in runs)
    return itertools.starmap(SYMMETRIZERS[symmetrize], align.aligned_jointly(forward, backward, pairs))


def _write(found: Iterator[Links], job: AlignJob) -> None:
    """A line a pair, to the file when all of it is there, or as it comes to the standard output."""
    is_shown = job.output is None and sys.stdout.isatty()
    watched = terminal.counted(found, terminal.num_lines(job.source), hidden=is_shown)
    lines = map(_as_json, watched) if job.as_json else map(pharaoh, watched)
    if job.output is None:
        for line in lines:
            typer.echo(line)
        return
    with replace_file(job.output) as draft, draft.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)


def _as_json(found: Links) -> str:
    return json.dumps({"links": sorted(found)})


def described(head: Head) -> str:
    """A head in words."""
    which = "the mean of its heads" if head.head is None else f"head {head.head}"
    return f"layer {head.layer}, {which}, at the step that {'reads' if head.shift else 'writes'} the word"


def said(scores: AlignmentScores) -> str:
    """Scores in percent."""
    aer, precision, recall = (100 * value for value in scores.plain().values())
    return f"AER {aer:.1f}, precision {precision:.1f}, recall {recall:.1f}"


def _plain(score: HeadScore) -> dict[str, Any]:
    return {**score.head._asdict(), **score.scores.plain()}


def _grid(scores: Sequence[HeadScore]) -> Table:
    """A row for each layer and step, a column for each head and their mean."""
    table = Table(header_style="bold", box=None, pad_edge=False)
    lowest = best(scores).scores.aer
    columns = dict.fromkeys("mean" if score.head.head is None else str(score.head.head) for score in scores)
    for heading in ("layer", "step", *columns):
        table.add_column(heading, justify="right")
    for (layer, shift), row in itertools.groupby(scores, key=lambda score: (score.head.layer, score.head.shift)):
        errors = [score.scores.aer for score in row]
        cells = [f"[bold green]{100 * aer:.1f}[/]" if aer == lowest else f"{100 * aer:.1f}" for aer in errors]
        table.add_row(str(layer), "reads" if shift else "writes", *cells)
    return table
