"""Translate fragments of HTML by a model of chance, and compare what browsers find before and after."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Any, NamedTuple

from saccade.bench.html.chance import TASK, ChanceTranslator
from saccade.bench.html.chromium import Compare, chromium, find_chromium
from saccade.bench.html.fragments import fragments
from saccade.bench.html.sanitizers import sanitizers
from saccade.bench.html.structure import UnreadableHtml, compare
from saccade.errors import UserError
from saccade.serving.app import build
from saccade.serving.html.markup import translate_html
from saccade.serving.http.responses import Refusal
from saccade.serving.models import LanguagePair, ServedRun
from saccade.serving.settings import Settings

TOGETHER = 100  # fragments in one request
UNREADABLE = "html5lib fails on it"


class HtmlCase(NamedTuple):
    """HTML, how it came, its translation, and what is wrong with that."""

    way: str
    source: str
    output: str
    problem: str


class HtmlReport(NamedTuple):
    """Counts of fragments by the ways they came, of places of their tags, of those not compared; and those that differ.

    What html5lib cannot read, a Chromium compares (`browsed`); where there is none, nobody does (`unreadable`).
    """

    seed: int
    ways: Counter[str]
    places: dict[str, int]
    refused: int
    browsed: int
    unreadable: int
    bad: list[HtmlCase]

    def as_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "ways": dict(self.ways), "bad": [one._asdict() for one in self.bad]}

    def __str__(self) -> str:
        ways, places = (
            ", ".join(f"{count:,} {name}" for name, count in one.items()) for one in (self.ways, self.places)
        )
        lines = [f"{self.ways.total():,} fragments of seed {self.seed} ({ways}); tags {places}."]
        browsed = f"{self.browsed:,} that html5lib can't read were compared in a Chromium"
        lines += [f"{self.refused:,} were refused; {browsed}; {self.unreadable:,} were not compared."]
        lines += [f"{len(self.bad):,} have other elements, attributes or comments after translation."]
        lines += [f"{one.way}: {one.source!r}\n  {one.output!r}\n  {one.problem}" for one in self.bad]
        return "\n".join(lines)


def check_html(
    count: int, *, seed: int = 1, in_browser: bool = False, say: Callable[[int], None] = lambda done: None
) -> HtmlReport:
    """Translate `count` fragments, and compare them; the same seed gives the same ones.

    They are compared by html5lib, and what it can't read in a Chromium, if there is one; or all of them in that.
    """
    if not find_spec("html5lib"):
        raise UserError("bench html needs html5lib: pip install 'saccade[dev]'")
    with ExitStack() as stack:
        has_browser = in_browser or find_chromium() is not None
        browser = stack.enter_context(chromium()) if has_browser else None
        judges = [judge for judge in (None if in_browser else _compare, browser) if judge is not None]
        return _check(count, seed, judges, say)


def _check(count: int, seed: int, judges: Sequence[Compare], say: Callable[[int], None]) -> HtmlReport:
    run = ServedRun("chance", TASK, ChanceTranslator(), LanguagePair("en", "fr"))
    service = build([run], Settings(quiet=True, batch_wait=0)).service
    (model,) = service.models.models.values()
    report = HtmlReport(seed, Counter(), {}, 0, 0, 0, [])
    ways = itertools.cycle(sanitizers().items())
    sources = ((way, clean(html)) for html, (way, clean) in zip(fragments(count, seed), ways, strict=False))
    model.batcher.start()
    with ThreadPoolExecutor(1) as thread:  # Playwright has the event loop of this one
        while batch := list(itertools.islice(sources, TOGETHER)):
            work = _translate(service, model, [html for _, html in batch])
            report = _add(report, batch, thread.submit(asyncio.run, work).result(), judges)
            say(report.ways.total())
    model.batcher.close()
    (family,) = service.metrics.html.collect()
    places = {one.labels["way"]: int(one.value) for one in family.samples if one.name.endswith("_total")}
    return report._replace(places=places)


async def _translate(service: Any, model: Any, sources: Sequence[str]) -> list[str | None]:
    """Translate fragments together; where one is refused, one by one."""
    try:
        return [best for best, *_ in await translate_html(service, model, sources, 1)]
    except Refusal:
        if len(sources) == 1:
            return [None]
        return [one for source in sources for one in await _translate(service, model, [source])]


def _add(
    report: HtmlReport, batch: Sequence[tuple[str, str]], outputs: Sequence[str | None], judges: Sequence[Compare]
) -> HtmlReport:
    rows = [(way, source, output) for (way, source), output in zip(batch, outputs, strict=True) if output is not None]
    first, *others = judges
    problems = first([(source, output) for _, source, output in rows])
    unread = [number for number, problem in enumerate(problems) if problem == UNREADABLE]
    for judge in others if unread else ():
        for number, problem in zip(unread, judge([rows[number][1:] for number in unread]), strict=True):
            problems[number] = problem
    found = [HtmlCase(*row, problem) for row, problem in zip(rows, problems, strict=True) if problem]
    return report._replace(
        ways=report.ways + Counter(way for way, _ in batch),
        refused=report.refused + len(batch) - len(rows),
        browsed=report.browsed + (len(unread) if others else 0),
        unreadable=report.unreadable + sum(one.problem == UNREADABLE for one in found),
        bad=[*report.bad, *(one for one in found if one.problem != UNREADABLE)],
    )


def _compare(pairs: Sequence[tuple[str, str]]) -> list[str | None]:
    return [_compare_one(source, output) for source, output in pairs]


def _compare_one(source: str, output: str) -> str | None:
    try:
        return compare(source, output)
    except UnreadableHtml:
        return UNREADABLE
