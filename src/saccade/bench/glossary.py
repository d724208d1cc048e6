"""Measures glossaries: terms drawn from the references of a test set, without them and with each way to get them."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

from rich.table import Table

from saccade.bench.align import read_training_text
from saccade.data.held_out import hash_key
from saccade.data.text.corpus import Pair
from saccade.data.text.word_pairs import WORD, learn_word_pairs
from saccade.errors import UserError
from saccade.runs import config as config_file
from saccade.runs.load import load_run
from saccade.tasks import TASKS
from saccade.tasks.translate.predictor import Translator
from saccade.tasks.translate.result import TranslationResult
from saccade.tasks.translate.scoring.metrics import measure
from saccade.tasks.translate.wording.glossary import Glossary
from saccade.tasks.translate.wording.insist import tell_terms

MOST_TERMS = 2  # of a sentence
SHORTEST = 4  # letters of a term, so that most are names of things
Terms = dict[str, str]


class Case(NamedTuple):
    """A test pair and the terms that its reference has."""

    pair: Pair
    terms: Terms


@final
@dataclass(frozen=True)
class Row:
    """A way to get terms: the share that is written, also in another form, and the scores."""

    way: str
    as_asked: float
    with_forms: float
    bleu: float
    chrf: float
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def draw_cases(folder: Path, most: int) -> list[Case]:
    """Draw terms from the test set of a run: words that the training text links, in the reference's form."""
    pairs = learn_word_pairs(read_training_text(folder))
    config = config_file.load_config(folder / "config.yaml")
    task = TASKS[config.task]
    assert task.scored_set is not None
    cases = list[Case]()
    for pair in task.scored_set(config, load_run(folder)).pairs:
        words = [[found[0] for found in WORD.finditer(side)] for side in pair]
        counts = [Counter(map(str.lower, side)) for side in words]
        links = [(words[0][link.source], words[1][link.target]) for link in pairs.link(*words)]
        able = [
            (source, target)
            for source, target in links
            if min(len(source), len(target)) >= SHORTEST and counts[0][source.lower()] == counts[1][target.lower()] == 1
        ]
        drawn = random.Random(hash_key(pair.source))
        if able:
            cases.append(Case(pair, dict(drawn.sample(able, min(len(able), MOST_TERMS)))))
    if not cases:
        raise UserError(f"{folder}: no word of its test set is linked in its training text")
    return cases[:most]


def run(folder: Path, most: int, track: Callable[[Sequence[Any], str], Any]) -> list[Row]:
    """Measure every way that a run can."""
    translator: Translator = load_run(folder)
    cases = draw_cases(folder, most)
    ways: dict[str, dict[str, Any]] = {"without": {}, "constrain": {"terms": "constrain"}}
    if translator.wording.annotates:
        ways |= {"annotate": {"terms": "annotate"}, "annotate, then constrain": {"terms": None}}
    return [_measure(translator, cases, way, options, track) for way, options in ways.items()]


def _measure(
    translator: Translator,
    cases: Sequence[Case],
    way: str,
    options: dict[str, Any],
    track: Callable[[Sequence[Any], str], Any],
) -> Row:
    started = time.perf_counter()
    found = [_translate(translator, case, options) for case in track(cases, way)]
    seconds = time.perf_counter() - started
    ways = Counter[str]()
    for case, one in zip(cases, found, strict=True):
        notes = Glossary.of(case.terms).find(case.pair.source)
        ways.update(term.way for term in tell_terms(notes, one.text))
    references = [case.pair.target for case in cases]
    scores = measure(["bleu", "chrf"], [one.text for one in found], references, tokenize=translator.judgement.tokenize)
    return Row(
        way,
        ways["as asked"] / ways.total(),
        (ways["as asked"] + ways["in another form"]) / ways.total(),
        scores["bleu"],
        scores["chrf"],
        seconds,
    )


def _translate(translator: Translator, case: Case, options: dict[str, Any]) -> TranslationResult:
    words = {"glossary": case.terms, **options} if options else {}  # one glossary for each sentence
    (found,) = translator.predict([case.pair.source], **words)
    return found


def table(rows: Sequence[Row]) -> Table:
    """Build a table with a line for each way."""
    found = Table(header_style="bold", box=None, pad_edge=False)
    found.add_column("terms", no_wrap=True)
    for heading in ("as asked", "or another form", "BLEU", "chrF", "seconds"):
        found.add_column(heading, justify="right")
    for row in rows:
        shares = (f"{100 * share:.1f}%" for share in (row.as_asked, row.with_forms))
        found.add_row(row.way, *shares, f"{row.bleu:.2f}", f"{row.chrf:.2f}", f"{row.seconds:,.0f}")
    return found
