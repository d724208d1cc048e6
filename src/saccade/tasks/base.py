"""The interface of a task: its config, how a run of it is prepared, loaded and reported, and its trained model."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from pydantic import BaseModel
from rich.console import Console
from torch import Tensor, nn

from saccade.config.base import RunSection
from saccade.data.batches import pad_sources
from saccade.data.sound.mel import Mel
from saccade.data.text.corpus import Pair, decode_clean_lines, read_lines
from saccade.data.text.tokenizer import Tokenizer
from saccade.decoding import BeamOptions, Searcher
from saccade.errors import UserError
from saccade.inspection.align.aligner import WordAttention
from saccade.inspection.insight import Head, Insight, TextSide
from saccade.inspection.trust.cases import TrustTest
from saccade.tasks.tally import Tally
from saccade.training.options import Loss, Plan, Validate

T = TypeVar("T")
MOST_BEAM = 16  # hypotheses that one request to a server may ask for
NO_WORDS = "--align: this model's task has no source words; allowed: a run that reads text and writes text"
Watch = Callable[[Iterator[Any], int], Iterable[Any]]  # passes outputs on, and knows how many will come


def several(inputs: Iterable[T]) -> Iterable[T]:
    """Return the inputs; a lone string would be read letter by letter, so it is refused."""
    if isinstance(inputs, str | bytes | Path):
        raise UserError(f"predict: {str(inputs)[:40]!r} given; it takes a list of inputs, so put it into one")
    return inputs


def pass_on(found: Iterator[Any], total: int) -> Iterable[Any]:
    """Pass outputs on: the `watch` of who doesn't want to see them."""
    del total
    return found


class DataCount(NamedTuple):
    """A set of examples: how many are used, and how many are left out for which reason."""

    name: str
    num_used: int
    left_out: Mapping[str, int] = {}


Rows = Sequence[Sequence[int]]  # of the base's rows: for each row here those whose mean it is; none: it is new


class InheritedFields(NamedTuple):
    """Names of the sections and fields that a run takes from the run it begins with."""

    same: tuple[str, ...] = ("model",)  # another value is refused
    free: tuple[str, ...] = ("model.dropout",)  # fields of these that may differ
    usual: tuple[str, ...] = ()  # taken unless they are given
    anew: tuple[str, ...] = ()  # fields of all these that are not taken


def match_rows(names: Sequence[str], earlier: Sequence[str]) -> Rows:
    """Return which row of an earlier list each name has; names that it lacks have none."""
    place = {name: row for row, name in enumerate(earlier)}
    return [[place[name]] if name in place else [] for name in names]


def _no_rows(base: Path) -> Mapping[str, tuple[Rows, ...] | None]:
    del base
    return {}


class Job(NamedTuple):
    """A network, what it learns from, how, and how it is judged."""

    network: nn.Module
    plan: Plan
    loss: Loss
    validate: Validate
    data: list[str]  # hashes of what it learns from: a run goes on only with the same
    stored: Mapping[str, str] = {}  # small files that a trained run needs beside its weights: name and text
    is_steady: bool = False  # batches have few shapes and the loss asks the device nothing: it may be captured
    unit: str = "tokens"  # what the loss is a mean over
    config: RunSection | None = None  # with what it left to be found here
    counts: Sequence[DataCount] = ()  # of its sets, for the report
    portable: Portable | PortablePass | None = None  # the network for other engines, where they can run such a thing
    rows: Callable[[Path], Mapping[str, tuple[Rows, ...] | None]] = _no_rows
    # of the run it begins with: for weights of another size there, the rows that each axis takes; None: it takes none


class ReportPart(NamedTuple):
    """A trained model on a held-out set: the set's name, its scores, and parts of the report as (heading, HTML)."""

    name: str
    scores: Mapping[str, Any]
    sections: Sequence[tuple[str, str]] = ()
    tally: Tally | None = None  # of one of these scores


class Portable(NamedTuple):
    """A network that writes ids, with what other engines need to run it and to be judged."""

    network: nn.Module
    source: Any  # its `encode` turns a source into ids, or into numbers that the network reads
    target: Tokenizer
    options: BeamOptions
    longest: int  # ids of a source that are read
    score: Callable[[Sequence[str], Sequence[Any]], Mapping[str, float]]  # of outputs and references; its own first
    aligning: Head | None = None  # the head that aligns words best, where it is known
    languages: tuple[str, str] | None = None  # what is translated into what
    join: Callable[[Sequence[Any]], tuple[Tensor, Tensor]] = pad_sources  # encoded sources into a batch, with lengths


class PortablePass(Protocol):
    """A network that answers in one pass, with what other engines need to run it and to be judged.

    A batch is a named tuple of tensors, whose names end with their shapes: `ids_BS` is the input `ids` of other
    engines. What is told of a batch is tensors by the names of their outputs.
    """

    network: nn.Module

    @property
    def facts(self) -> Mapping[str, Any]:
        """Return what a program needs to know of its inputs and answers, ready for JSON."""

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        """Its tokenizers by the sides that they read or write."""

    def batches(self, examples: Sequence[Any], size: int) -> Iterator[tuple[Any, list[int]]]:
        """Yield examples in batches of some `size`, with their places."""

    def compute(self, batch: Any) -> Mapping[str, Tensor]:
        """Return what the network tells."""

    def answer(self, batch: Any, told: Mapping[str, Tensor]) -> list[Any]:
        """Return the answers that are told."""

    def weigh(self, batch: Any, told: Mapping[str, Tensor], answers: Sequence[Any]) -> list[float]:
        """Return log p of each answer, as it is told."""

    def score(self, examples: Sequence[Any], answers: Sequence[Any]) -> Mapping[str, float]:
        """Score answers; the run's own metric is first."""


class ScoredSet(NamedTuple):
    """Pairs, or labelled examples, that a run is scored on."""

    name: str
    pairs: list[Any]


class Result(Protocol):
    """The answer to one input. A result that derives from this class has nothing to show or draw, unless it says so."""

    @abstractmethod
    def line(self) -> str:
        """Return the line that people read."""

    @abstractmethod
    def plain(self) -> dict[str, Any]:
        """Return what programs read, ready for JSON."""

    def show(self, console: Console) -> None:
        """Print the evidence below the line, if there is any."""
        del console

    def draw(self, path: Path) -> None:
        """Draw the evidence to a file."""
        raise UserError(f"{path}: there is nothing to draw for this model's task")


class Evaluation(NamedTuple):
    """The scores of a test set for a program, lines for people, and a picture where there is one."""

    scores: Mapping[str, Any]
    lines: list[str]
    draw: Callable[[Path], None] | None = None


class PictureSize(NamedTuple):
    """The pictures that a model reads: their channels and size, and the side that larger ones are scaled to."""

    channels: int
    rows: int
    columns: int
    resize: int | None = None
    patch: int | None = None  # the side of a glimpse, where it sees parts
    frames: int | None = None  # where it reads clips: how many frames they have at most

    def plain(self) -> dict[str, int]:
        found = {"channels": self.channels, "rows": self.rows, "columns": self.columns}
        more = {"patch": self.patch, "frames": self.frames}
        return found | {name: value for name, value in more.items() if value is not None}


class Traits(NamedTuple):
    """Traits of a predictor: all that the command line and the server know of its task."""

    task: str
    reads: str = "text"  # or "picture", "sound", "feature maps"
    kinds: tuple[str, ...] = ()  # of attention that its models may have; the first is shown unless another is given
    predict_options: tuple[str, ...] = ()  # keywords of `predict` and `stream`
    evaluate_options: tuple[str, ...] = ()
    look_options: tuple[str, ...] = ()
    evidence: Mapping[str, Any] = {}  # the options with which a result can be drawn
    context: int = 0  # so many inputs before each one are read with it
    needs_files: bool = True  # it is evaluated on files, and has no test set of its own
    aligning: Head | None = None  # the head that aligns words best, where it is known
    beam: int | None = None  # the width of its search, where it writes
    labels: Sequence[str] | None = None  # what it chooses from
    picture: PictureSize | None = None  # what it reads, if these are pictures
    sound: Mel | None = None  # how a sound becomes what it reads, if these are sounds
    answers: str = "line"  # how the page shows it: text, elements, label, spans, path, continuation, sound, or a line
    texts: str | None = None  # where answers are texts: sentences (a server splits texts), documents, anything, or auto
    max_pieces: int | None = None  # the rest of a longer text is cut
    streams: bool = False  # `follow` tells an answer while it is written
    num_terms: int = 0  # entries of its glossary
    columns: tuple[str, ...] | None = None  # where it answers each word: the names of what it reads behind a word
    sample: str = "a"  # a text that it can read


class Predictor(Protocol):
    """A trained model, ready to use: what `saccade.load` returns.

    A task derives from this class and writes `traits` and `stream`. What it leaves out has a default, or is refused
    with a sentence. Options are keywords; those that `traits` doesn't name are refused before a call.
    """

    @property
    @abstractmethod
    def traits(self) -> Traits:
        """Return what it reads, has and takes."""

    @abstractmethod
    def stream(self, inputs: Iterable[Any], /, *args: Any, **options: Any) -> Iterator[Result]:
        """Answer inputs in order, in memory that doesn't grow with their number."""

    def stream_best(self, inputs: Iterable[Any], /, *args: Any, **options: Any) -> Iterator[Sequence[Result]]:
        """Answer each input with its `num_best` results, best first."""
        return ([one] for one in self.stream(inputs, *args, **options))

    def predict(self, inputs: Iterable[Any], /, *args: Any, **options: Any) -> Sequence[Result]:
        """Return the best result for each input; with `num_best`, the others are its `others`."""
        return list(self.stream(inputs, *args, **options))

    def predict_best(self, inputs: Iterable[Any], /, *args: Any, **options: Any) -> Sequence[Sequence[Result]]:
        """Return the `num_best` results for each input, best first."""
        return list(self.stream_best(inputs, *args, **options))

    def follow(self, given: Any, tell: Callable[[str], None], /, **options: Any) -> Result:
        """Answer one input, and tell each part of the answer's text as soon as it is written."""
        del given, tell, options
        raise UserError("stream: this model's task answers all at once")

    def read(self, source: Path | None) -> Iterator[Any]:
        """Read the inputs of a file, or of the standard input: a text a line."""
        if self.traits.reads != "text":
            raise UserError(
                f"--input: this model reads {self.traits.reads}, but its task does not say how to read that from a file"
            )
        return decode_clean_lines("standard input", sys.stdin.buffer) if source is None else read_lines(source)

    def read_targets(self, path: Path) -> Iterator[str]:
        """Read the outputs of a file, or their labels: one a line."""
        return read_lines(path)

    def read_pairs(self, source: Path, target: Path | None) -> Iterator[Pair]:
        """Read the pairs of two line-aligned files, or of one with both sides, to align their words."""
        del source, target
        raise UserError(NO_WORDS)

    def evaluate(self, paths: Sequence[Path], /, *args: Any, **options: Any) -> Evaluation:
        """Score it on the files of a test set; the option `watch: Watch` sees outputs go by."""
        del paths, args, options
        raise UserError("evaluate: this model's task has no test")

    def look(self, inputs: Iterable[Any], /, *args: Any, **options: Any) -> list[Insight]:
        """Return what the model saw of each input; without attention, its answer alone."""
        read = list(several(inputs))
        pairs = zip(read, self.predict(read, *args, **options), strict=True)
        task, draws_itself = self.traits.task, self.traits.reads != "text"
        return [Insight(task, answer, _words(given), {}, draws_itself=draws_itself) for given, answer in pairs]

    def output_side(self, result: Result) -> TextSide:
        """Return the pieces of an output text, the end included, and its words."""
        line = result.line()
        return TextSide.of(line, line.split())

    def num_pieces(self, text: str) -> int:
        """Count the pieces of a text, where reading it takes as much as their square; else 0."""
        del text
        return 0

    def num_steps(self, given: Any, /, **decoding: Any) -> int | None:
        """Count the steps that a search for the answer takes at most, over all hypotheses; None: there is none."""
        del given, decoding
        return None

    def word_attention(self) -> WordAttention:
        """Return the model's attention from target words to source words, which aligns them."""
        raise UserError(NO_WORDS)

    def trust_test(self) -> TrustTest:
        """Return what it takes to test how far the model's attention may be trusted."""
        raise UserError("trust: this model doesn't read words by attention; allowed: text to text, classifiers")

    def read_scored(self, source: Path, target: Path | None) -> ScoredSet:
        """Read what it may be scored on from files, as `evaluate` does."""
        return ScoredSet(source.name, [pair for pair in self.read_pairs(source, target) if all(pair)])

    def portable(self) -> Portable | PortablePass:
        """Return the network and what other engines need to run it."""
        raise UserError("export: no format can say a model of this task; allowed: text to text, labels, tags, captions")

    @property
    def engine(self) -> str:
        """The name of the engine that searches for outputs."""
        return "torch"

    def with_searcher(self, make: Callable[[Portable], Searcher]) -> Predictor:
        """Return the same predictor, whose outputs another engine searches for."""
        del make
        raise UserError("engine: models of this task are run by torch alone; allowed: text to text")

    @property
    def has_readers(self) -> bool:
        """Return True if it answers in one pass, with a network whose text encoders another engine may run."""
        return False

    def with_network(self, network: nn.Module, engine: str) -> Predictor:
        """Return the same predictor with another network of the same kind, parts of which this engine runs."""
        del network
        raise UserError(f"engine: {engine} given; models of this task are run by torch alone")

    def with_glossary(self, path: Path) -> Predictor:
        """Return the same predictor, whose outputs have the terms of a file as it asks."""
        raise UserError(f"{path}: models of this task take no glossary; allowed: text to text")

    @classmethod
    def ensemble(cls, runs: Sequence[tuple[str, Predictor]]) -> Predictor:
        """Make one predictor of several, given with their names; the first says how it decodes."""
        raise UserError(f"{runs[0][0]}: models of its task make no ensemble")


class RequestOptions(BaseModel):
    """A request's options beside its inputs: fields named as options of `predict`."""


class Route(NamedTuple):
    """The route at which a server offers a task: /v1/<its name>."""

    title: str = "Answer texts"  # what it does, for people
    reads: str = "text"  # or "picture"
    options: type[RequestOptions] = RequestOptions
    reads_whole: bool = True  # a long text takes too much, and is refused; False: it is cut
    streams: bool = False  # an answer may be sent while it is written
    by_word: bool = False  # texts may be given as lists of words, with the further columns of `Traits.columns`
    languages: Callable[[Any], tuple[str, str] | None] | None = None
    # of a task that may translate: from a config to what its run translates into what


class Task(NamedTuple):
    """A task: its config, and the way from there to a run, to a trained model, and to its part of the report."""

    config: type[RunSection]
    prepare: Callable[..., Job]  # (config, folder, console)
    load: Callable[..., Predictor]  # (config, folder): a trained model, ready to predict
    examine: Callable[..., ReportPart] | None = None  # (config, predictor): on the test set, or the validation set
    route: Route = Route()
    scored_set: Callable[..., ScoredSet] | None = None  # (config, predictor): what `examine` scores
    calibrate: Callable[..., Mapping[str, str]] | None = None
    # (config, predictor), at the end of a training: small files that the run gets then, name and text
    inherited: InheritedFields | None = None  # what its runs take from the one they begin with; None: they have none


def _words(given: Any) -> dict[str, TextSide]:
    return {"source": TextSide.of(given, given.split())} if isinstance(given, str) else {}
