"""The tokenizers of a run: learned from its training text, or ready ones; stored in its folder, and found there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from saccade.config.base import SideName, SideTokenizer, TokenizerSection
from saccade.data.text.corpus import Pair
from saccade.data.text.grow import GrownTokenizer
from saccade.data.text.tokenizer import (
    MOST_CHARACTERS,
    AnyTokenizer,
    ListedPieces,
    TextSample,
    load_listed,
    load_tokenizer,
    read_ready_tokenizer,
    sample_texts,
    tokenizer_file_name,
    train_tokenizer,
)
from saccade.data.text.tokenizer_choice import REASONS, choose_kinds, choose_size
from saccade.errors import UserError
from saccade.tasks import console as watch
from saccade.tasks.translate.config import TranslateConfig
from saccade.tasks.translate.corpora import QUIET, Tokenizers, find_annotator, first_pairs, training_corpora
from saccade.tasks.vocabulary import grow_tokenizer, store_grown

SIDES: tuple[SideName, ...] = ("source", "target")


def settle_kinds(config: TranslateConfig, console: Console) -> TranslateConfig:
    """Return the config with the kind of each side's tokenizer, told by the first pairs of each corpus."""
    section = config.tokenizer
    both = [section.of_side(side) for side in SIDES]
    if section.shared != "auto" and all(side.kind != "auto" for side in both):
        return config
    kinds = _choose_kinds(config, both)
    shared = section.shared
    if shared == "auto":
        shared = (
            config.model.tied == "three"
            or config.model.copies
            or (kinds[0] == kinds[1] and not section.describes_sides)
        )
    is_one = shared or kinds[0] == kinds[1]
    if any(side.kind == "auto" for side in both):
        source, target = (f"{kind} ({REASONS.get(kind, 'as given')})" for kind in kinds)
        watch.say(console, f"tokenizer: {source if is_one else f'{source} for sources, {target} for targets'}")
    first = int(both[1].model is not None and both[1].model == section.model)  # whose model is said for both
    other = {} if is_one else _of_sides(section, "kind", {SIDES[1 - first]: kinds[1 - first]})
    return _with_tokenizer(config, {"shared": shared, "kind": kinds[first], **other})


def _choose_kinds(config: TranslateConfig, both: list[SideTokenizer]) -> list[str]:
    """Choose the kinds that are not given."""
    chosen = ("unigram", "unigram")  # for targets of sounds, and for pieces that are drawn at random
    if config.features is None and not config.tokenizer.sampling:
        pairs = [pair for pair in first_pairs(config) if all(pair)]
        chosen = choose_kinds([pair.source for pair in pairs], [pair.target for pair in pairs])
    return [_kind_of(side, kind) if side.kind == "auto" else side.kind for side, kind in zip(both, chosen, strict=True)]


def _kind_of(side: SideTokenizer, chosen: str) -> str:
    """Return the kind of a ready tokenizer; of one that is learned, the chosen one."""
    if side.model is None:
        return chosen
    return load_listed(Path(side.model)).kind if side.model.endswith(".json") else "unigram"


def settle_sizes(config: TranslateConfig, both: Tokenizers) -> TranslateConfig:
    """Return the config with the sizes of the vocabularies that were left to the text."""
    section = config.tokenizer
    sizes = {side: one.size for side, one in zip(SIDES, both, strict=True) if _is_open(section.of_side(side))}
    if section.shared or (len(sizes) == 2 and both[0].size == both[1].size):
        return _with_tokenizer(config, {"vocabulary_size": sizes["source"]} if sizes else {})
    return _with_tokenizer(config, _of_sides(section, "vocabulary_size", sizes))


def _of_sides(section: TokenizerSection, field: str, values: Mapping[SideName, object]) -> dict[str, Any]:
    """Return the sections of sides with a value for a field."""
    return {side: getattr(section, side).model_copy(update={field: value}) for side, value in values.items()}


def _is_open(side: SideTokenizer) -> bool:
    return side.vocabulary_size == "auto" and side.model is None and side.kind != ListedPieces.kind


def _with_tokenizer(config: TranslateConfig, update: dict[str, Any]) -> TranslateConfig:
    return config.model_copy(update={"tokenizer": config.tokenizer.model_copy(update=update)})


def load_tokenizers(config: TranslateConfig, folder: Path) -> Tokenizers:
    """Load the tokenizers of a run; where sources are sounds, the target's alone, twice."""
    loaded = [load_tokenizer(path) for path in _paths(config, folder)]
    return loaded[0], loaded[-1]


def prepare_tokenizers(config: TranslateConfig, folder: Path, console: Console = QUIET) -> Tokenizers:
    """Return the run's tokenizers if it has them; else learn them from the training text, or read them; store them.

    A run that begins with another one has the tokenizers of that, or these with new tokens.
    """
    paths = _paths(config, folder)
    if all(path.exists() for path in paths):
        return load_tokenizers(config, folder)
    if config.base is None:
        both = _make_both(config, console)
    elif config.tokenizer.grow:
        both = _grow_both(config, folder, console)
    else:
        both = load_tokenizers(config, Path(config.base))
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


def _grow_both(config: TranslateConfig, folder: Path, console: Console) -> Tokenizers:
    """Return the tokenizers of the run it begins with, grown; store what their new tokens are made of."""
    assert config.base is not None
    old = load_tokenizers(config, Path(config.base))
    if config.tokenizer.shared or config.features is not None:
        sides, what = ((0, 1), "training text") if config.tokenizer.shared else ((1,), "targets")
        grown = [_grow(config, old[1], console, sides, what)] * 2
    else:
        grown = [_grow(config, old[side], console, (side,), f"{SIDES[side]}s") for side in (0, 1)]
    store_grown(folder, grown)
    return grown[0].tokenizer, grown[1].tokenizer


def _grow(
    config: TranslateConfig, old: AnyTokenizer, console: Console, sides: tuple[int, ...], what: str
) -> GrownTokenizer:
    """Grow a tokenizer by what the texts of these sides have often."""
    texts = _sample(config, console, sides, what, new=True).texts
    return grow_tokenizer(old, texts, config.tokenizer.grow, what, console)


def _sample(
    config: TranslateConfig, console: Console, sides: tuple[int, ...], what: str, *, new: bool = False
) -> TextSample:
    """Return texts of these sides to learn from, perhaps `new` ones alone: all, or some by chance."""
    corpora = training_corpora(config)[: len(config.data.corpora) if new else None]
    pairs: Iterator[Pair] = (pair for corpus in corpora for pair in corpus.pairs())
    if config.data.terms:  # the marks, and target words in sources, are to be in the vocabulary
        pairs = map(find_annotator(config), pairs)
    texts = (pair[side] for pair in pairs for side in sides)
    chosen = sample_texts(
        watch.show_progress(console, texts, f"reading the {what}"), most=MOST_CHARACTERS, seed=config.seed
    )
    if len(chosen.texts) < chosen.num_seen:
        console.print(f"The tokenizer learns from {len(chosen.texts):,} of {chosen.num_seen:,} texts, by chance.")
    return chosen


def _make(config: TranslateConfig, console: Console, sides: tuple[int, ...], what: str) -> AnyTokenizer:
    """Learn the tokenizer of these sides, or read a ready one."""
    side = SIDES[sides[-1]]
    section, field = config.tokenizer.of_side(side), config.tokenizer.field_of(side)
    if section.model is not None:
        ready = read_ready_tokenizer(section.kind, Path(section.model).expanduser(), field)
        watch.say(console, f"{field}.model: {section.model} has {ready.size:,} tokens")
        return ready
    if section.kind == ListedPieces.kind:
        raise UserError(
            f"{field}.kind: 'listed' given; such a tokenizer is not learned: give {field}.model, the file of an import"
        )
    chosen = _sample(config, console, sides, what)
    wanted = section.vocabulary_size
    size = choose_size(section.kind, chosen.texts, chosen.num_seen) if wanted == "auto" else wanted
    with watch.busy(console, f"learning a vocabulary of {size:,} ({section.kind}) from the {what}"):
        found = train_tokenizer(section.kind, chosen.texts, size, seed=config.seed, field=field)
    lowered = f" ({field}.vocabulary_size: {size:,} given; the text has no more)" if found.size < size == wanted else ""
    watch.say(console, f"vocabulary of the {what}: {found.size:,} tokens{lowered}")
    return found
