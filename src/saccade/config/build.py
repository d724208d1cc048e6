"""From a config to objects. Layers never see the config: they get plain arguments."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

from saccade.attention.scores import LOCATIONS
from saccade.config import load as config_file
from saccade.config.schema import CorpusFiles, RnnModel, Run, TransformerModel
from saccade.config.watch import watched
from saccade.data.batches import BatchPlan
from saccade.data.corpus import Corpus
from saccade.data.mistakes import Mistake
from saccade.data.store import Encode, Store, prepare
from saccade.data.tokenizer import (
    MOST_CHARACTERS,
    SentencePiece,
    Vocabulary,
    file_name,
    load_tokenizer,
    repeatably,
    sample,
    train_tokenizer,
)
from saccade.decoding import Ensemble
from saccade.models.seq2seq import Look, RecurrentSizes, Seq2Seq
from saccade.models.transformer import BlockSizes, Dropouts, Transformer
from saccade.tasks.translate import Translator
from saccade.training import checkpoints
from saccade.training.loop import Options
from saccade.training.precision import compute_dtype

VARIANTS = 8  # of a corpus cut into pieces at random
Tokenizers = tuple[SentencePiece | Vocabulary, SentencePiece | Vocabulary]


QUIET = Console(quiet=True)


def corpus(files: CorpusFiles, name: str = "") -> Corpus:
    """Where pairs come from."""
    return Corpus(files.source, files.target, name)


def training_corpora(config: Run) -> list[Corpus]:
    """Every corpus to train on."""
    return [corpus(files, name) for name, files in config.data.corpora.items()]


def tokenizers(config: Run, folder: Path, console: Console = QUIET) -> Tokenizers:
    """Both sides' tokenizers: from the run's folder, or learned from the training text and stored there."""
    stored = [sorted(folder.glob(f"tokenizer.{side}.*")) for side in ("source", "target")]
    if all(stored):
        return load_tokenizer(stored[0][0]), load_tokenizer(stored[1][0])
    both = _learned(config, console)
    for side, tokenizer in zip(("source", "target"), both, strict=True):
        tokenizer.save(folder / file_name(tokenizer, f"tokenizer.{side}"))
    return both


def _learned(config: Run, console: Console) -> Tokenizers:
    section = config.tokenizer

    def learn(sides: tuple[int, ...], what: str) -> SentencePiece | Vocabulary:
        texts = (pair[side] for pairs in training_corpora(config) for pair in pairs.pairs() for side in sides)
        chosen = sample(watched(console, texts, f"reading the {what}"), most=MOST_CHARACTERS, seed=config.seed)
        if len(chosen.texts) < chosen.num_seen:
            console.print(f"The tokenizer learns from {len(chosen.texts):,} of {chosen.num_seen:,} texts, by chance.")
        with console.status(f"learning a vocabulary of {section.vocabulary_size:,} ({section.kind}) from the {what}"):
            return train_tokenizer(section.kind, chosen.texts, section.vocabulary_size, seed=config.seed)

    if section.shared:
        return (learn((0, 1), "training text"),) * 2
    return learn((0,), "sources"), learn((1,), "targets")


def stores(config: Run, both: Tokenizers, root: Path, console: Console = QUIET) -> list[Store]:
    """The pairs of each training corpus as ids, made once and found again; all of them once more for each variant."""
    marks, alpha = [_fingerprint(tokenizer) for tokenizer in both], config.tokenizer.sampling

    def prepared(pairs: Corpus, variant: int) -> Store:
        drawn = {"sampling": alpha, "variant": variant} if alpha else {}
        return prepare(
            root,
            lambda: watched(console, pairs.pairs(), f"preparing {pairs.name}"),
            pairs.files(),
            encode=(_encoder(both[0], alpha), _encoder(both[1], alpha)),
            identity={"files": {"source": pairs.source, "target": pairs.target}, "tokenizers": marks, **drawn},
            max_length=config.data.max_length,
        )

    variants = range(VARIANTS if alpha else 1)
    return [
        repeatably(variant + 1, functools.partial(prepared, pairs, variant)) if alpha else prepared(pairs, variant)
        for variant in variants
        for pairs in training_corpora(config)
    ]


def _encoder(tokenizer: SentencePiece | Vocabulary, alpha: float) -> Encode:
    return tokenizer.sampler(alpha) if alpha and isinstance(tokenizer, SentencePiece) else tokenizer.encode


def plan(config: Run, prepared: list[Store]) -> BatchPlan:
    """Which pairs go together in each epoch; of several variants, each is read in part."""
    weights = [files.weight for files in config.data.corpora.values()]
    variants = len(prepared) // len(weights)
    shares = [weight / variants for weight in weights] * variants
    tokens = int(config.training.tokens_per_batch)
    return BatchPlan(*prepared, tokens_per_batch=tokens, seed=config.seed, weights=shares)


Network = Transformer | Seq2Seq


def model(config: Run, both: Tokenizers) -> Network:
    """The network, initialised by the run's seed."""
    torch.manual_seed(config.seed)
    tied = config.model.tied or ("three" if config.tokenizer.shared else "two")
    common: dict[str, Any] = {
        "source": both[0].size,
        "target_vocabulary": both[1].size,
        "share_embeddings": tied == "three",
        "share_output": tied != "none",
    }
    if isinstance(config.model, RnnModel):
        return _rnn(config.model, common)
    return _transformer(config.model, common, 4 * config.data.max_length)


def _transformer(section: TransformerModel, common: dict[str, Any], max_length: int) -> Transformer:
    sizes = BlockSizes(
        section.width,
        section.num_heads,
        section.hidden_width,
        activation=section.activation,
        norm=section.norm,
        score=section.score,
        normalizer=section.normalizer,
        positions=section.positions,
        window=section.window,
        dropouts=Dropouts(section.dropout, section.attention_dropout, section.activation_dropout),
    )
    layers = section.num_layers
    return Transformer(
        sizes=sizes, num_encoder_layers=layers, num_decoder_layers=layers, max_length=max_length, **common
    )


def _rnn(section: RnnModel, common: dict[str, Any]) -> Seq2Seq:
    return Seq2Seq(
        sizes=RecurrentSizes(
            section.width, section.embedding_width, section.num_layers, cell=section.cell, dropout=section.dropout
        ),
        attention=section.attention,
        look=Look(section.score, section.normalizer, section.scope, section.radius),
        direction=section.direction,
        feeds_input=section.feeds_input,
        **common,
    )


def training(config: Run) -> Options:
    """How to train, and where."""
    elsewhere = {"tokens_per_batch", "metric", "bleu_tokenize", "tensorboard", "precision"}
    given: dict[str, Any] = config.training.model_dump(exclude=elsewhere)
    place, precision = device(config), config.training.precision
    if isinstance(config.model, RnnModel):
        precision = "float32"  # under autocast cuDNN's RNNs run in float16, whatever is asked for
    return Options(seed=config.seed, device=place, dtype=compute_dtype(precision, place), **given)


def device(config: Run) -> torch.device:
    """Where to train."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise Mistake("device: 'cuda' given, but torch sees no CUDA device here; allowed: auto, cpu")
    return _nearest_device(config)


def _nearest_device(config: Run) -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() and config.device != "cpu" else "cpu")


def translator(config: Run, network: nn.Module, both: Tokenizers) -> Translator:
    """A network as it is used."""
    options, longest = config.decoding.options(), config.decoding.max_source_length
    if getattr(config.model, "positions", None) == "learned":  # there is none after the last
        options = replace(options, max_length=min(options.max_length, 4 * config.data.max_length))
        longest = min(longest, 4 * config.data.max_length - 1)
    if config.model.score == "location":
        options, longest = replace(options, max_length=min(options.max_length, LOCATIONS)), LOCATIONS - 1
    return Translator(network.eval(), *both, options, config.decoding.tokens_per_batch, longest)


def load_run(folder: Path | str, *others: Path | str) -> Translator:
    """A trained run, ready to predict; several are an ensemble, decoded as the first one says."""
    first = _load_one(Path(folder))
    runs = [first, *(_load_one(Path(other)) for other in others)]
    for run, name in zip(runs[1:], others, strict=True):
        for side in ("source", "target"):
            if _fingerprint(getattr(run, side)) != _fingerprint(getattr(first, side)):
                raise Mistake(f"{name}: its {side} tokenizer differs from that of {folder}; an ensemble shares both")
    return first if not others else replace(first, model=Ensemble([run.model for run in runs]))


def _load_one(folder: Path) -> Translator:
    if not (folder / "config.yaml").exists():
        raise Mistake(f"{folder}: not a run folder (it has no config.yaml)")
    weights = folder / "model.safetensors"
    if not weights.exists():
        raise Mistake(f"{folder}: no model yet; its training has not reached its first validation")
    config = config_file.load(folder / "config.yaml")
    both = tokenizers(config, folder)
    network = model(config, both)
    checkpoints.load_weights(weights, network)
    return translator(config, network.to(_nearest_device(config)), both)


def _fingerprint(tokenizer: SentencePiece | Vocabulary) -> str:
    content = tokenizer.model if isinstance(tokenizer, SentencePiece) else "\n".join(tokenizer.symbols).encode()
    return hashlib.blake2b(content, digest_size=16).hexdigest()
