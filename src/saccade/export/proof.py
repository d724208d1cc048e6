"""Proves an export: the same log-probabilities, the same outputs, the same score in both engines."""

from __future__ import annotations

import itertools
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from typing import Any, NamedTuple, Protocol, cast, final

import torch
from torch import Tensor

import saccade
from saccade.data.batches import decoder_input, pad_sources
from saccade.data.text.corpus import clean
from saccade.data.text.tokenizer import END, PAD, START
from saccade.decoding import BeamOptions, Stepper, search
from saccade.inspection.insight import Head
from saccade.inspection.record import cross_weights
from saccade.models.transformer import Transformer
from saccade.tasks.base import Portable, ScoredSet
from saccade.tasks.texts import batch_by_length

BEAMS = (1, 4)
TOKENS = 2048  # of a batch
NUM_ATTENDED = 50  # sentences whose weights are compared, one by one
AT_ONCE = 50  # sentences whose outputs are compared before the next ones are searched
MINUTES = 10.0  # in which the outputs of a beam are compared
Ids = list[list[int]]
Sources = list[Any]  # ids, or what else a network reads
Say = Callable[[str], None]
Join = Callable[[Sequence[Any]], tuple[Tensor, Tensor]]


class Engine(Protocol):
    """Another program with the exported model. Ids are those of the run, without <s> and </s>."""

    name: str
    longest: int | None  # ids that it reads or writes, </s> included
    renormalizes: bool  # ids that are never written give their probability to the others
    ends_early: bool  # a beam may end too early, unless it is thorough

    def log_probabilities(self, sources: Sources, targets: Ids) -> list[list[float]]:
        """Return log p of each id of the targets, </s> included."""

    def search(self, sources: Sources, beam: int, limit: int, *, thorough: bool) -> Ids:
        """Return the outputs of largest log p, of at most `limit` ids with </s>; `thorough` is never too early done."""

    def encode(self, texts: list[str]) -> Ids | None:
        """Return the ids of sources, if the engine has a tokenizer."""

    def decode(self, outputs: Ids) -> list[str] | None:
        """Return outputs as texts, if the engine has a tokenizer."""

    def attend(self, sources: Sources, limit: int) -> list[tuple[list[int], Tensor]] | None:
        """Return greedy outputs with the weights [T, S] of the aligning head, if the engine tells them."""


class Bounds(NamedTuple):
    """Bounds that must hold; None: it is only measured."""

    log_probability: float | None = 1e-4
    same_outputs: bool = True
    score: float | None = None
    minutes: float = MINUTES  # of each beam, after which no more outputs are compared


@final
@dataclass
class Proof:
    """The findings of a comparison; `missed` has a sentence for each bound that doesn't hold."""

    about: dict[str, Any]
    found: dict[str, Any] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        return {"holds": not self.missed, **self.about, **self.found, "missed": self.missed}

    def lines(self) -> list[str]:
        if "answers" in self.found:
            return self._answer_lines()
        worst, about = self.found["log_probability"]["largest_difference"], self.about
        said = [f"{about['pairs']:,} pairs of {about['set']}: log-probabilities differ by at most {worst:.1e}"]
        for beam, outputs in self.found["outputs"].items():
            scores = [
                f"{metrics['bleu']:.2f} in {name}" for name, metrics in self.found["scores"][beam].items() if metrics
            ]
            others = [f"{count:,} {what}" for what, count in outputs.items() if count and what != "same"]
            same = ", ".join([f"{outputs['same']:,} outputs are the same", *others])
            said.append(f"{beam}: {same}; BLEU {', '.join(scores)}" if scores else f"{beam}: {same}")
        if program := self.found.get("program"):
            same = f"{program['same']:,} of {program['of']:,} texts are the same"
            ruled = f"{program['same_by_its_rules']:,} by its rules of searching"
            said.append(f"{program['name']} {program['version']}: {same}, {ruled}")
        return said

    def _answer_lines(self) -> list[str]:
        """Return what people read of a model that answers in one pass."""
        worst, about = max(one["largest_difference"] for one in self.found["numbers"].values()), self.about
        said = f"{about['examples']:,} examples of {about['set']}: {', '.join(self.found['numbers'])}"
        scores = [f"{next(iter(scores.values())):.2f} in {name}" for name, scores in self.found["scores"].items()]
        metric = describe_first(self.found["scores"]["saccade"]).rpartition(" ")[0]
        counts = [f"{count:,} {what}" for what, count in self.found["answers"].items() if count and what != "same"]
        same = ", ".join([f"{self.found['answers']['same']:,} answers are the same", *counts])
        return [f"{said} differ by at most {worst:.1e}", f"{same}; {metric} {', '.join(scores)}"]


class Sample(NamedTuple):
    """Held-out pairs, encoded, and what was left out of the set."""

    texts: list[Any]  # or pictures
    sources: Sources
    targets: Ids
    references: list[Any]
    left_out: int


def encode_sample(portable: Portable, scored: ScoredSet, longest: int | None, most: int) -> Sample:
    """Encode the first pairs of a set; those that the other engine can't read whole are left out.

    Of several references the first one is encoded.
    """
    limit = portable.longest if longest is None else min(portable.longest, longest - 1)
    sample, pairs = Sample([], [], [], [], len(scored.pairs[:most])), scored.pairs[:most]
    for given, reference in pairs:
        text = clean(given) if isinstance(given, str) else given
        source = portable.source.encode(text)
        target = portable.target.encode(clean(reference if isinstance(reference, str) else reference[0]))
        if len(source) > 0 and max(len(source), len(target)) <= limit:
            for column, one in zip(sample, (text, source, target, reference), strict=False):
                cast(list[Any], column).append(one)
    return sample._replace(left_out=len(pairs) - len(sample.sources))


def prove(portable: Portable, sample: Sample, engine: Engine, bounds: Bounds, proof: Proof, say: Say) -> Ids:
    """Compare the exported model in its engine with ours, on a CPU in float32; return our outputs of the wider beam."""
    comparison = _Comparison(portable, sample, engine, bounds, proof, say)
    say("comparing log-probabilities")
    comparison.compare_log_probabilities()
    say("comparing the weights of the aligning head")
    comparison.compare_attention()
    proof.found |= {"outputs": {}, "scores": {}}
    for beam in BEAMS:
        ours = comparison.compare_outputs(beam)
        if beam == 1:
            comparison.compare_tokenizers(ours)
    return ours


@final
@dataclass(frozen=True)
class _Comparison:
    """A model here and in another engine, what they are compared on, and what was found so far."""

    portable: Portable
    sample: Sample
    engine: Engine
    bounds: Bounds
    proof: Proof
    say: Say

    @cached_property
    def limit(self) -> int:
        """The most ids of an output, the same for all, with </s>."""
        lengths = [int(self.portable.join([source])[1]) for source in self.sample.sources]
        limit = max(map(self.portable.options.limit, lengths))
        return limit if self.engine.longest is None else min(limit, self.engine.longest)

    def compare_log_probabilities(self) -> None:
        ours = score_ours(self.portable, self.sample.sources, self.sample.targets)
        theirs = self.engine.log_probabilities(self.sample.sources, self.sample.targets)
        worst = max_difference(itertools.chain(*ours), itertools.chain(*theirs))
        bound = {} if self.bounds.log_probability is None else {"bound": self.bounds.log_probability}
        found = {"tokens": sum(map(len, ours)), "largest_difference": worst, **bound}
        self.proof.found["log_probability"] = found
        self._check("log-probabilities", worst)

    def compare_attention(self) -> None:
        """Compare what the aligning head weighs while the other engine writes an output."""
        told = self.engine.attend(self.sample.sources[:NUM_ATTENDED], self.limit)
        if told is None:
            return
        head, worst = find_aligning(self.portable), 0.0
        for source, (ids, weight_TS) in zip(self.sample.sources, told, strict=False):
            if ids:
                read_BT = decoder_input([ids])[:, : len(weight_TS)]  # it may be cut at its longest
                read = (*self.portable.join([source]), read_BT)
                mine_TS = head._replace(shift=0).of(cross_weights(self.portable.network, *read)[0])
                part_TS = mine_TS[: weight_TS.shape[0], : weight_TS.shape[1]]
                worst = max_difference([worst, *part_TS.flatten().tolist()], [0.0, *weight_TS.flatten().tolist()])
        found = {**head._asdict(), "sentences": len(told), "largest_difference": worst}
        self.proof.found["attention"] = found
        self._check("attention weights", worst)

    def compare_outputs(self, beam: int) -> Ids:
        """Compare outputs and their scores until the time is over; return ours."""
        ours, theirs, sources = Ids(), Ids(), self.sample.sources
        until = time.monotonic() + 60 * self.bounds.minutes
        while len(ours) < len(sources) and (not ours or time.monotonic() < until):
            both = self._search(sources[len(ours) : len(ours) + AT_ONCE], beam, len(ours))
            ours, theirs = ours + both[0], theirs + both[1]
        outputs = count_outputs(self.portable, sources[: len(ours)], (ours, theirs), self.limit)
        left = {"not compared": len(sources) - len(ours)} if len(ours) < len(sources) else {}
        self.proof.found["outputs"][f"beam {beam}"] = {**outputs._asdict(), **left}
        if self.bounds.same_outputs and outputs.different:
            said = f"{outputs.different:,} of {len(ours):,} outputs of {self.engine.name} differ (beam {beam})"
            self.proof.missed.append(said)
        self._compare_scores(ours, theirs, beam)
        return ours

    def _search(self, sources: Sources, beam: int, first: int) -> tuple[Ids, Ids]:
        """Search with both engines. What differs is searched again, not to end too early."""
        network, engine = self.portable.network, self.engine
        writer = cast(Stepper, Renormalized(network) if engine.renormalizes else network)
        where = f"comparing outputs, beam {beam}: {first:,} of {len(self.sample.sources):,}, the next ones"
        self.say(f"{where} in saccade")
        begins = self.portable.target.encode("")
        ours = search_ours(writer, sources, beam, self.limit, self.portable.join, begins)
        self.say(f"{where} in {engine.name}")
        theirs = engine.search(sources, beam, self.limit, thorough=False)
        again = [row for row in range(len(ours)) if ours[row] != theirs[row]]
        if again and beam > 1 and engine.ends_early:
            self.say(f"{where} in {engine.name}, {len(again):,} of them again and to their end")
            found = engine.search([sources[row] for row in again], beam, self.limit, thorough=True)
            for row, ids in zip(again, found, strict=True):
                theirs[row] = ids
        return ours, theirs

    def compare_tokenizers(self, outputs: Ids) -> None:
        """Compare how texts become ids, and ids texts."""
        read, written = self.engine.encode(self.sample.texts[: len(outputs)]), self.engine.decode(outputs)
        if read is None or written is None:
            return
        texts = self._decode(outputs)
        same = {
            "sources": sum(map(list.__eq__, read, self.sample.sources)),
            "outputs": sum(map(str.__eq__, written, texts)),
        }
        self.proof.found["tokenizers"] = {**same, "of": len(texts)}
        for what, count in same.items():
            if count < len(texts):
                said = f"its tokenizer treats {len(texts) - count:,} of {len(texts):,} {what} otherwise"
                self.proof.missed.append(said)

    def _compare_scores(self, ours: Ids, theirs: Ids, beam: int) -> None:
        references = self.sample.references[: len(ours)]
        mine, its = (self.portable.score(self._decode(side), references) for side in (ours, theirs))
        self.proof.found["scores"][f"beam {beam}"] = {"saccade": mine, self.engine.name: its}
        bound = self.bounds.score
        if bound is not None and abs(mine["bleu"] - its["bleu"]) > bound:
            said = f"BLEU is {its['bleu']:.2f} in {self.engine.name} and {mine['bleu']:.2f} here (beam {beam})"
            self.proof.missed.append(f"{said}, more than {bound} apart")

    def _decode(self, outputs: Ids) -> list[str]:
        return [self.portable.target.decode(ids) for ids in outputs]

    def _check(self, what: str, worst: float) -> None:
        bound = self.bounds.log_probability
        if bound is not None and not worst <= bound:  # what is not a number is not below it
            self.proof.missed.append(f"{what} differ by up to {worst:.1e}, more than {bound:.0e}")


def describe_first(scores: Mapping[str, float]) -> str:
    """Name the first score, which is the run's own."""
    name, value = next(iter(scores.items()))
    return f"{name.replace('_', ' ')} {value:.2f}"


def max_difference(ours: Iterable[float], theirs: Iterable[float]) -> float:
    """Return the largest difference; it is not a number where one isn't."""
    pairs = torch.tensor(list(zip(ours, theirs, strict=True)), dtype=torch.float64)
    return float((pairs[:, 0] - pairs[:, 1]).abs().max())


def find_aligning(portable: Portable) -> Head:
    """Return the head that aligns best; where none was chosen, the mean of the last layer's."""
    layers = portable.network.decoder.children() if isinstance(portable.network, Transformer) else [None]
    return Head(len(list(layers)) - 1) if portable.aligning is None else portable.aligning


class SameOutputs(NamedTuple):
    """Counts of outputs that are the same in both engines.

    Others are `tied` where only rounding decides, or `cut` where one of the two reached the limit: what is left then
    depends on rules of the engines, not on the model.
    """

    same: int
    tied: int
    cut: int
    different: int


def count_outputs(portable: Portable, sources: Sources, both: tuple[Ids, Ids], limit: int) -> SameOutputs:
    """Count the outputs that are the same, and those that aren't by their reason."""
    rows = [row for row, (one, other) in enumerate(zip(*both, strict=True)) if one != other]
    whole = [row for row in rows if max(len(side[row]) for side in both) < limit]
    ours, theirs = ([side[row] for row in whole] for side in both)
    tied = count_ties(portable, [sources[row] for row in whole], (ours, theirs))
    return SameOutputs(len(sources) - len(rows), tied, len(rows) - len(whole), len(whole) - tied)


def count_ties(portable: Portable, sources: Sources, both: Iterable[Ids]) -> int:
    """Count pairs of outputs that rounding decides between: our model gives both the same log p, or the first step
    where they part gives both ids the same."""
    ours, theirs = both
    tied = 0
    for one, other, steps, others in zip(
        ours, theirs, score_ours(portable, sources, ours), score_ours(portable, sources, theirs), strict=True
    ):
        first = next(
            (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
        )
        tied += min(abs(sum(steps) - sum(others)), abs(steps[first] - others[first])) <= 1e-4
    return tied


@torch.no_grad()
def score_ours(portable: Portable, sources: Sources, targets: Ids) -> list[list[float]]:
    """Return log p of each id of the targets, </s> included."""
    model = cast(Any, portable.network)
    found: list[list[float]] = [[] for _ in sources]
    lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
    for rows in batch_by_length(lengths, TOKENS):
        wanted = [targets[row] for row in rows]
        told = model(*portable.join([sources[row] for row in rows]), decoder_input(wanted))
        vectors_BTD = told[0] if isinstance(told, tuple) else told  # a captioner also returns where it looked
        for row, steps in zip(rows, pick_log_probabilities(model.logits(vectors_BTD), wanted), strict=True):
            found[row] = steps
    return found


def pick_log_probabilities(logits_BTV: Tensor, targets: Ids, number_V: Tensor | None = None) -> list[list[float]]:
    """Return log p of each id of the targets, </s> included; `number_V` has the columns of our ids, if they differ."""
    found = []
    for ids, step_TV in zip(targets, logits_BTV.log_softmax(-1), strict=True):
        id_T = torch.tensor([*ids, END])
        found.append(step_TV[torch.arange(len(id_T)), id_T if number_V is None else number_V[id_T]].tolist())
    return found


@final
class Renormalized:
    """A stepper that gives <pad> and <s>, which are never written, no probability."""

    def __init__(self, network: Any) -> None:
        self.start, self.advance, self._logits = network.start, network.advance, network.logits

    def logits(self, vectors: Tensor) -> Tensor:
        logits: Tensor = self._logits(vectors)
        return logits.index_fill(-1, torch.tensor([PAD, START]), -torch.inf)


def search_ours(
    writer: Stepper, sources: Sources, beam: int, limit: int, join: Join = pad_sources, begins: Sequence[int] = ()
) -> Ids:
    """Return the outputs of largest log p, of at most `limit` ids with </s>; each begins with these ids.

    `join` makes sources a batch.
    """
    options = BeamOptions(width=beam, length_penalty=0, max_length=limit, max_length_factor=limit, max_rounds=0)
    return search_with(options, writer, sources, join, begins)


def search_with(options: BeamOptions, writer: Stepper, sources: Sources, join: Join, begins: Sequence[int] = ()) -> Ids:
    """Return the outputs that our search finds with these options; each begins with these ids."""
    found: Ids = [[] for _ in sources]
    for rows in batch_by_length([len(source) for source in sources], TOKENS // options.width):
        best = search(writer, *join([sources[row] for row in rows]), options, [begins] * len(rows))
        for row, hypotheses in zip(rows, best, strict=True):
            found[row] = hypotheses[0].ids
    return found


def list_versions(libraries: Sequence[str]) -> dict[str, str]:
    """Return the versions of Python, saccade, torch and these libraries."""
    versions = {name: version(name) for name in ("torch", *libraries)}
    return {"python": platform.python_version(), "saccade": saccade.__version__, **versions}
