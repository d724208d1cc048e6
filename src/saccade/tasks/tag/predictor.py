"""A tag for each token: sentences of CoNLL columns in, spans out, scored as conlleval counts."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast, final

import torch
from rich.console import Console
from torch import Tensor, nn

from saccade.data.grouping import group_by_length
from saccade.data.tags.columns import (
    WORD_AND_TAG,
    TagColumns,
    TaggedSentence,
    format_sentence,
    has_lists,
    looks_like_columns,
    parse_jsonl,
    parse_sentences,
    parse_text,
    read_paired,
)
from saccade.data.tags.lexicon import Document, Lexicon
from saccade.data.tags.spans import Span, SpanScore, convert_tags, find_spans, span_scores
from saccade.data.tags.tagged import TaggedFile, read_files, split_documents
from saccade.data.text.corpus import clean, decode_lines, read_raw_lines
from saccade.errors import UserError
from saccade.inspection.draw.heatmap import to_file
from saccade.inspection.insight import Insight, Map, TextSide
from saccade.inspection.record import recording
from saccade.models.tagger import TagNetwork
from saccade.tasks.base import Evaluation, Predictor, ScoredSet, Traits, Watch, pass_on, several
from saccade.tasks.tag.portable import PortableTagger

WINDOW = 2048  # sentences that are sorted by length together
TOKENS_PER_BATCH = 8192
Input = str | Sequence[str] | TaggedSentence


class TagResult(NamedTuple):
    """A sentence with its tags, and the log-probability of all of them together.

    With `probabilities=True` also the probability of each of the `kinds` of tags for each word, [T, V].
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    log_probability: float
    kinds: tuple[str, ...] = ()
    probability_TV: Tensor | None = None

    @property
    def spans(self) -> list[Span]:
        return find_spans(self.tags)

    def line(self) -> str:
        """Write lines of word, tab, tag; printed, a blank line follows."""
        return format_sentence(self.words, self.tags)

    def plain(self) -> dict[str, Any]:
        named = [{**span._asdict(), "text": " ".join(self.words[span.first : span.last + 1])} for span in self.spans]
        found = {"words": self.words, "tags": self.tags, "spans": named, "log_probability": self.log_probability}
        if self.probability_TV is None:
            return found
        rows = [dict(zip(self.kinds, row, strict=True)) for row in self.probability_TV.tolist()]
        return {**found, "probabilities": rows}

    def show(self, console: Console) -> None:
        """Print nothing: the tags are in the line itself."""

    def draw(self, path: Path) -> None:
        """Draw the probability of each tag for each word, as a picture."""
        if self.probability_TV is None:
            raise UserError("probabilities: not asked for; a picture shows them")
        to_file(self.probability_TV, Path(path), queries=self.words, keys=self.kinds, label="probability")


@final
@dataclass(frozen=True)
class Tagger(Predictor):
    """A trained tagger, as `saccade.load` returns it. Spans are shown in BIO, however the model spells them."""

    network: TagNetwork
    lexicon: Lexicon
    columns: TagColumns = WORD_AND_TAG
    is_paired: bool = False  # it learned from files with words and tags apart
    engine: str = "torch"  # that runs its text encoder

    @property
    def traits(self) -> Traits:
        return Traits(
            "tag",
            kinds=("encoder",),
            predict_options=("probabilities", "window"),
            look_options=("kinds", "norms", "probabilities"),
            evidence={"probabilities": True},
            answers="spans",
            columns=self._further,
            sample="\t".join("a" * (1 + len(self._further))),
        )

    @property
    def _further(self) -> tuple[str, ...]:
        """The names of the columns that are read beside the words."""
        return tuple(name if isinstance(name, str) else f"column {name}" for name in self.columns.features)

    def predict(self, inputs: Iterable[Input], **options: Any) -> list[TagResult]:
        """Tag sentences: texts of white-space words, lists of words, or Sentences, whose documents count.

        If the model reads further columns, a text has a line for each word: the word, and its columns behind it.
        """
        return list(self.stream(inputs, **options))

    def stream(
        self, inputs: Iterable[Input], *, probabilities: bool = False, window: int = WINDOW
    ) -> Iterator[TagResult]:
        """Yield tagged sentences in order, in memory that doesn't grow with their number.

        `window` are read before the first is written; a model that reads documents waits for the end of one.
        """
        for part in _windows(self.read_together(map(self._sentence, itertools.count(1), several(inputs))), window):
            yield from self._tag_window(part, probabilities)

    def look(
        self,
        inputs: Iterable[Input],
        *,
        kinds: Collection[str] = ("encoder",),
        norms: bool = False,
        probabilities: bool = False,
    ) -> list[Insight]:
        """Return what the model saw of each sentence, by itself; only a Transformer has attention (`kinds` encoder)."""
        found = []
        for sentence in map(self._sentence, itertools.count(1), several(inputs)):
            with recording(self.network, kinds=kinds, norms=norms) as record:
                (answer,) = self._tag_window([[sentence]], probabilities)
            side = TextSide.of(" ".join(sentence.words), sentence.words)
            maps = {
                kind: Map(
                    "source",
                    "source",
                    record.weights(kind)[:, 0].float().cpu(),
                    record.norms(kind)[:, 0].float().cpu() if norms else None,
                )
                for kind in record.kinds
            }
            found.append(Insight(self.traits.task, answer, {"source": side}, maps))
        return found

    def _sentence(self, number: int, given: Input) -> TaggedSentence:
        """Read one input as a sentence; one that comes without a document is a document of its own."""
        if isinstance(given, TaggedSentence):
            return given
        if isinstance(given, str) and self._further:
            return parse_text(f"sentence {number:,}", given, self._further)._replace(document=-number)
        words = clean(given).split() if isinstance(given, str) else [clean(word) for word in given]
        if not all(words):
            raise UserError(f"sentence {number:,}: a word is empty")
        return TaggedSentence(tuple(words), document=-number)

    def read_together(self, given: Iterable[TaggedSentence]) -> Iterator[Document]:
        """Yield the sentences of a document, if the model reads documents; else each for itself."""
        return split_documents(given) if self.network.places is not None else ([sentence] for sentence in given)

    def read(self, source: Path | None) -> Iterator[TaggedSentence]:
        """Read the sentences of a file (None: standard input): CoNLL columns, JSONL, or a sentence a line.

        Between lines, a blank one begins another document.
        """
        name = source or "standard input"
        lines = decode_lines(name, sys.stdin.buffer) if source is None else read_raw_lines(source)
        if source is not None and has_lists(source):
            return parse_jsonl(name, lines, self.columns._replace(tag=None))
        blank = list[str]()
        for first in lines:
            if clean(first):
                lines = itertools.chain(blank, [first], lines)
                tags = {"O", *self.lexicon.tags, *self._show_span(self.lexicon.tags)}
                if self._further or looks_like_columns(first, tags) or self.columns.is_header(first):
                    return parse_sentences(name, lines, self.columns._replace(tag=None))
                return _texts(lines)
            blank.append("")
        return iter(())

    def evaluate(self, paths: Sequence[Path], *, watch: Watch = pass_on) -> Evaluation:
        """Score spans and tags against those of files like the ones it learned from, as conlleval prints them."""
        if self.is_paired and len(paths) != 2:
            raise UserError(f"files: {len(paths)} given; allowed: two, one with words and one with tags")
        files = [TaggedFile(paths[1], read_paired(*paths))] if self.is_paired else read_files(paths, self.columns)
        gold = [sentence for file in files for sentence in file.sentences]
        return evaluation(
            [one.tags for one in gold],
            [one.tags for one in watch(self.stream(gold), len(gold))],
            has_spans=self.lexicon.spelling is not None,
        )

    def read_scored(self, source: Path, target: Path | None) -> ScoredSet:
        if self.is_paired != (target is not None):
            wanted = "words in --input and tags in --target" if self.is_paired else "words and tags in --input"
            raise UserError(f"--target: {target or 'missing'}; this model learned from files that have {wanted}")
        if target is not None:
            return ScoredSet(source.name, read_paired(source, target))
        (file,) = read_files([source], self.columns)
        return ScoredSet(source.name, file.sentences)

    def portable(self) -> PortableTagger:
        return PortableTagger(self.network, self.lexicon, self.read_together, self._score)

    @property
    def has_readers(self) -> bool:
        return True

    def with_network(self, network: nn.Module, engine: str) -> Tagger:
        return replace(self, network=cast(TagNetwork, network), engine=engine)

    def _score(self, gold: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> dict[str, float]:
        """Return the scores of tags, the run's own first."""
        scores = evaluation(gold, found, has_spans=self.lexicon.spelling is not None).scores
        return {name: scores[name] for name in ("f1", "precision", "recall", "accuracy") if name in scores}

    def _tag_window(self, window: list[Document], probabilities: bool) -> Iterator[TagResult]:
        found: dict[int, list[TagResult]] = {}
        for rows in _batches(window):
            batch = [window[row] for row in rows]
            tagged = self._tag(batch, probabilities)
            for row, document in zip(rows, batch, strict=True):
                found[row] = [next(tagged) if sentence.words else TagResult((), (), 0.0) for sentence in document]
        return itertools.chain.from_iterable(found[row] for row in range(len(window)))

    @torch.no_grad()
    def _tag(self, batch: Sequence[Document], probabilities: bool) -> Iterator[TagResult]:
        """Tag one batch; sentences without words are left out."""
        batch = [[sentence for sentence in document if sentence.words] for document in batch]
        if not any(batch):
            return iter(())
        tokens = self.lexicon.tokens(batch).to(next(self.network.parameters()).device)
        emission_BTV, chain = self.network(tokens), self.network.chain
        best_BT, score_B = chain.best(emission_BTV, tokens.length_B)
        log_probability_B = score_B - chain.log_partition(emission_BTV, tokens.length_B)
        rows = zip(
            (sentence for document in batch for sentence in document),
            best_BT.tolist(),
            log_probability_B.tolist(),
            chain.marginals(emission_BTV, tokens.length_B).cpu() if probabilities else itertools.repeat(None),
            strict=False,
        )
        return itertools.starmap(self._result, rows)

    def _result(
        self, sentence: TaggedSentence, ids: list[int], log_probability: float, probability_TV: Tensor | None
    ) -> TagResult:
        words = sentence.words
        tags = self._show_span([self.lexicon.tags[index] for index in ids[: len(words)]])
        if probability_TV is None:
            return TagResult(words, tuple(tags), log_probability)
        return TagResult(words, tuple(tags), log_probability, tuple(self.lexicon.tags), probability_TV[: len(words)])

    def _show_span(self, tags: Sequence[str]) -> list[str]:
        return list(tags) if self.lexicon.spelling is None else convert_tags(tags, "bio")


def evaluation(gold: Sequence[Sequence[str]], found: Sequence[Sequence[str]], *, has_spans: bool) -> Evaluation:
    """Compute accuracy and, of spans, precision, recall and F1, of all and of each kind, as conlleval prints them."""
    if has_spans:  # in whichever scheme
        gold, found = ([convert_tags(tags, "bio") for tags in sentences] for sentences in (gold, found))
    pairs = [pair for one, other in zip(gold, found, strict=True) for pair in zip(one, other, strict=True)]
    accuracy = 100 * sum(one == other for one, other in pairs) / len(pairs)
    counts = {"num_sentences": len(gold), "num_tokens": len(pairs)}
    if not has_spans:
        return Evaluation({"accuracy": accuracy, **counts}, [f"{len(pairs)} tokens; accuracy: {accuracy:6.2f}%"])
    total, by_kind = span_scores(gold, found)
    scores = {"f1": total.f1, "precision": total.precision, "recall": total.recall, "accuracy": accuracy}
    kinds = {f"f1_{kind}": score.f1 for kind, score in by_kind.items()}
    return Evaluation({**scores, **kinds, **counts}, _conlleval(total, by_kind, len(pairs), accuracy))


def _conlleval(total: SpanScore, by_kind: dict[str, SpanScore], num_tokens: int, accuracy: float) -> list[str]:
    def rates(score: SpanScore) -> str:
        return f"precision: {score.precision:6.2f}%; recall: {score.recall:6.2f}%; FB1: {score.f1:6.2f}"

    phrases = f"{total.num_gold} phrases; found: {total.num_found} phrases; correct: {total.num_right}."
    return [
        f"processed {num_tokens} tokens with {phrases}",
        f"accuracy: {accuracy:6.2f}%; {rates(total)}",
        *(f"{kind:>17}: {rates(score)}  {score.num_found}" for kind, score in by_kind.items()),
    ]


def _texts(lines: Iterable[str]) -> Iterator[TaggedSentence]:
    document = 0
    for number, line in enumerate(lines, 1):
        if words := clean(line).split():
            yield TaggedSentence(tuple(words), document=document, line=number)
        else:
            document += 1


def _windows(given: Iterable[Document], most: int) -> Iterator[list[Document]]:
    window, size = list[Document](), 0
    for document in given:
        window.append(document)
        size += len(document)
        if size >= most:
            yield window
            window, size = [], 0
    if window:
        yield window


def _batches(window: Sequence[Document]) -> Iterator[list[int]]:
    """Yield documents of like longest sentences within the token budget."""
    longest = [(max(1, *(len(sentence.words) for sentence in document)),) for document in window]
    return group_by_length(longest, TOKENS_PER_BATCH, counts=[len(document) for document in window])
