"""The tokenizers of a run: learned from its training text, or ready ones; stored in its folder, and found there."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from saccade.config.base import SideName
from saccade.data.text.tokenizer import (
    MOST_CHARACTERS,
    SentencePiece,
    Vocabulary,
    load_tokenizer,
    read_ready_tokenizer,
    sample_texts,
    tokenizer_file_name,
    train_tokenizer,
)
from saccade.tasks import console as watch
from saccade.tasks.translate.config import TranslateConfig
from saccade.tasks.translate.corpora import QUIET, Tokenizers, training_corpora

SIDES: tuple[SideName, ...] = ("source", "target")


def load_tokenizers(config: TranslateConfig, folder: Path) -> Tokenizers:
    """Load the tokenizers of a run; where sources are sounds, the target's alone, twice."""
    loaded = [load_tokenizer(path) for path in _paths(config, folder)]
    return loaded[0], loaded[-1]


def prepare_tokenizers(config: TranslateConfig, folder: Path, console: Console = QUIET) -> Tokenizers:
    """Return the run's tokenizers if it has them; else learn them from the training text, or read them; store them."""
    paths = _paths(config, folder)
    if all(path.exists() for path in paths):
        return load_tokenizers(config, folder)
    both = _make_both(config, console)
    for path, tokenizer in zip(reversed(paths), reversed(both), strict=False):
        tokenizer.save(path)
    return both


def _paths(config: TranslateConfig, folder: Path) -> list[Path]:
    sides = SIDES if config.features is None else SIDES[1:]
    return [folder / tokenizer_file_name(config.tokenizer.of_side(side).kind, f"tokenizer.{side}") for side in sides]


def _make_both(config: TranslateConfig, console: Console) -> Tokenizers:
    if config.features is not None:
        return (_make(config, console, (1,), "targets"),) * 2
    if config.tokenizer.shared:
        return (_make(config, console, (0, 1), "training text"),) * 2
    return _make(config, console, (0,), "sources"), _make(config, console, (1,), "targets")


def _make(config: TranslateConfig, console: Console, sides: tuple[int, ...], what: str) -> SentencePiece | Vocabulary:
    """Learn the tokenizer of these sides, or read a ready one."""
    side = SIDES[sides[-1]]
    section, field = config.tokenizer.of_side(side), config.tokenizer.field_of(side)
    if section.model is not None:
        ready = read_ready_tokenizer(section.kind, Path(section.model).expanduser(), field)
        watch.say(console, f"{field}.model: {section.model} has {ready.size:,} tokens")
        return ready
    texts = (pair[side] for pairs in training_corpora(config) for pair in pairs.pairs() for side in sides)
    chosen = sample_texts(
        watch.show_progress(console, texts, f"reading the {what}"), most=MOST_CHARACTERS, seed=config.seed
    )
    if len(chosen.texts) < chosen.num_seen:
        console.print(f"The tokenizer learns from {len(chosen.texts):,} of {chosen.num_seen:,} texts, by chance.")
    size = section.vocabulary_size
    with watch.busy(console, f"learning a vocabulary of {size:,} ({section.kind}) from the {what}"):
        return train_tokenizer(section.kind, chosen.texts, size, seed=config.seed, field=field)
