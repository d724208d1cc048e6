"""The models of a server: their tasks, and the languages that they translate between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final

from saccade.data.text.languages import CODE
from saccade.errors import UserError
from saccade.export.choice import TORCH, EngineChoice
from saccade.runs import config as config_file
from saccade.runs.check import read_examples
from saccade.runs.load import load_run
from saccade.serving.batcher import Batcher
from saccade.serving.settings import (
    MAX_UNSPLIT_CHARACTERS,
    MAX_UNSPLIT_PIECES,
    MAX_WHOLE_CHARACTERS,
    MAX_WHOLE_PIECES,
)
from saccade.tasks import TASKS
from saccade.tasks.base import Predictor, Route, Traits

MAX_EXAMPLES = 8


class LanguagePair(NamedTuple):
    """A source and a target language."""

    source: str
    target: str


class TextLimits(NamedTuple):
    """The most characters and pieces of a text that a model reads at once: the cost grows with their square."""

    characters: int
    pieces: int


class ServedRun(NamedTuple):
    """A trained run that is loaded."""

    name: str
    task: str
    predictor: Predictor
    pair: LanguagePair | None
    examples: tuple[str, ...] = ()  # to try on the page
    hears: bool = False  # it reads sounds, which no route of texts takes

    @property
    def texts(self) -> str | None:
        """Return what its texts are; None where answers are none. Old runs do not say: with languages, sentences."""
        texts = self.predictor.traits.texts
        if texts != "auto":
            return texts
        return "anything" if self.pair is None else "sentences"

    @property
    def limits(self) -> TextLimits:
        """Return the limits of what it reads at once."""
        if self.texts not in ("documents", "anything"):
            return TextLimits(MAX_UNSPLIT_CHARACTERS, MAX_UNSPLIT_PIECES)
        return TextLimits(
            MAX_WHOLE_CHARACTERS, min(MAX_WHOLE_PIECES, self.predictor.traits.max_pieces or MAX_WHOLE_PIECES)
        )


@final
@dataclass(frozen=True)
class ServedModel:
    """A run and the queue of its requests."""

    run: ServedRun
    batcher: Batcher


@final
class ModelSet:
    """All models of a server, by name; of two with the same languages, the first translates."""

    def __init__(self, runs: Sequence[ServedRun], queue: Callable[[ServedRun], Batcher]) -> None:
        self.models = {run.name: ServedModel(run, queue(run)) for run in runs}
        if len(self.models) < len(runs):
            twice = next(run.name for run in runs if [other.name for other in runs].count(run.name) > 1)
            raise UserError(f"{twice}: two runs have this name; a run is served under the name of its folder")
        self.pairs: dict[LanguagePair, ServedModel] = {}
        for model in self.models.values():
            if model.run.pair is not None:
                self.pairs.setdefault(model.run.pair, model)
        self.sources = list(dict.fromkeys(pair.source for pair in self.pairs))
        self.languages = list(dict.fromkeys(code for pair in self.pairs for code in pair))

    def targets(self, source: str) -> list[str]:
        """Return the languages that a language is translated into, with itself."""
        found = (pair.target for pair in self.pairs if pair.source == source)
        return sorted({source, *found}, key=self.languages.index)

    def find_language(self, code: str) -> str | None:
        """Return the served language that a client means: en-US and EN are en, zh is zh-Hans if only that is served."""
        served = {one.lower(): one for one in self.languages}
        parts = code.lower().replace("_", "-").split("-")
        for count in range(len(parts), 0, -1):
            if (found := served.get("-".join(parts[:count]))) is not None:
                return found
        variants = [one for one in served.values() if [one.partition("-")[0].lower()] == parts]
        return variants[0] if len(variants) == 1 else None

    def for_task(self, task: str, name: str | None = None) -> ServedModel:
        """Return the model of a task with a name, or the first."""
        able = {key: model for key, model in self.models.items() if model.run.task == task and not model.run.hears}
        if not able:
            raise UserError(f"model: this server has no model of the task {task}")
        if name is not None and name not in able:
            raise UserError(f"model: no model of the task {task} has this name; allowed: {', '.join(able)}")
        return able[name] if name is not None else next(iter(able.values()))

    def that_hears(self, name: str | None = None) -> ServedModel:
        """Return the model with a name that reads sounds, or the first."""
        able = {key: model for key, model in self.models.items() if model.run.hears}
        if not able:
            raise UserError("model: this server has no model that reads sounds")
        if name is not None and name not in able:
            raise UserError(f"model: no model with this name reads sounds; allowed: {', '.join(able)}")
        return able[name] if name is not None else next(iter(able.values()))

    def get(self, name: str | None) -> ServedModel:
        """Return the model with a name; without a name, the first."""
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            raise UserError(f"model: no model has this name; allowed: {', '.join(self.models)}")
        return self.models[name]


def load_runs(
    folders: Sequence[Path],
    languages: Sequence[str] = (),
    engine: EngineChoice = TORCH,
    glossaries: Sequence[str] = (),
    device: str | None = None,
) -> list[ServedRun]:
    """Load trained runs; `languages` are RUN=en-fr, `glossaries` RUN=terms.tsv, or terms.tsv for a single run.

    The `device` is that of each run unless it is given.
    """
    given = dict(_parse_languages(one) for one in languages)
    files = dict(_parse_glossary(one, folders) for one in glossaries)
    for flag, names in (("--languages", given), ("--glossary", files)):
        if unknown := [name for name in names if name not in {str(folder) for folder in folders}]:
            raise UserError(f"{flag}: {unknown[0]!r} is not one of the given runs")
    found = [_load(folder, given, engine, device) for folder in folders]
    return [
        run if (path := files.get(str(folder))) is None else run._replace(predictor=run.predictor.with_glossary(path))
        for run, folder in zip(found, folders, strict=True)
    ]


def _parse_glossary(one: str, folders: Sequence[Path]) -> tuple[str, Path]:
    run, _, path = one.rpartition("=")
    if not run and len(folders) > 1:
        raise UserError(f"--glossary: {one!r} given for several runs; allowed: RUN=FILE")
    return run or str(folders[0]), Path(path)


def _parse_languages(one: str) -> tuple[str, LanguagePair]:
    run, _, pair = one.rpartition("=")
    codes = pair.split(":" if ":" in pair else "-")
    if not run or len(codes) != 2 or not all(map(CODE.fullmatch, codes)):
        raise UserError(f"--languages: {one!r} given; allowed: RUN=en-fr, or RUN=zh-Hans:en")
    return run, LanguagePair(*codes)


def _load(folder: Path, given: Mapping[str, LanguagePair], engine: EngineChoice, device: str | None) -> ServedRun:
    predictor: Predictor = load_run(folder, engine=engine, device=device)
    config = config_file.load_config(folder / "config.yaml")
    route = TASKS[config.task].route
    _check_input(folder, predictor.traits, route)
    find_languages = route.languages
    pair = given.get(str(folder))
    if find_languages is None and pair is not None:
        raise UserError(f"--languages: {folder} is a run of the task {config.task}, which does not translate")
    hears = predictor.traits.reads == "sound"
    if hears and pair is not None:
        raise UserError(f"--languages: {folder} reads sounds, which are not translated")
    if find_languages is not None and pair is None and not hears and (codes := find_languages(config)) is not None:
        pair = LanguagePair(*codes)
    examples = tuple(read_examples(folder)[:MAX_EXAMPLES])
    return ServedRun(folder.resolve().name, config.task, predictor, pair, examples, hears)


def _check_input(folder: Path, traits: Traits, route: Route) -> None:
    if traits.reads not in ("text", "picture", "sound"):
        raise UserError(f"{folder}: it reads {traits.reads}; a server reads pictures, sounds and texts")
    if traits.reads == "sound":
        if traits.sound is None:
            raise UserError(f"{folder}: it reads sounds, but its task does not state how")
    elif traits.reads != route.reads:
        raise UserError(f"{folder}: it reads a {traits.reads}, but the route of its task reads a {route.reads}")
    if traits.reads == "picture" and traits.picture is None:
        raise UserError(f"{folder}: it reads pictures, but its task does not state their size")
