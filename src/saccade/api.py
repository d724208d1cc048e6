"""The Python interface to training, evaluating and looking; `load` is in `saccade.runs.load`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

from rich.console import Console

from saccade.cli.looking.show import LookOutput
from saccade.config.base import RunSection, Section
from saccade.datasets.bring import point_to_data
from saccade.errors import UserError
from saccade.huggingface.model import HuggingFaceModel
from saccade.inspection.insight import Head, Insight
from saccade.inspection.trust import panel as trust_panel
from saccade.inspection.trust.verdict import TrustFigures
from saccade.inspection.views.view import ViewChoice
from saccade.runs import adapt
from saccade.runs import config as config_file
from saccade.runs import train as runs
from saccade.runs.check import refuse_changed
from saccade.runs.events import Callback
from saccade.runs.load import AnyPath, load
from saccade.runs.recipes import find_config
from saccade.tasks.base import Evaluation, Predictor
from saccade.tasks.trust import trust as examine_trust


@final
@dataclass(frozen=True)
class TrainedRun(os.PathLike[str]):
    """A run after training. It stands for its folder: `load(run)`, `evaluate(run)`, `Path(run)`."""

    folder: Path
    step: int
    best_score: float | None  # of the validation that the model is from; None before the first one
    best_step: int

    def __fspath__(self) -> str:
        return str(self.folder)


def train(
    config: AnyPath | Mapping[str, Any] | RunSection,
    overrides: Mapping[str, Any] | None = None,
    *,
    folder: AnyPath | None = None,
    callbacks: Sequence[Callback] = (),
    device: str | None = None,
    threads: int | None = None,
    quiet: bool = False,
) -> TrainedRun:
    """Train a model, or go on with the run in the folder, as `saccade train` does.

    `config` is the path of a YAML file, the name of a recipe, a mapping of sections, or a config object; `overrides`
    changes fields, {"training.max_steps": 100}, and {"from": run} begins with another run. Without a folder, a file or
    recipe trains in runs/<its name>. Each of the `callbacks` is called with a `TrainingEvent` after every step and
    validation. `quiet` shows no progress.
    """
    path = None if isinstance(config, RunSection | Mapping) else find_config(Path(config))
    place = Path("runs") / path.stem if folder is None and path is not None else Path(folder or "")
    changes = {**(overrides or {}), **({} if device is None else {"device": device})}
    checked = _read_config(config if path is None else path, changes, partial(adapt.fill_in, run=place))
    if folder is None and path is None:
        raise UserError("folder: none given; a config that is not a file needs one")
    point_to_data(checked)
    progress = runs.train(checked, place, Console(quiet=quiet), threads=threads, callbacks=callbacks)
    return TrainedRun(place, progress.step, progress.best_score, progress.best_step)


def evaluate(run: AnyPath | Predictor, *files: AnyPath, device: str | None = None, **options: Any) -> Evaluation:
    """Score a run, or what `load` returned, on the files of a test set, as `saccade evaluate` does.

    Without files it is the test set that the run's config names (data.test). The options are those of the command:
    beam, length_penalty, no_repeat_ngram and others of decoding, tokenize, threshold.
    """
    paths = [Path(file) for file in files]
    if isinstance(run, str | os.PathLike):
        predictor = load(run, device=device)
        if not paths and predictor.traits.needs_files:
            paths = list_test_files(Path(run))
        refuse_changed(paths, Path(run))
    else:
        predictor = run
        if device is not None:
            raise UserError(f"device: {device} given with a loaded run, which has one already; give it to load")
        if not paths and predictor.traits.needs_files:
            raise UserError("files: none given; a loaded run needs the files of a test set")
    return predictor.evaluate(paths, **options)


def look(
    model: Any,
    text: str,
    *,
    tokenizer: Any = None,
    target: str | None = None,
    generate: Mapping[str, Any] | None = None,
) -> Insight:
    """Return what a model of Hugging Face saw of a text: every layer and head, and what it answered.

    The model must have been loaded with attn_implementation="eager"; `tokenizer` is by default the one that lies where
    it was loaded from. With a `target` it reads this answer in the place of its own: an output, what stands at the
    gaps, or a label. `generate` are options of its own `generate`. A run has a method `look` of its own.
    """
    if not isinstance(text, str):
        raise UserError(f"text: {type(text).__name__} given; it looks at one text")
    (found,) = HuggingFaceModel(model, tokenizer, generate).look([text], targets=None if target is None else [target])
    return found


def show(
    seen: Insight | Sequence[Insight] | TrustFigures,
    to: AnyPath | None = None,
    *,
    view: str = "weights",
    kind: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    pieces: bool = False,
    heads: bool = False,
    title: str | None = None,
) -> None:
    """Draw insights, of runs too, as `saccade look` does: in the terminal, or to a file (.html, .png, .svg, .pdf).

    `heads` shows what each head does. A `Panel` of `trust` is drawn, too; it has no views. `title` is that of a page,
    or of a panel's file.
    """
    choice, path = ViewChoice(view, kind, layer, head), None if to is None else Path(to)
    if title is not None and (path is None or not (isinstance(seen, TrustFigures) or path.suffix == ".html")):
        raise UserError("title: given without a page or a panel's file; other pictures are called after the answer")
    if isinstance(seen, TrustFigures):
        if choice != ViewChoice() or pieces or heads:
            raise UserError("view: given with a panel, which has none")
        if path is None:
            Console().print(trust_panel.in_terminal(seen, console=Console()))
        else:
            trust_panel.to_file(seen, path, title=title or "saccade")
        return
    choice.check()
    several = [seen] if isinstance(seen, Insight) else list(seen)
    console = Console(quiet=path is not None)
    output = LookOutput(choice, pieces, path, as_json=False, is_one=len(several) == 1, console=console)
    if heads:
        if choice != ViewChoice(kind=kind) or (pieces and path is None) or output.is_page:
            raise UserError("heads: given with a view, a layer, a head or a page; it is about every head, by pieces")
        output.heads(iter(several))
    elif output.is_page:
        output.page(iter(several), title=title or "saccade")
    else:
        output.each(iter(several))


def trust(
    model: Any,
    texts: Iterable[str],
    *,
    tokenizer: Any = None,
    targets: Iterable[str] | None = None,
    layer: int | None = None,
    head: int | None = None,
    erase: str = "delete",
    generate: Mapping[str, Any] | None = None,
) -> TrustFigures:
    """Test how far attention explains a model's answers, as `saccade look --trust` does, of a run or of Hugging Face.

    `tokenizer` and `generate` are those of `look`, for a model of Hugging Face.
    """
    if isinstance(texts, str):
        raise UserError("texts: one text given; it takes a list of texts")
    is_run = hasattr(model, "trust_test")
    if is_run and (tokenizer is not None or generate is not None):
        raise UserError("tokenizer, generate: given with a run, which has its own")
    predictor: Predictor = model if is_run else HuggingFaceModel(model, tokenizer, generate)
    chosen = None if layer is None and head is None else Head(-1 if layer is None else layer, head)
    return examine_trust(predictor, texts, targets=targets, head=chosen, erase=erase)


def list_test_files(folder: Path) -> list[Path]:
    """Return the files of the test set that a run's config names."""
    test = getattr(config_file.load_config(folder / "config.yaml").data, "test", None)
    given: Iterable[Any] = test.model_dump().values() if isinstance(test, Section) else [test]
    found = [Path(name) for name in given if isinstance(name, str)]
    if not found:
        raise UserError("files: none given, and the run's config names no test set (data.test)")
    return found


def _read_config(
    config: AnyPath | Mapping[str, Any] | RunSection, overrides: dict[str, Any], fill_in: config_file.FillIn
) -> Any:
    """Return the checked config, with what it leaves to the run it begins with."""
    if isinstance(config, RunSection | Mapping):
        content = config.model_dump() if isinstance(config, RunSection) else dict(config)
        return config_file.check_config(fill_in(config_file.override_fields(content, overrides)), "config")
    return config_file.load_config(Path(config), overrides, fill_in)
