"""The work on each shard: a trained run reads its lines and answers them, one line each."""

from __future__ import annotations

import gzip
import io
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TextIO, final

import torch

from saccade.bulk.shards import Shard, fetch, write_whole
from saccade.data.store import content_hash
from saccade.export.choice import EngineChoice
from saccade.inspection.align.choose import AligningRun, make_links
from saccade.inspection.align.links import format_pharaoh
from saccade.inspection.insight import Head
from saccade.runs.check import CONFIG, MODEL
from saccade.runs.load import load_run
from saccade.tasks.base import Predictor
from saccade.tasks.cuts import CutCounts
from saccade.tasks.insisted import InsistedCounts

READ_BY_RUNS = (CONFIG, MODEL, "tokenizer.*")


@final
@dataclass
class Counts:
    """Counts of the lines that were written, and warnings about them."""

    num_lines: int = 0
    cuts: CutCounts = field(default_factory=CutCounts)
    insisted: InsistedCounts = field(default_factory=InsistedCounts)
    warnings: list[str] = field(default_factory=list)  # the first of each shard

    def add(self, other: Counts) -> None:
        """Count what was written elsewhere, too."""
        self.num_lines += other.num_lines
        self.cuts.add(other.cuts)
        self.insisted.add(other.insisted)
        self.warnings += other.warnings

    def watch(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            self.num_lines += 1
            yield line


class Answer(Protocol):
    """Answers the lines of local files, in order, one line each."""

    def __call__(self, paths: list[Path], counts: Counts) -> Iterator[str]: ...


class Work(Protocol):
    """The work on every shard. It is sent to other processes, and each of them loads the model once."""

    def start(self) -> Answer:
        """Load the model, and return the function that answers a shard."""

    def identity(self) -> str:
        """Return a hash of all that answers depend on, beside the shards."""


@final
@dataclass(frozen=True)
class PredictWork:
    """The work of `saccade predict`."""

    runs: tuple[Path, ...]
    engine: EngineChoice
    device: str | None
    threads: int | None
    glossary: Path | None
    options: Mapping[str, Any]
    as_json: bool

    def load(self) -> Predictor:
        """Load the run, with its glossary if there is one."""
        torch.set_num_threads(self.threads or torch.get_num_threads())
        found: Predictor = load_run(*self.runs, device=self.device, engine=self.engine)
        return found if self.glossary is None else found.with_glossary(self.glossary)

    def start(self) -> Answer:
        predictor = self.load()

        def answer(paths: list[Path], counts: Counts) -> Iterator[str]:
            counts.insisted = InsistedCounts(predictor.traits.num_terms)
            found = predictor.stream(predictor.read(paths[0]), **self.options)
            for best in counts.insisted.watch(counts.cuts.watch(found)):
                yield json.dumps(best.plain(), ensure_ascii=False) if self.as_json else best.line()

        return answer

    def identity(self) -> str:
        """Return a hash of the runs, of other files and of the options."""
        others = [path for path in (self.glossary, self.engine.shortlist) if path is not None]
        said = {"options": dict(self.options), "json": self.as_json, "engine": self.engine[:2], "work": "predict"}
        return content_hash([*_files(self.runs), *others], said)


@final
@dataclass(frozen=True)
class AlignWork:
    """`saccade look --align`: by the heads that were chosen."""

    runs: tuple[tuple[Path, Head], ...]
    symmetrize: str
    threads: int | None
    as_json: bool

    def start(self) -> Answer:
        torch.set_num_threads(self.threads or torch.get_num_threads())
        loaded = [load_run(folder) for folder, _ in self.runs]
        runs = [
            AligningRun(folder, one.word_attention(), head)
            for (folder, head), one in zip(self.runs, loaded, strict=True)
        ]

        def answer(paths: list[Path], counts: Counts) -> Iterator[str]:
            del counts
            pairs = loaded[0].read_pairs(paths[0], paths[1] if len(paths) > 1 else None)
            for found in make_links(runs, pairs, self.symmetrize):
                yield json.dumps({"links": sorted(found)}) if self.as_json else format_pharaoh(found)

        return answer

    def identity(self) -> str:
        """Return a hash of the runs, and of how they align."""
        heads = [head._asdict() for _, head in self.runs]
        said = {"heads": heads, "symmetrize": self.symmetrize, "json": self.as_json, "work": "align"}
        return content_hash(_files([folder for folder, _ in self.runs]), said)


class WrittenShard(NamedTuple):
    """A shard that was written, and what is said of its lines."""

    shard: Shard
    counts: Counts


def answer_shard(answer: Answer, shard: Shard) -> WrittenShard:
    """Read a shard, answer its lines, and write all answers or nothing."""
    counts = Counts()
    with (
        _collect_warnings(shard, counts),
        fetch(shard.inputs) as paths,
        write_whole(shard.output) as draft,
        _open_text(draft, is_packed=shard.output.endswith(".gz")) as file,
    ):
        file.writelines(f"{line}\n" for line in counts.watch(answer(paths, counts)))
    return WrittenShard(shard, counts)


@contextmanager
def _open_text(draft: Path, *, is_packed: bool) -> Iterator[TextIO]:
    """Open a draft for text; of a packed one the bytes depend on its text alone."""
    with draft.open("wb") as raw:
        if not is_packed:
            with io.TextIOWrapper(raw, "utf-8", newline="\n") as file:
                yield file
            return
        with (
            gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
            io.TextIOWrapper(packed, "utf-8", newline="\n") as file,
        ):
            yield file


@contextmanager
def _collect_warnings(shard: Shard, counts: Counts) -> Iterator[None]:
    """Keep the first warning and the number of all, to be said where the job was begun."""
    found: list[str] = []

    def keep(message: Warning | str, *_: object, **__: object) -> None:
        found.append("" if found else str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = keep
        yield
    if found:
        more = f" (the first of {len(found):,} warnings)" if len(found) > 1 else ""
        counts.warnings.append(f"{shard.name}: {found[0]}{more}")


def _files(runs: Iterable[Path]) -> list[Path]:
    return [path for run in runs for pattern in READ_BY_RUNS for path in sorted(run.glob(pattern))]
