"""The translate task, from text or sound to text: from a config to a run, to a translator, and to its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import sacrebleu
import torch
from rich.console import Console

from saccade.attention.scores import LOCATIONS
from saccade.data.sound.recordings import Recordings, Sounds
from saccade.data.store import Store
from saccade.data.text.corpus import Pair
from saccade.data.text.tokenizer import AnyTokenizer
from saccade.decoding.limits import PairLengths
from saccade.errors import UserError
from saccade.inspection.align import chosen_head
from saccade.inspection.pages import report
from saccade.inspection.pages.samples import PageSample, render_samples
from saccade.layers.subsampling import FACTOR, FrameEncoder
from saccade.models.seq2seq import Seq2Seq
from saccade.models.transformer import Transformer
from saccade.tasks.base import InheritedFields, Job, ReportPart, Route, Rows, ScoredSet, Task
from saccade.tasks.console import say
from saccade.tasks.cuts import CutCounts
from saccade.tasks.devices import load_trained
from saccade.tasks.output_limits import settle_limits
from saccade.tasks.tally import Tally
from saccade.tasks.texts import read_long_texts
from saccade.tasks.translate import batches, corpora, coverage, hearing, networks, sound
from saccade.tasks.translate.confidence import confidence, judge
from saccade.tasks.translate.config import TranslateConfig as TranslateConfig
from saccade.tasks.translate.copying.summaries import settle_copying
from saccade.tasks.translate.networks import AutoModel, Network, RnnModel
from saccade.tasks.translate.predictor import Translator
from saccade.tasks.translate.result import TranslationResult
from saccade.tasks.translate.scoring import choice
from saccade.tasks.translate.scoring.metrics import Judgement
from saccade.tasks.translate.scoring.scores import LengthScores, TextScores, choose_shown, score_by_length, score_texts
from saccade.tasks.translate.scoring.tallies import tally
from saccade.tasks.translate.tokenizers import (
    load_tokenizers,
    prepare_tokenizers,
    settle_kinds,
    settle_sizes,
)
from saccade.tasks.translate.validation import Sources, Validator
from saccade.tasks.translate.wording.options import Wording
from saccade.tasks.vocabulary import list_grown_rows
from saccade.training.precision import compute_dtype

NUM_SAMPLES = 6
MOST_CALIBRATING = 2000  # pairs that confidence is fitted on
Sides = tuple[AnyTokenizer | Sounds, AnyTokenizer]


def prepare(config: TranslateConfig, folder: Path, console: Console) -> Job:
    """Prepare a run; held-out text is read first, so that a mistake in it shows before anything is learned."""
    for field in ("train", "valid"):
        if getattr(config.data, field) is None:
            raise UserError(f"data.{field}: missing; an imported model ({config.origin}) has no data to train on")
    config = corpora.settle_old(config)
    held_out = corpora.read_held_out(config)
    if config.features is not None:
        for held in held_out:
            sound.files_of(held.corpora[0], held.pairs)
    config = settle_kinds(settle_copying(config, console), console)
    tokenizers, root = prepare_tokenizers(config, folder, console), folder.parent / ".data"
    config, both = settle_sizes(config, tokenizers), sides(config, tokenizers)
    config = coverage.settle_lengths(config, tokenizers, console)
    stores, recordings = _stores(config, both, root, console)
    corpora.say(config, stores[: config.data.num_corpora], held_out, console)
    coverage.say(config, tokenizers, stores[: config.data.num_corpora], held_out, console)
    material = batches.TrainingPairs.of(stores, recordings)
    config = _settle_model(config, both, material.lengths, console)
    network = model(config, both)
    config = corpora.settle_texts(config, console)
    config = choice.settle_metric(config, held_out[0], console)
    config = _settle_limits(config, material, console)
    config = batches.settle(config, network, material, console)
    whole = translator(config, network, both)
    return Job(
        config=config,
        network=network,
        plan=batches.plan(config, material),
        loss=batches.choose_loss(config, network),
        is_steady=batches.is_steady(config),
        validate=_validator(config, whole, held_out[0], root, console).measure,
        data=[store.key for store in stores],
        counts=corpora.count_pairs(config.data, stores, held_out),
        portable=whole.portable(),
        rows=lambda base: _rows(config, folder, base),
    )


def _settle_model(
    config: TranslateConfig, both: Sides, lengths: Sequence[PairLengths], console: Console
) -> TranslateConfig:
    """Return the config with the kind of its model."""
    section, training = config.model, config.training
    if not isinstance(section, AutoModel):
        return config
    is_assembled = config.features is None and choice.are_assembled(corpora.first_pairs(config))
    kind, why = networks.choose_kind(both, lengths, is_assembled=is_assembled)
    if training.recompute or training.shard or training.batches == "packed":
        kind, why = "transformer", "as training.recompute, shard or batches ask for"
    say(console, f"model: {kind} ({why})")
    return config.model_copy(update={"model": section.of_kind(kind)})


def _rows(config: TranslateConfig, folder: Path, base: Path) -> dict[str, tuple[Rows, ...]]:
    """Return the rows of grown vocabularies in embeddings; these may be one matrix, under its first name."""
    if not config.tokenizer.grow:
        return {}
    source, target = list_grown_rows(folder, [one.size for one in load_tokenizers(config, base)])
    tied = _find_tied(config)
    rows: dict[str, tuple[Rows, ...]] = {"target.weight": (target,)}
    if tied != "three" and config.features is None:
        rows["source.weight"] = (source,)
    if tied == "none":
        rows["output.weight"] = (target,)
    if getattr(config.model, "output_bias", False):
        rows["output_bias"] = (target,)
    return {f"below.{name}": own for name, own in rows.items()} if config.model.copies else rows


def _settle_limits(config: TranslateConfig, material: batches.TrainingPairs, console: Console) -> TranslateConfig:
    """Return the config with the limits of its outputs."""
    if not material.lengths:
        return config
    unit = "token" if config.features is None else "frame"
    targets = [store.target for store in material.stores]
    limits = settle_limits(config.decoding, material.lengths, targets, console, unit=unit)
    return config.model_copy(update={"decoding": limits})


def _validator(
    config: TranslateConfig, whole: Translator, valid: corpora.HeldOut, root: Path, console: Console
) -> Validator:
    if isinstance(whole.source, Sounds):
        stored = sound.recordings(valid.corpora[0], whole.source.mel, root, console)
        whole, sources = (
            replace(whole, source=replace(whole.source, stored=stored)),
            Sources.of_sound(stored, whole.target),
        )
    else:
        sources = Sources.of_text(whole)
    found = Validator(valid.pairs, whole, sources, batches.choose_plain_loss(config), limits=config.data.limits)
    if count := found.num_without_loss:
        many = f"{count:,} of {len(found.pairs):,}"
        said = f"{valid.name}: pairs longer than data.max_length: {many}; all scores count them, the loss does not"
        say(console, said, style="yellow")
    return found


def _stores(config: TranslateConfig, both: Sides, root: Path, console: Console) -> tuple[list[Store], list[Recordings]]:
    source, target = both
    if isinstance(source, Sounds):
        return sound.stores(config, source.mel, target, root, console)
    return corpora.stores(config, (source, target), root, console), []


def load(config: TranslateConfig, folder: Path) -> Translator:
    """Load a trained run, ready to predict."""
    both = sides(config, load_tokenizers(config, folder))
    found = translator(config, load_trained(model(config, both), config, folder), both)
    return replace(found, aligning=chosen_head.load(folder), confidence=confidence.load(folder))


@read_long_texts()
def calibrate(config: TranslateConfig, translator: Translator) -> dict[str, str]:
    """Fit how sure a trained run may be of its words, on outputs for its validation set."""
    texts = corpora.held_out_corpora(config, "data.valid")
    pairs = [pair for corpus in texts for pair in translator.pairs(corpus) if all(pair)][:MOST_CALIBRATING]
    results = translator.predict([pair.source for pair in pairs])
    judged = judge.judge(translator, results, [pair.target for pair in pairs])
    return {confidence.NAME: judge.fit(judged).text()}


def sides(config: TranslateConfig, both: corpora.Tokenizers) -> Sides:
    """Return the reader of the sources, and the targets' tokenizer."""
    return both if config.features is None else (Sounds(config.features.mel, FACTOR), both[1])


def model(config: TranslateConfig, both: Sides) -> Network:
    """Make the network, initialised by the run's seed."""
    torch.manual_seed(config.seed)
    tied = _find_tied(config)
    common = {
        "source": both[0].size if not isinstance(both[0], Sounds) else _frame_encoder(config),
        "target_vocabulary": both[1].size,
        "share_embeddings": tied == "three",
        "share_output": tied != "none",
    }
    if isinstance(config.model, RnnModel):
        network: Transformer | Seq2Seq = networks.rnn(config.model, common)
    else:
        network = networks.transformer(config.model, common, 4 * config.data.longest)
        network.recomputes = config.training.recompute
    return networks.copying(config.model, network) if config.model.copies else network


def _find_tied(config: TranslateConfig) -> str:
    """Return which embeddings are one matrix."""
    return config.model.tied or ("three" if config.tokenizer.shared else "two")


def _frame_encoder(config: TranslateConfig) -> FrameEncoder:
    assert config.features is not None
    width = config.model.embedding_width if isinstance(config.model, RnnModel) else config.model.width
    return config.features.frame_encoder(width, config.model.dropout)


def translator(config: TranslateConfig, network: Network, both: Sides) -> Translator:
    """Make a predictor of a network."""
    options, longest = config.decoding.options(), config.decoding.max_source_length
    if getattr(config.model, "positions", None) == "learned":  # there is none after the last
        options = replace(options, max_length=min(options.max_length, 4 * config.data.longest))
        longest = min(longest, 4 * config.data.longest - 1)
    if config.model.score == "location":
        options = replace(options, max_length=min(options.max_length, LOCATIONS))
        longest = LOCATIONS * (FACTOR if config.features else 1) - 1
    limit = "max_source_length"
    if config.data.limits[0].is_cut and config.data.source_length < longest:  # as in training
        longest, limit = config.data.source_length, "data.max_length.source of its training"
    dtype = compute_dtype(config.training.precision, torch.device("cuda")) if torch.cuda.is_available() else None
    return Translator(
        network.eval(),
        *both,
        options,
        None if (size := config.decoding.tokens_per_batch) == "auto" else size,
        longest,
        limit,
        dtype=dtype,
        texts=config.texts,
        judgement=Judgement(config.training.metric, config.training.bleu_tokenize),
        columns=config.pair_columns,
        languages=config.find_languages(),
        wording=Wording(keeps=config.keeps_placeholders, annotates=config.data.terms > 0),
    )


class Outputs(NamedTuple):
    """A model's outputs for a set, scored."""

    name: str
    pairs: list[Pair]
    texts: list[str]
    results: list[TranslationResult]
    scores: TextScores
    by_length: list[LengthScores]
    cut: Mapping[str, int]


def scored_set(config: TranslateConfig, translator: Translator) -> ScoredSet:
    """Return the test set, or the validation set where there is none; pairs with a blank side are left out."""
    name: corpora.SetName = "data.test" if config.data.test else "data.valid"
    if config.data.test is None and config.data.valid is None:
        raise UserError("data.test: missing; an imported model has no test set, so give pairs (--input)")
    texts = corpora.held_out_corpora(config, name)
    pairs = [pair for corpus in texts for pair in translator.pairs(corpus) if all(pair)]
    return ScoredSet(name.removeprefix("data."), pairs)


def outputs(config: TranslateConfig, translator: Translator) -> Outputs:
    """Score a model on its test set, or on the validation set where there is none."""
    name, pairs = scored_set(config, translator)
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    cuts = CutCounts()
    results = list(cuts.watch(translator.predict(sources)))
    written = [found.text for found in results]
    tokenize = config.training.bleu_tokenize
    found = score_texts(written, references, tokenize=tokenize)
    by_length = score_by_length(sources, written, references, tokenize=tokenize)
    return Outputs(name, pairs, written, results, found, by_length, cuts.by_setting)


@read_long_texts()
def examine(config: TranslateConfig, translator: Translator) -> ReportPart:
    """Report on a trained run: its scores, and samples of its outputs."""
    found = outputs(config, translator)
    shown = choose_shown(translator.judgement, [pair.target for pair in found.pairs])
    scores = {**found.scores.plain(shown), "num_pairs": len(found.pairs), "cut": found.cut}
    if config.features is not None:
        heard = hearing.report_sound(translator, found.pairs, found.texts, find_worst(found))
        sections = [*heard.sections, *_reliability(translator, found)]
        return ReportPart(found.name, {**scores, **heard.scores}, sections, _tally(config, found, shown[0]))
    has_attention = getattr(config.model, "attention", "") != "none"
    lengths = [(part.label, part.num_pairs, getattr(part.scores, shown[0])) for part in found.by_length]
    chosen = {"Samples": _spread(found.pairs), "Worst outputs": find_worst(found)}
    samples = {
        heading: render_samples([_sample(translator, pair, has_attention=has_attention) for pair in pairs])
        for heading, pairs in chosen.items()
    }
    sections = [("By length", report.render_lengths(lengths, shown[0])), *_reliability(translator, found)]
    return ReportPart(found.name, scores, [*sections, *samples.items()], _tally(config, found, shown[0]))


def _tally(config: TranslateConfig, found: Outputs, metric: str) -> Tally | None:
    references = [pair.target for pair in found.pairs]
    return tally(metric, found.texts, references, tokenize=config.training.bleu_tokenize)


def _reliability(translator: Translator, found: Outputs) -> list[tuple[str, str]]:
    """Show how far confidence is from the shares of words that are right, if it was fitted."""
    if translator.confidence is None:
        return []
    judged = judge.judge(translator, found.results, [pair.target for pair in found.pairs])
    where = "" if found.name == "test" else ", on the pairs that it was fitted on"
    return [(f"Confidence{where}", judge.measure(judged, translator.confidence).render())]


def _spread(pairs: list[Pair]) -> list[Pair]:
    """Choose a few pairs of different lengths, from short to long."""
    ranked = sorted(pairs, key=lambda pair: len(pair.source.split()))
    count = min(NUM_SAMPLES, len(ranked))
    return [ranked[(2 * rank + 1) * len(ranked) // (2 * count)] for rank in range(count)]


def find_worst(found: Outputs) -> list[Pair]:
    """Return the pairs whose outputs share least with their references, those that are right left out."""
    chrf = sacrebleu.CHRF()
    scores = [
        chrf.sentence_score(text, [pair.target]).score for text, pair in zip(found.texts, found.pairs, strict=True)
    ]
    wrong = [row for row in range(len(scores)) if found.texts[row] != found.pairs[row].target]
    return [found.pairs[row] for row in sorted(wrong, key=scores.__getitem__)[:NUM_SAMPLES]]


def _sample(translator: Translator, pair: Pair, *, has_attention: bool) -> PageSample:
    (found,) = translator.predict([pair.source], attention=has_attention)
    weights = None if found.attention is None else found.attention.tolist()
    return PageSample(
        pair.source, found.text, pair.target, found.score, found.source_pieces or (), found.pieces, weights
    )


INHERITED = InheritedFields(
    same=("input", "features", "tokenizer", "model"),
    free=(
        *("model.dropout", "model.attention_dropout", "model.activation_dropout"),
        *("tokenizer.grow", "tokenizer.sampling"),
        *("features.time_masks", "features.time_mask_frames", "features.frequency_masks"),
        *("features.frequency_mask_mels", "features.tempo"),
    ),
    usual=("languages", "data.max_length", "data.terms", "decoding"),
    anew=("tokenizer.grow", "decoding.max_length_factor", "decoding.max_length_extra", "decoding.max_rounds"),
)
TRANSLATE = Task(
    TranslateConfig,
    prepare,
    load,
    examine,
    Route("Text to text", languages=TranslateConfig.find_languages),
    scored_set,
    calibrate,
    INHERITED,
)
