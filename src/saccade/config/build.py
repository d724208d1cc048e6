"""From a config to objects. Layers never see the config: they get plain arguments."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from saccade.config import load as config_file
from saccade.config.schema import CorpusFiles, Run
from saccade.data.corpus import Corpus
from saccade.data.mistakes import Mistake
from saccade.data.store import Store, prepare
from saccade.data.tokenizer import (
    SentencePiece,
    Vocabulary,
    file_name,
    load_tokenizer,
    train_tokenizer,
)
from saccade.decoding import Ensemble
from saccade.models.transformer import BlockSizes, Dropouts, Transformer
from saccade.tasks.translate import Translator
from saccade.training import checkpoints
from saccade.training.loop import Options

Tokenizers = tuple[SentencePiece | Vocabulary, SentencePiece | Vocabulary]


def corpus(files: CorpusFiles) -> Corpus:
    """Where pairs come from."""
    return Corpus(files.source, files.target)


def tokenizers(config: Run, folder: Path) -> Tokenizers:
    """Both sides' tokenizers: from the run's folder, or learned from the training text and stored there."""
    stored = [sorted(folder.glob(f"tokenizer.{side}.*")) for side in ("source", "target")]
    if all(stored):
        return load_tokenizer(stored[0][0]), load_tokenizer(stored[1][0])
    section, pairs = config.tokenizer, corpus(config.data.train)

    def learn(sides: tuple[int, ...]) -> SentencePiece | Vocabulary:
        texts = (pair[side] for pair in pairs.pairs() for side in sides)
        return train_tokenizer(section.kind, texts, section.vocabulary_size, seed=config.seed)

    both = (shared, shared) if section.shared and (shared := learn((0, 1))) else (learn((0,)), learn((1,)))
    for side, tokenizer in zip(("source", "target"), both, strict=True):
        tokenizer.save(folder / file_name(tokenizer, f"tokenizer.{side}"))
    return both


def store(config: Run, both: Tokenizers, root: Path) -> Store:
    """The training pairs as ids, made once and found again."""
    pairs = corpus(config.data.train)
    identity = {"files": config.data.train.model_dump(), "tokenizers": [_fingerprint(tokenizer) for tokenizer in both]}
    encode = (both[0].encode, both[1].encode)
    return prepare(
        root, pairs.pairs, pairs.files(), encode=encode, identity=identity, max_length=config.data.max_length
    )


def model(config: Run, both: Tokenizers) -> Transformer:
    """The network, initialised by the run's seed."""
    section = config.model
    torch.manual_seed(config.seed)
    return Transformer(
        source_vocabulary=both[0].size,
        target_vocabulary=both[1].size,
        sizes=BlockSizes(
            section.width,
            section.num_heads,
            section.hidden_width,
            activation=section.activation,
            norm=section.norm,
            score=section.score,
            dropouts=Dropouts(section.dropout, section.attention_dropout, section.activation_dropout),
        ),
        num_encoder_layers=section.num_layers,
        num_decoder_layers=section.num_layers,
        share_embeddings=config.tokenizer.shared,
        positions=section.positions,
        max_length=4 * config.data.max_length,
    )


def training(config: Run) -> Options:
    """How to train."""
    given: dict[str, Any] = config.training.model_dump(exclude={"tokens_per_batch"})
    return Options(seed=config.seed, **given)


def translator(config: Run, network: nn.Module, both: Tokenizers) -> Translator:
    """A network as it is used."""
    options, longest = config.decoding.options(), config.decoding.max_source_length
    if getattr(config.model, "positions", None) == "learned":  # there is none after the last
        options = replace(options, max_length=min(options.max_length, 4 * config.data.max_length))
        longest = min(longest, 4 * config.data.max_length - 1)
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
    return translator(config, network, both)


def _fingerprint(tokenizer: SentencePiece | Vocabulary) -> str:
    content = tokenizer.model if isinstance(tokenizer, SentencePiece) else "\n".join(tokenizer.symbols).encode()
    return hashlib.blake2b(content, digest_size=16).hexdigest()
