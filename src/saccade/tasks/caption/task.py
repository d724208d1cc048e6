"""The caption task: from a config to a run, to a trained captioner, and to its part of the report."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from rich.console import Console

from saccade.data.batches import Buckets
from saccade.data.grouping import group_by_length
from saccade.data.pictures.captions import CaptionRows, CaptionSet
from saccade.data.pictures.images import read_picture
from saccade.data.text.tokenizer import AnyTokenizer, load_tokenizer, tokenizer_file_name, train_tokenizer
from saccade.errors import UserError
from saccade.layers.clip_encoder import ClipEncoder
from saccade.layers.image_encoder import FeatureEncoder, ImageEncoder
from saccade.models.captioner import Captioner, Encoder
from saccade.models.seq2seq import RecurrentSizes
from saccade.models.seq2seq_attention import AttentionOptions
from saccade.tasks.base import DataCount, InheritedFields, Job, ReportPart, Route, Rows, ScoredSet, Task
from saccade.tasks.caption.config import (
    CaptionConfig,
    CaptionOptions,
    ClipData,
    FeatureData,
    Shapes,
)
from saccade.tasks.caption.loss import Weights, caption_loss
from saccade.tasks.caption.pictures import load_set, make_reader
from saccade.tasks.caption.predictor import CaptionWriter, make_scored
from saccade.tasks.devices import load_trained
from saccade.tasks.vocabulary import find_grown_rows, prepare_tokenizer

VALIDATION_WORDS = 4096
NUM_SAMPLES = 6
KEPT = ("bleu4", "exact", "noun_attention", "span_attention")  # scores of a validation
SHAPE_FILE = "features.json"  # in a run's folder: what the feature maps look like


def prepare(config: CaptionConfig, folder: Path, console: Console) -> Job:
    """Prepare a run; the test set is read first, so that a mistake in it shows before anything is learned."""
    if not isinstance(config.data, Shapes) and config.data.test is not None:
        load_set(config.data, "test")
    train, valid = load_set(config.data, "train"), load_set(config.data, "valid")
    tokenizer = _tokenizer(config, train, folder, console)
    _say(config, train, valid, tokenizer, console)
    places = _places(config, train)
    network = model(config, tokenizer, places)
    if isinstance(network.encoder, FeatureEncoder):
        network.encoder.mean_C, network.encoder.deviation_C = train.statistics()
    lines = CaptionRows(train, tokenizer, places=math.prod(network.encoder.shape))
    training = config.training
    weights = Weights(training.label_smoothing, training.coverage, training.reinforce, training.entropy)
    predictor = writer(config, network, tokenizer)
    return Job(
        network=network,
        plan=Buckets([lines.lengths], tokens_per_batch=training.tokens_per_batch, seed=config.seed, load=lines.load),
        loss=partial(caption_loss, network, weights=weights, turning=training.turning),
        validate=_Validator(config, predictor, valid).measure,
        data=[train.key()],
        stored={SHAPE_FILE: json.dumps(places)},
        unit="words",
        counts=[DataCount(f"data.{name}", len(those)) for name, those in (("train", train), ("valid", valid))],
        portable=predictor.portable(),
        rows=lambda _: _rows(config, folder),
    )


def _rows(config: CaptionConfig, folder: Path) -> dict[str, tuple[Rows, ...]]:
    """Return the rows of a grown vocabulary."""
    tables = ["target.weight"] + ([] if config.model.tied else ["output.weight"])
    return find_grown_rows(config, _tokenizer_path(config, folder), *tables)


def load(config: CaptionConfig, folder: Path) -> CaptionWriter:
    """Load a trained run, ready to predict."""
    tokenizer = load_tokenizer(_tokenizer_path(config, folder))
    stored_places = folder / SHAPE_FILE
    places = json.loads(stored_places.read_text("utf-8")) if stored_places.exists() else _places(config, None)
    network = model(config, tokenizer, places)
    return writer(config, load_trained(network, config, folder), tokenizer)


def model(config: CaptionConfig, tokenizer: AnyTokenizer, places: tuple[int, int, int]) -> Captioner:
    """Make the network, initialised by the run's seed; `places` are rows, columns and channels of what it reads."""
    torch.manual_seed(config.seed)
    section, (rows, columns, channels) = config.model, places
    encoder: Encoder
    if isinstance(config.data, FeatureData):
        share = section.feature_dropout
        encoder = FeatureEncoder(section.width, rows=rows, columns=columns, channels=channels, dropout=share)
    elif isinstance(config.data, ClipData):
        frames = config.data.frames
        encoder = ClipEncoder(section.width, frames=frames, rows=rows, columns=columns, channels=channels)
    else:
        encoder = ImageEncoder(section.width, rows=rows, columns=columns, channels=channels)
    sizes = RecurrentSizes(
        section.width, section.embedding_width, section.num_layers, cell=section.cell, dropout=section.dropout
    )
    return Captioner(
        encoder,
        vocabulary=tokenizer.size,
        sizes=sizes,
        attention_options=AttentionOptions(section.score, section.normalizer),
        attention=section.attention,
        start=section.start,
        forgetting=section.forgetting,
        share_output=section.tied,
    )


def writer(config: CaptionConfig, network: Captioner, tokenizer: AnyTokenizer) -> CaptionWriter:
    """Make a predictor of a network."""
    num_shapes = config.data.test if isinstance(config.data, Shapes) else 0
    return CaptionWriter(network.eval(), tokenizer, config.decoding.options(), make_reader(config.data), num_shapes)


def examine(config: CaptionConfig, predictor: CaptionWriter) -> ReportPart:
    """Report on a trained run: scores, and where the words of a few sentences looked."""
    name: Literal["test", "valid"] = "test" if config.data.test is not None else "valid"
    held_out = load_set(config.data, name)
    folder = getattr(getattr(config.data, name), "pictures", None)
    spread = range(0, len(held_out), max(1, len(held_out) // NUM_SAMPLES))[:NUM_SAMPLES]
    sections = [("Samples", _articles(predictor, held_out, spread, folder))]
    outputs = [one.text for one in predictor.stream(map(held_out.item, range(len(held_out))), attention=False)]
    if worst := _find_worst(outputs, held_out)[:NUM_SAMPLES]:
        sections.append(("Worst outputs", _articles(predictor, held_out, worst, folder)))
    return ReportPart(name, predictor.judge(held_out).scores, sections)


def scored_set(config: CaptionConfig, predictor: CaptionWriter) -> ScoredSet:
    """Return the pictures of the test set, or of the validation set where there is none, with their captions."""
    del predictor
    name: Literal["test", "valid"] = "test" if config.data.test is not None else "valid"
    return make_scored(name, load_set(config.data, name))


def _find_worst(outputs: list[str], told: CaptionSet) -> list[int]:
    """Find rows that are none of their captions: those first that share the fewest words with one of them."""

    def overlap(output: str, caption: str) -> float:
        one, other = Counter(output.split()), Counter(caption.split())
        return 2 * (one & other).total() / max(1, one.total() + other.total())

    wrong = [row for row, output in enumerate(outputs) if output not in told.captions[row]]
    return sorted(wrong, key=lambda row: max(overlap(outputs[row], caption) for caption in told.captions[row]))


def _articles(predictor: CaptionWriter, told: CaptionSet, rows: Iterable[int], folder: str | None) -> str:
    """Render some sentences, and where their words looked."""
    articles = []
    for row in rows:
        seen = told.item(row)
        if seen.picture is None and folder is not None:
            seen = seen._replace(picture=read_picture(Path(folder).expanduser() / seen.name, channels=3))
        (found,) = predictor.predict([seen])
        spans = told.spans[row] if told.spans and found.text in told.captions[row][:1] else []
        articles.append(found.article(told.captions[row], spans))
    return "".join(articles)


class _Validator:
    """Validation by real decoding, and the loss of the captions."""

    def __init__(self, config: CaptionConfig, predictor: CaptionWriter, valid: CaptionSet) -> None:
        self.predictor, self.valid, self.metric = predictor, valid, config.training.metric
        lines = CaptionRows(valid, predictor.tokenizer, places=math.prod(predictor.model.encoder.shape))
        lengths = [(length,) for length in lines.lengths.tolist()]
        batches = group_by_length(lengths, max(VALIDATION_WORDS, *max(lengths)))
        self.rows, self.lines = [np.array(rows) for rows in batches], lines

    @torch.no_grad()
    def measure(self) -> dict[str, float]:
        """Compute BLEU-4, how many are exactly right, and the loss; "score" is the chosen one, higher is better."""
        found = self.predictor.judge(self.valid).scores
        model, items, likelihood = self.predictor.model, 0, 0.0
        for rows in self.rows:
            batch = self.lines.load(rows).to(model.baseline.device)
            likelihood += float(caption_loss(model, batch, Weights())[1])
            items += batch.num_items
        kept = {f"valid_{name}": float(found[name]) for name in KEPT if name in found}
        loss = likelihood / items
        score = -loss if self.metric == "loss" else kept[f"valid_{self.metric}"]
        perplexity = math.exp(min(50.0, loss))
        cuts = {f"cut_{name}": count for name, count in found["cut"].items()} | {"num_outputs": len(self.valid)}
        return {"score": score, **kept, "valid_loss": loss, "valid_perplexity": perplexity, **cuts}


def _tokenizer(config: CaptionConfig, train: CaptionSet, folder: Path, console: Console) -> AnyTokenizer:
    """Return the run's tokenizer, or learn it from the training captions."""
    texts, section = (caption for captions in train.captions for caption in captions), config.tokenizer
    learn = partial(train_tokenizer, section.kind, size=section.vocabulary_size, seed=config.seed)
    return prepare_tokenizer(config, _tokenizer_path(config, folder), texts, learn, console)


def _tokenizer_path(config: CaptionConfig, folder: Path) -> Path:
    return folder / tokenizer_file_name(config.tokenizer.kind, "tokenizer")


def _places(config: CaptionConfig, train: CaptionSet | None) -> tuple[int, int, int]:
    """Return rows, columns and channels of what the network reads; those of feature maps are stored with the run."""
    if not isinstance(config.data, FeatureData):
        return config.data.side, config.data.side, 3
    if train is None or train.grid is None:
        raise UserError(f"{SHAPE_FILE}: missing; it says how large the feature maps are")
    return *train.grid, train.source.shape[-1]


def _say(
    config: CaptionConfig, train: CaptionSet, valid: CaptionSet, tokenizer: AnyTokenizer, console: Console
) -> None:
    for name, those in (("train", train), ("valid", valid)):
        number = sum(map(len, those.captions))
        what = "pictures" if those.frames_N is None else "clips"
        console.print(f"data.{name}: {len(those):,} {what}, {number:,} captions")
    console.print(f"vocabulary: {tokenizer.size:,} {config.tokenizer.kind}")


ROUTE = Route("Caption pictures", reads="picture", options=CaptionOptions)
INHERITED = InheritedFields(
    same=("model", "tokenizer", "data.kind", "data.lower_case", "data.punctuation"),
    free=("model.dropout", "model.feature_dropout", "model.forgetting", "tokenizer.grow"),
    usual=("data.side", "data.frames", "data.axes", "data.scale", "decoding"),
    anew=("tokenizer.grow",),
)
CAPTION = Task(CaptionConfig, prepare, load, examine, ROUTE, scored_set, inherited=INHERITED)
