"""`saccade look --trust`: how far a run's attention may be trusted, on some texts or a test set."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import typer
from rich.console import Console

from saccade.cli import terminal
from saccade.data.batches import pad_sources
from saccade.data.labels.labelled import Text
from saccade.data.text.corpus import clean, read_lines
from saccade.data.text.tokenizer import END, SPECIAL, Tokenizer
from saccade.decoding import Hypothesis, Stepper, search
from saccade.errors import UserError
from saccade.inspection.insight import Head, TextSide
from saccade.inspection.trust import panel as trust_panel
from saccade.inspection.trust.evidence import CHUNK, MEAN, NO_WORD, Evidence, TrustCase, examine
from saccade.inspection.trust.subjects import ClassifierSubject, Subject, WriterSubject
from saccade.inspection.trust.verdict import Panel
from saccade.runs.load import load_run
from saccade.tasks.classify.predictor import Classifier
from saccade.tasks.translate.predictor import Translator

Given = str | Text


class TrustRequest(NamedTuple):
    """What the command was told: texts, or files with a text (and an output, or a label) a line."""

    texts: Sequence[str]
    source: Path | None = None
    target: str | None = None  # of texts the output itself, of a file the name of another
    layer: int | None = None
    head: int | None = None
    erase: str = "delete"


def trust(
    predictor: Any,
    texts: Iterable[Given],
    *,
    targets: Iterable[str] | None = None,
    head: Head | None = None,
    erase: str = "delete",
    seed: int = 0,
    watch: Callable[[Iterator[Evidence]], Iterable[Evidence]] = lambda found: found,
) -> Panel:
    """The panel of a loaded run: of its own answers, or of `targets` (outputs, or labels).

    `head` is the one that `saccade look` shows (the one that aligns best, where it is known) unless another is given;
    `erase` is delete or unknown; `watch` sees the texts go by.
    """
    subject, cases = _subject(predictor), _cases(predictor, texts, targets)
    shown = head or getattr(predictor, "aligning", None) or MEAN
    return Panel.of(watch(examine(subject, cases, shown, erase=erase, seed=seed)))


def run(folder: Path, asked: TrustRequest, *, picture: Path | None, as_json: bool) -> None:
    """The command: the panel in the terminal or as JSON, and as a picture or page."""
    if picture is not None:
        trust_panel.check_ending(picture)
    if (asked.source is None) != bool(asked.texts):
        raise UserError("--trust: give either texts, or a file with one a line as --input")
    predictor, console = load_run(folder), Console()
    with terminal.quiet():
        panel = _panel(predictor, asked, hidden=as_json)
        if as_json:
            typer.echo(json.dumps(panel.plain(), ensure_ascii=False))
        else:
            console.print(trust_panel.in_terminal(panel, console=console))
        if picture is not None:
            what = f"{panel.num_texts:,} texts" if panel.alone is None else " ".join(panel.alone.words)
            trust_panel.to_file(panel, picture, title=f"{folder.name}: {what}")


def _panel(predictor: Any, asked: TrustRequest, *, hidden: bool) -> Panel:
    layer = -1 if asked.layer is None else asked.layer
    head = None if asked.layer is None and asked.head is None else Head(layer, asked.head)
    texts, targets, total = _read(predictor, asked)
    watch = partial(terminal.counted, total=total, hidden=hidden or asked.source is None)
    return trust(predictor, texts, targets=targets, head=head, erase=asked.erase, watch=watch)


def _read(predictor: Any, asked: TrustRequest) -> tuple[Iterable[Given], Iterable[str] | None, int | None]:
    """The texts, their targets if any, and how many there are where that is known."""
    if asked.source is None:
        return asked.texts, None if asked.target is None else [asked.target] * len(asked.texts), len(asked.texts)
    _subject(predictor)  # what can't be tested says so before anything is read
    targets = None if asked.target is None else read_lines(Path(asked.target))
    return predictor.read(asked.source), targets, terminal.num_lines(asked.source)


def _subject(predictor: Any) -> Subject:
    if isinstance(predictor, Classifier):
        return ClassifierSubject(predictor.network)
    if isinstance(predictor, Translator):
        return WriterSubject(predictor.model)
    raise UserError("trust: this model doesn't read words by attention; allowed: text to text, classifiers")


def _cases(
    predictor: Translator | Classifier, texts: Iterable[Given], targets: Iterable[str] | None
) -> Iterator[TrustCase]:
    """Texts as cases, some at a time; those without a word are passed over."""
    work = _judged if isinstance(predictor, Classifier) else _written
    pairs = _pairs(texts, targets)
    while part := list(itertools.islice(pairs, CHUNK)):
        found: Iterator[TrustCase] = cast(Any, work)(predictor, [pair for pair in part if pair[0]])
        yield from (case for case in found if case.words)


def _pairs(texts: Iterable[Given], targets: Iterable[str] | None) -> Iterator[tuple[str, str | None]]:
    """Each text, with its target where there are any."""
    plain = (clean(text if isinstance(text, str) else text.text) for text in texts)
    if targets is None:
        yield from ((text, None) for text in plain)
        return
    for number, (text, target) in enumerate(itertools.zip_longest(plain, targets), 1):
        if text is None or target is None:
            short = "targets" if target is None else "texts"
            raise UserError(f"targets: there must be one for each text, but the {short} end after {number - 1:,}")
        yield text, clean(target)


def _written(translator: Translator, pairs: Sequence[tuple[str, str | None]]) -> Iterator[TrustCase]:
    """The answers are the outputs, decoded as the run does, or given."""
    source = cast(Tokenizer, translator.source)
    sources = [source.encode(text)[: translator.max_source_length] for text, _ in pairs]
    answers = [[*translator.target.encode(target), END] for _, target in pairs if target is not None]
    for (text, _), ids, answer in zip(pairs, sources, answers or _decoded(translator, sources), strict=True):
        yield _case(TextSide.of(text, source.pieces([*ids, END]), source.begins_word), [*ids, END], answer)


def _decoded(translator: Translator, sources: Sequence[list[int]]) -> list[list[int]]:
    if not sources:
        return []
    device = next(translator.model.parameters()).device
    source_BS, length_B = (tensor.to(device) for tensor in pad_sources(sources))
    found = search(cast(Stepper, translator.model), source_BS, length_B, translator.options)
    return [_answer(best[0]) for best in found]


def _answer(found: Hypothesis) -> list[int]:
    return [*found.ids, END] if found.ended else found.ids


def _judged(classifier: Classifier, pairs: Sequence[tuple[str, str | None]]) -> Iterator[TrustCase]:
    """The answers are the labels, the likeliest or given."""
    found = classifier.predict([text for text, _ in pairs])
    for (text, target), one in zip(pairs, found, strict=True):
        if target is not None and target not in classifier.labels:
            raise UserError(f"targets: the label {target!r} given; allowed: {', '.join(classifier.labels)}")
        ids = classifier.encode(text)[: classifier.max_length]
        side = TextSide.of(text, classifier.tokenizer.pieces(ids), classifier.tokenizer.begins_word)
        yield _case(side, ids, [classifier.labels.index(target or one.label)])


def _case(side: TextSide, ids: list[int], answer: list[int]) -> TrustCase:
    """</s> at the end is no word."""
    words = side.words[:-1] if side.pieces[-1:] == [SPECIAL[END]] else side.words
    numbers = [number if number < len(words) else NO_WORD for number in side.word_of_piece]
    return TrustCase(words, ids, numbers, answer)
