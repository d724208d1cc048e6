"""Text, or sound, to text: a model with its tokenizers, decoded in batches of like lengths, scored by sacreBLEU."""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, cast, final

import torch
from torch import Tensor, nn

from saccade.data.batches import decoder_input, pad_sources
from saccade.data.sound.recordings import Sounds, find_sounds, pad_frames, rebase_paths
from saccade.data.text.beside import encode_beside, extend_tokenizer, forget_absent
from saccade.data.text.corpus import (
    BY_NAME,
    Corpus,
    Pair,
    PairColumns,
    clean,
    decode_clean_lines,
    place_of_row,
    read_side,
)
from saccade.data.text.tokenizer import END, UNKNOWN, Tokenizer, Vocabulary
from saccade.decoding import (
    OPTION_NAMES,
    BeamOptions,
    DecodingEngine,
    DecodingWork,
    Ensemble,
    Hypothesis,
    SamplingOptions,
    Searcher,
    Stepper,
    choose_options,
    count_steps,
    search,
)
from saccade.decoding.slices import tick_of
from saccade.errors import UserError
from saccade.inspection.align.aligner import read_pairs
from saccade.inspection.insight import Head, Insight, TextSide, add_end
from saccade.inspection.record import cross_weights
from saccade.inspection.trust.cases import TrustTest
from saccade.inspection.trust.subjects import WriterSubject
from saccade.models.pointing.copying import CopyingModel, CopyInputs
from saccade.tasks.base import Evaluation, Portable, Predictor, Result, Traits, Watch, pass_on
from saccade.tasks.cuts import CutCounts
from saccade.tasks.insisted import InsistedCounts
from saccade.tasks.texts import LongTextWarning, batch_by_length, pair_texts, windows
from saccade.tasks.translate import hearing, look, trust
from saccade.tasks.translate.confidence import judge
from saccade.tasks.translate.confidence.confidence import Confidence
from saccade.tasks.translate.copying.copied import tell_copied
from saccade.tasks.translate.corpora import fingerprint
from saccade.tasks.translate.result import HeadChoice, SoundSource, TranslationResult, join_best
from saccade.tasks.translate.scoring import scores
from saccade.tasks.translate.scoring.metrics import DEFAULT_JUDGEMENT, METRICS, Judgement, check_tokenize, measure
from saccade.tasks.translate.word_weights import TranslatorAttention
from saccade.tasks.translate.wording.annotate import TermNote
from saccade.tasks.translate.wording.glossary import Glossary
from saccade.tasks.translate.wording.options import NO_WORDING, Wording, WordingOptions, read_options, settle
from saccade.tasks.translate.wording.write import TermWriter
from saccade.tasks.unknown import UnknownCounts

ON_CPU, ON_ACCELERATOR = 4096, 32_768  # tokens of a batch of sources
WINDOW = 2048  # lines that are sorted by length together
WINDOW_SOUNDS = 64  # sources of sound that are in memory together
Way = BeamOptions | SamplingOptions


class CallOptions(NamedTuple):
    """A call's settings: how to decode, the words, the weights to show, and whether to tell how sure it is."""

    options: Way
    wording: Wording
    head: HeadChoice | None
    tells: bool


class SourceText(NamedTuple):
    """A text to translate: its ids (of sound, its frames), and what its translation must begin with."""

    text: str
    ids: Any
    prefix: str
    prefix_ids: list[int]
    number: int  # of the text in the call, from 0
    spelt: str  # what is read, with terms of a glossary in it perhaps
    notes: tuple[TermNote, ...]  # the terms of a glossary that it has, and where
    target: Tokenizer  # of its output; where the model copies, it knows the text's own unknown words too


@final
@dataclass(frozen=True)
class Translator(Predictor):
    """A trained text-to-text model, as `saccade.load` returns it: one that can be decoded (`Stepper`).

    Every method takes how to decode as keywords: the fields of BeamOptions (`width=1` is greedy), or `sample=True` and
    those of SamplingOptions; `attention=True` for the weights, of a `layer` and a `head` if these are given. `prefixes`
    are texts that the outputs begin with. Blank texts stay blank. Where sources are sounds, texts name WAV files, and
    a sound in memory is given as its frames, as `saccade.data.sound.mel.read_frames` makes them.
    """

    model: nn.Module
    source: Tokenizer | Sounds
    target: Tokenizer
    options: BeamOptions
    tokens_per_batch: int | None = None  # of the sources of a batch; None: what suits the device
    max_source_length: int = 8192
    source_limit: str = "max_source_length"  # the setting that says so
    aligning: Head | None = None  # the head that aligns words best, where it is known
    dtype: torch.dtype | None = None  # what a CUDA device writes in; None: what the weights are
    texts: str = "auto"  # what its sources are, as its config says
    judgement: Judgement = DEFAULT_JUDGEMENT
    columns: PairColumns = BY_NAME  # of files with both sides
    languages: tuple[str, str] | None = None  # what it translates into what
    confidence: Confidence | None = None  # what was fitted of how sure it may be
    searcher: Searcher | None = None  # another engine, which searches in the place of the model
    wording: Wording = NO_WORDING  # of its outputs, unless a call says so; whether it reads terms in sources

    @property
    def traits(self) -> Traits:
        wording = ("confidence", *(() if isinstance(self.source, Sounds) else WordingOptions._fields))
        return Traits(
            "translate",
            reads="sound" if isinstance(self.source, Sounds) else "text",
            kinds=look.kinds(self.copies),
            predict_options=(
                *OPTION_NAMES,
                *wording,
                "confidence",
                "attention",
                *HeadChoice._fields,
                "prefixes",
                "window",
            ),
            evaluate_options=(*OPTION_NAMES, *wording, "tokenize"),
            look_options=(*OPTION_NAMES, *wording, "targets", "kinds", "norms"),
            evidence={"attention": True},
            aligning=self.aligning,
            beam=self.options.width,
            answers="text",
            texts=self.texts,
            max_pieces=self.max_source_length,
            sound=self.source.mel if isinstance(self.source, Sounds) else None,
            num_terms=self.wording.num_terms,
        )

    def predict(
        self, texts: Iterable[str], *, prefixes: Iterable[str] | None = None, **decoding: Any
    ) -> list[TranslationResult]:
        """Return the best output for each text; with `num_best`, the others are its `others`."""
        return [join_best(best) for best in self.predict_best(texts, prefixes=prefixes, **decoding)]

    def predict_best(
        self, texts: Iterable[str], *, prefixes: Iterable[str] | None = None, **decoding: Any
    ) -> list[list[TranslationResult]]:
        """Return the `num_best` outputs for each text, best first."""
        return self._predict(list(pair_texts(texts, prefixes)), 1, self._request(decoding))

    def stream(
        self, lines: Iterable[str], *, prefixes: Iterable[str] | None = None, **decoding: Any
    ) -> Iterator[TranslationResult]:
        """Yield outputs in the order of the lines, in memory that doesn't grow with their number."""
        return (join_best(best) for best in self.stream_best(lines, prefixes=prefixes, **decoding))

    def stream_best(
        self, lines: Iterable[str], *, prefixes: Iterable[str] | None = None, window: int = WINDOW, **decoding: Any
    ) -> Iterator[list[TranslationResult]]:
        """Yield the `num_best` outputs for each line; `window` lines are read before the first is written."""
        request = self._request(decoding)
        number = 1
        size = min(window, WINDOW_SOUNDS) if isinstance(self.source, Sounds) else window
        for part in windows(pair_texts(lines, prefixes), size):
            yield from self._predict(part, number, request)
            number += len(part)

    def look(
        self,
        texts: Iterable[str],
        *,
        targets: Iterable[str] | None = None,
        kinds: Collection[str] | None = None,
        norms: bool = False,
        **decoding: Any,
    ) -> list[Insight]:
        """Return what the model saw of each text while it wrote its output, or with `targets`, while it reads these.

        `kinds` of attention are cross, encoder and decoder, and copy where the model copies; without them they are
        those that read the source. `norms=True` adds the lengths of what was weighed.
        """
        kinds = look.READING if kinds is None else kinds
        if isinstance(self.model, Ensemble):
            raise UserError("look: an ensemble has no attention of its own; look at one run")
        options, wording, _, tells = self._request(decoding)

        def look_at(texts: Sequence[SourceText], is_given: bool) -> list[Insight]:
            return look.look_at(self, texts, options, kinds=kinds, norms=norms, is_given=is_given)

        if targets is not None:
            found = look_at(self._encode(pair_texts(texts, targets, "targets")), True)
        else:
            found = TermWriter(self, options, wording).look(
                self._encode(pair_texts(texts, None), wording=wording), look_at
            )
        return [replace(one, answer=self._tell(one.answer)) for one in found] if tells else found

    def read(self, source: Path | None) -> Iterator[str]:
        """Read the sources of a file, as in training, or the lines of the standard input.

        Files that a list names are looked up from where it lies. A model that hears also reads one sound file, or a
        folder of them.
        """
        if source is None:
            return decode_clean_lines("standard input", sys.stdin.buffer)
        if not isinstance(self.source, Sounds):
            return read_side(source, self.columns)
        if (sounds := find_sounds(source)) is not None:
            return iter(sounds)
        place = partial(place_of_row, source, self.columns)
        return rebase_paths(read_side(source, self.columns), source.parent, place)

    def read_targets(self, path: Path) -> Iterator[str]:
        return read_side(path, self.columns, "target")

    def read_pairs(self, source: Path, target: Path | None) -> Iterator[Pair]:
        return read_pairs(source, target, self.columns)

    def pairs(self, corpus: Corpus) -> Iterator[Pair]:
        """Read a corpus as it is read here: the names of a list of sounds are looked up from where it lies."""
        if not isinstance(self.source, Sounds):
            return corpus.pairs()
        pairs, again = itertools.tee(corpus.pairs())
        folder = corpus.sides()[0][0].parent
        sources = rebase_paths((pair.source for pair in again), folder, lambda row: corpus.place(row, 0))
        return (pair._replace(source=source) for pair, source in zip(pairs, sources, strict=True))

    def evaluate(
        self,
        paths: Sequence[Path],
        *,
        tokenize: str | None = None,
        watch: Watch = pass_on,
        **decoding: Any,
    ) -> Evaluation:
        """Score line-aligned files, or one with both sides: the run's metric is first. `watch` sees outputs go by."""
        judgement = Judgement(self.judgement.metric, check_tokenize(tokenize or self.judgement.tokenize))
        if len(paths) > 2:
            raise UserError(f"{paths[2]}: one file too many; allowed: a source and its target, or one with both sides")
        source, target = [*map(str, paths), None][:2]
        pairs = list(self.pairs(Corpus(str(source), target, columns=self.columns)))
        sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
        asked = self._request(decoding)
        cuts, unknown, insisted = CutCounts(), UnknownCounts(), InsistedCounts(asked.wording.num_terms)
        stream = cuts.watch(unknown.watch(watch(self.stream(sources, **decoding), len(pairs))))
        results = list(insisted.watch(stream))
        outputs = [found.text for found in results]
        found = scores.score_texts(outputs, references, tokenize=judgement.tokenize)
        shown = scores.choose_shown(judgement, references)
        lines, figures = scores.describe_scores(found, shown), {"num_pairs": len(pairs), **found._asdict()}
        if isinstance(self.source, Sounds):
            heard = cuts.add_to(hearing.evaluation(self, pairs, outputs, lines, figures))
            return self._add_reliability(heard, results, references, asked)
        by_length = scores.score_by_length(sources, outputs, references, tokenize=judgement.tokenize)
        whole = Evaluation(
            {**figures, "by_length": [row.plain() for row in by_length]},
            [*lines, "", *scores.table(by_length, shown[:2]), *unknown.describe()],
            lambda path: scores.plot(by_length, path, shown[0]),
        )
        return self._add_reliability(insisted.add_to(cuts.add_to(whole)), results, references, asked)

    def _add_reliability(
        self, found: Evaluation, results: list[TranslationResult], references: list[str], asked: CallOptions
    ) -> Evaluation:
        """Add how far what is said of words and outputs is from the shares that are right, if it was asked for."""
        if not asked.tells or self.confidence is None:
            return found
        measured = judge.measure(judge.judge(self, results, references), self.confidence)
        scores = {**found.scores, **measured.figures()}
        return found._replace(scores=scores, lines=[*found.lines, *measured.lines()])

    @property
    def copies(self) -> bool:
        """Return True if the model may write unknown words of its source."""
        first = self.model.members[0] if isinstance(self.model, Ensemble) else self.model
        return isinstance(first, CopyingModel)

    def output_tokenizer(self, text: str) -> Tokenizer:
        """Return the tokenizer of what is written for a text."""
        return extend_tokenizer(self.target, text) if self.copies else self.target

    def encode_pair(self, pair: Pair) -> tuple[list[int], list[int]]:
        """Return the ids of both sides, as in training."""
        if self.copies:
            return encode_beside(self.target, pair)
        return cast(Tokenizer, self.source).encode(pair.source), self.target.encode(pair.target)

    def num_pieces(self, text: str) -> int:
        return len(self.source.encode(clean(text) if isinstance(text, str) else text))

    def num_steps(self, text: str, /, **decoding: Any) -> int:
        return count_steps(choose_options(self.options, decoding), self.num_pieces(text) + 1)

    def word_attention(self) -> TranslatorAttention:
        return TranslatorAttention(self)

    def trust_test(self) -> TrustTest:
        if self.copies and isinstance(self.target, Vocabulary):
            said = "a word that is copied can't be written any more when it is taken out of the source"
            raise UserError(f"trust: {said}; allowed: models without copies, or that copy pieces (tokenizer.kind)")
        return TrustTest(WriterSubject(self.model), partial(trust.make_cases, self))

    def portable(self) -> Portable:
        metrics = dict.fromkeys((self.judgement.metric, "bleu", "chrf"))
        return Portable(
            self.model,
            self.source,
            self.target,
            self.options,
            self.max_source_length,
            partial(measure, [name for name in metrics if name in METRICS], tokenize=self.judgement.tokenize),
            self.aligning,
            self.languages,
        )

    @property
    def engine(self) -> str:
        return "torch" if self.searcher is None else self.searcher.name

    def with_searcher(self, make: Callable[[Portable], Searcher]) -> Translator:
        """Search with another engine; what is looked at is still computed by this model."""
        return replace(self, searcher=make(self.portable()))

    def with_glossary(self, path: Path) -> Translator:
        """Write the terms of a file as it asks, unless a call has a glossary of its own, whose entries go first."""
        return replace(self, wording=self.wording._replace(glossary=Glossary.read(path)))

    @classmethod
    def ensemble(cls, runs: Sequence[tuple[str, Predictor]]) -> Translator:
        """Decode several runs together, as the first one says; they must have the same tokenizers."""
        found = list[Translator]()
        for name, run in runs:
            if not isinstance(run, Translator):
                raise UserError(f"{name}: it isn't text to text; an ensemble is of runs that are")
            found.append(run)
            if run.copies != found[0].copies:
                raise UserError(f"{name}: in an ensemble all runs copy, or none; {runs[0][0]} is other than this one")
            for side in ("source", "target"):
                if fingerprint(getattr(run, side)) != fingerprint(getattr(found[0], side)):
                    first = runs[0][0]
                    raise UserError(
                        f"{name}: its {side} tokenizer differs from that of {first}; an ensemble shares both"
                    )
        wording = found[0].wording._replace(annotates=all(run.wording.annotates for run in found))
        return replace(found[0], model=Ensemble([run.model for run in found]), wording=wording, confidence=None)

    def _request(self, decoding: dict[str, Any]) -> CallOptions:
        """Check the keywords of a call: what has no effect is refused, not ignored."""
        given = dict(decoding)
        head = {name: given.pop(name) for name in HeadChoice._fields if name in given}
        is_attention, tells = given.pop("attention", False), given.pop("confidence", False)
        if head and not is_attention:
            raise UserError(f"{next(iter(head))}: given without attention")
        if tells and self.confidence is None:
            raise UserError(
                "confidence: none was fitted; saccade train does it at the end, also for a run that is finished, "
                "but not for ensembles and imported models"
            )
        return CallOptions(*self._choose_options(given), HeadChoice(**head) if is_attention else None, tells)

    def _tell(self, result: TranslationResult) -> TranslationResult:
        """Return a result with its confidence."""
        assert self.confidence is not None
        return self.confidence.tell(result, self.output_side(result))

    def _choose_options(self, given: dict[str, Any]) -> tuple[Way, Wording]:
        """Put keywords over the run's own options, and refuse what another engine can't honour."""
        words, others = read_options(given)
        options = choose_options(self.options, others)
        engine = None
        if self.searcher is not None:
            if (reason := self.searcher.refuse(options)) is not None:
                raise UserError(f"{reason}; the engine torch can")
            engine = None if self.searcher.refuse_prefixes(options) is None else self.searcher.name
        return options, settle(
            words, self.wording, options, reads_text=not isinstance(self.source, Sounds), engine=engine
        )

    def _predict(self, texts: list[tuple[str, str]], number: int, asked: CallOptions) -> list[list[TranslationResult]]:
        encoded = self._encode(texts, number, asked.wording)
        found = TermWriter(self, asked.options, asked.wording, asked.head).write(encoded)
        return [[self._tell(one) for one in best] for best in found] if asked.tells else found

    def search(self, texts: list[SourceText], options: Way) -> list[list[Hypothesis]]:
        """Find each text's best outputs: in slots on an accelerator; in batches on a CPU, where that is quicker."""
        if self.searcher is not None:
            ids, prefixes = [list(text.ids) for text in texts], [text.prefix_ids for text in texts]
            return self.searcher.search(ids, prefixes, options, tick_of([text.number for text in texts]))
        lengths = [len(text.ids) + (not isinstance(self.source, Sounds)) for text in texts]
        work = DecodingWork(
            lambda rows: self._pad_on_host([texts[row] for row in rows]),
            lengths,
            [text.prefix_ids for text in texts],
            tick_of([text.number for text in texts]),
        )
        if (
            self._device.type == "cuda"
            and isinstance(options, BeamOptions)
            and self._engine.refuses(options, work) is None
        ):
            return self._engine.generate(work, options)
        found: list[list[Hypothesis]] = [[] for _ in texts]
        hypotheses = options.width if isinstance(options, BeamOptions) else options.num_best
        for rows in batch_by_length([len(text.ids) for text in texts], self.batch_tokens // hypotheses):
            for row, best in zip(rows, self._search_batch([texts[row] for row in rows], options), strict=True):
                found[row] = best
        return found

    @property
    def batch_tokens(self) -> int:
        """The padded size of sources that are read together: an accelerator is quicker with many."""
        return self.tokens_per_batch or (ON_ACCELERATOR if self._device.type == "cuda" else ON_CPU)

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    @cached_property
    def _engine(self) -> DecodingEngine:
        return DecodingEngine(self.model, self.dtype)

    def _encode(
        self, texts: Iterable[tuple[str, str]], first: int = 1, wording: Wording = NO_WORDING
    ) -> list[SourceText]:
        """Read texts with what their outputs begin with; `first` is the number of the first one."""
        found, long, limit = list[SourceText](), dict[int, int](), self.max_source_length
        for number, (text, prefix) in enumerate(texts, first):
            ids: Any  # of a sound, its frames
            if isinstance(text, str):
                spelt, notes = wording.read(clean(text))
                target = self.output_tokenizer(spelt)
                ids = target.encode(spelt) if self.copies else self.source.encode(spelt)
            else:
                text, spelt, notes, target, ids = "", "", (), self.target, self.source.encode(text)
            if len(ids) > limit:
                long[number] = len(ids)
            prefix = clean(prefix)
            ids, start = ids[:limit], target.encode(prefix)
            if self.copies:
                start = forget_absent(start, cast(list[int], ids), self.target.size)
            found.append(SourceText(text, ids, prefix, start, number - 1, spelt, notes, target))
        if long:
            self._warn_of_long(long, len(found))
        return found

    def replace_text(self, text: SourceText, other: str, wording: Wording) -> SourceText:
        """Return another text in the place of one, without a prefix."""
        (found,) = self._encode([(other, "")], text.number + 1, wording)
        return found

    def _warn_of_long(self, long: dict[int, int], num_sources: int) -> None:
        """Name the sources that are not read to their end, by their number and length."""
        limit, unit = self.max_source_length, "frames" if isinstance(self.source, Sounds) else "tokens"
        number, length = next(iter(long.items()))
        if len(long) == 1:
            said = f"source {number:,} has {length:,} {unit}; only the first {limit:,} are read"
        else:
            many = f"{len(long):,} of {num_sources:,} sources have more than {limit:,} {unit}, the first is {number:,}"
            said = f"{many}; only so many of each are read"
        warnings.warn(f"{said} ({self.source_limit})", LongTextWarning, stacklevel=2)

    def to_results(self, text: SourceText, found: list[Hypothesis], head: HeadChoice | None) -> list[TranslationResult]:
        """Return the outputs of a text as they are shown."""
        shown = [self.to_result(text, one) for one in found]
        if head is None:
            return shown
        return [self._with_attention(text, *both, head) for both in zip(found, shown, strict=True)]

    def _search_batch(self, texts: list[SourceText], options: Way) -> list[list[Hypothesis]]:
        """Search for the best outputs of one batch."""
        prefixes, tick = [text.prefix_ids for text in texts], tick_of([text.number for text in texts])
        return search(cast(Stepper, self.model), *self.pad(texts), options, prefixes, tick)

    def decoder_ids(self, ids: list[list[int]]) -> Tensor:
        """Return the ids that the decoder reads to write these, padded."""
        return decoder_input(ids).to(self._device)

    def with_copies(
        self, result: TranslationResult, found: Hypothesis, pointed: CopyInputs, row: int, source_S: Tensor
    ) -> TranslationResult:
        """Return a result that tells how each of its pieces came about."""
        ids = [*found.ids, END][: len(found.log_probabilities)]
        return result._replace(copied=tuple(tell_copied(pointed, row, ids, source_S, found.log_probabilities)))

    def source_side(self, text: SourceText, *, has_end: bool = False) -> TextSide:
        """Return the pieces of a text as they are read, and its words."""
        tokenizer = text.target if self.copies else cast(Tokenizer, self.source)
        return TextSide.of(text.spelt, add_end(tokenizer.pieces(text.ids), has_end=has_end), tokenizer.begins_word)

    def output_side(self, result: Result) -> TextSide:
        """Return the pieces of an output, </s> included if it ended, and its words."""
        assert isinstance(result, TranslationResult)
        return TextSide.of(result.text, add_end(result.pieces, has_end=result.ended), self.target.begins_word)

    def to_result(self, text: SourceText, found: Hypothesis) -> TranslationResult:
        """Return the output as text; of the prefix, what no token stands for is still there."""
        decoded = text.target.decode(found.ids)
        if text.prefix_ids and decoded.startswith(start := text.target.decode(text.prefix_ids)):
            decoded = text.prefix + decoded[len(start) :]
        name = (text.text or None) if isinstance(self.source, Sounds) else None
        pieces, steps = text.target.pieces(found.ids), found.log_probabilities
        unknown = list(text.ids).count(UNKNOWN) or None if isinstance(self.source, Vocabulary) else None
        return TranslationResult(
            decoded, found.score, pieces, steps, found.ended, name=name, cut_by=found.cut, unknown=unknown
        )

    @torch.no_grad()
    def _with_attention(
        self, text: SourceText, found: Hypothesis, shown: TranslationResult, head: HeadChoice
    ) -> TranslationResult:
        """Read an output once more with its weights recorded, one sentence at a time."""
        read_1T = self.decoder_ids([found.ids])[:, : len(shown.log_probabilities)]
        weight_TS = head.of(source_weights(self.model, *self.pad([text]), read_1T))[0].float().cpu()
        if isinstance(self.source, Sounds):
            heard = SoundSource(text.ids, self.source.mel.hop)
            return shown._replace(attention=weight_TS, source_pieces=self.source.pieces(text.ids), heard=heard)
        shown = shown._replace(attention=weight_TS, source_pieces=self.source_side(text, has_end=True).pieces)
        if isinstance(self.model, CopyingModel):
            source, length_B = self.pad([text])
            pointed, _ = self.model.point(self.model.start(source, length_B), read_1T)
            shown = self.with_copies(shown, found, pointed, 0, source[0])
        return shown

    def align_output(self, text: SourceText, found: Hypothesis) -> Tensor | None:
        """Return the weights [T, S] of output pieces on source pieces, by the head that aligns best, if any does."""
        read_1T = self.decoder_ids([found.ids])[:, : len(found.log_probabilities)]
        weight_BLHTS = source_weights(self.model, *self.pad([text]), read_1T)
        if not weight_BLHTS.shape[1]:
            return None
        own = None if isinstance(self.model, Ensemble) else self.aligning
        return (own or Head(layer=-1)).of(weight_BLHTS[0]).float().cpu()

    def pad(self, texts: list[SourceText]) -> tuple[Tensor, Tensor]:
        """Pad sources; return them and their lengths, where the model is."""
        source, length_B = self._pad_on_host(texts)
        return source.to(self._device), length_B.to(self._device)

    def _pad_on_host(self, texts: list[SourceText]) -> tuple[Tensor, Tensor]:
        sources = [text.ids for text in texts]
        return pad_frames(sources) if isinstance(self.source, Sounds) else pad_sources(sources)


def source_weights(model: nn.Module, source: Tensor, length_B: Tensor, read_BT: Tensor) -> Tensor:
    """Return the weights of a model on the source while it reads an output, [B, L, H, T, S].

    Those of an ensemble, [B, 1, 1, T, S], are the mean of its members' last layers, where these have attention.
    """
    if not isinstance(model, Ensemble):
        return cross_weights(model, source, length_B, read_BT)
    weights = [cross_weights(member, source, length_B, read_BT) for member in model.members]
    last = [weight_BLHTS[:, -1:].mean(2, keepdim=True) for weight_BLHTS in weights if weight_BLHTS.shape[1]]
    return torch.stack(last).mean(0) if last else weights[0]
