"""The tagged sentences of a run, its word vectors, and what is said of them."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from typing import NamedTuple

import torch
from rich.console import Console

from saccade.config.base import HeldOutPart
from saccade.data.held_out import Amount, hold_out
from saccade.data.tags.columns import TagColumns
from saccade.data.tags.lexicon import Lexicon, normalize_word
from saccade.data.tags.spans import find_spans
from saccade.data.tags.tagged import (
    RepairedSentences,
    TaggedFile,
    detect_file_scheme,
    read_pair,
    read_tagged,
    repair_files,
)
from saccade.data.text.corpus import find_files
from saccade.data.text.tokenizer import SPECIAL
from saccade.data.text.vectors import Vectors, read_vectors
from saccade.errors import UserError
from saccade.models.tagger import TagNetwork
from saccade.tasks import console as watch
from saccade.tasks.tag.config import PairedFiles, TagConfig


class TagSets(NamedTuple):
    """The sentences that were read, by the name of their field; how the files and how the model spell spans."""

    repaired: dict[str, RepairedSentences]
    scheme: str | None
    spelling: str | None


def read_sets(config: TagConfig) -> TagSets:
    """Read every file of the run, and repair tags that break their scheme."""
    files, given = read_set_files(config), config.data.scheme
    scheme = detect_file_scheme(files["data.train"]) if given == "auto" else None if given == "none" else given
    spelling = None if scheme is None else config.model.spelling
    sets = TagSets(
        {name: repair_files(part, scheme, config.model.spelling) for name, part in files.items()}, scheme, spelling
    )
    train = sets.repaired["data.train"].sentences
    if config.model.reads_documents and len({one.document for one in train}) == len(train):
        raise UserError(
            "model.reads_documents: true given, but no document of data.train has two sentences (-DOCSTART-)"
        )
    if scheme is None and config.training.metric == "f1":
        raise UserError(
            "training.metric: 'f1' given, but the tags of data.train spell no spans; allowed: accuracy, loss"
        )
    return sets


def read_set_files(config: TagConfig) -> dict[str, list[TaggedFile]]:
    """Read the files of every set, as they are; some sentences of the training files may be held out."""
    found = {name: _read_set(config, name, given) for name, given in config.data.sets.items()}
    if isinstance(config.data.valid, HeldOutPart):
        found["data.train"], found["data.valid"] = _hold_out(found["data.train"], config.data.valid.amount)
    return found


def _read_set(config: TagConfig, field: str, given: str | PairedFiles) -> list[TaggedFile]:
    if isinstance(given, PairedFiles):
        return read_pair(field, given.words, given.tags)
    return read_tagged(field, given, columns_of(config))


def _hold_out(files: list[TaggedFile], amount: Amount) -> tuple[list[TaggedFile], list[TaggedFile]]:
    """Return what is left of files, and what is held out of them; a document stays together."""
    numbered = [(number, one) for number, file in enumerate(files) for one in file.sentences]
    documents = [list(group) for _, group in itertools.groupby(numbered, key=lambda pair: pair[1].document)]
    held = hold_out(documents, lambda pair: " ".join(pair[1].words), amount)
    parts = [[file._replace(sentences=[]) for file in files] for _ in (False, True)]
    for document, is_held in zip(documents, held, strict=True):
        for number, sentence in document:
            parts[is_held][number].sentences.append(sentence)
    return parts[0], parts[1]


def say_sizes(config: TagConfig, sets: TagSets, console: Console) -> None:
    """Say how much there is, and what had to be repaired."""
    if isinstance(held := config.data.valid, HeldOutPart):
        num_held, num_left = (len(sets.repaired[name].sentences) for name in ("data.valid", "data.train"))
        said = f"{num_held:,} of the {num_held + num_left:,} sentences of data.train, chosen by a hash of the words"
        watch.say(console, f"data.valid: {said} ({held.amount})")
    for name, part in sets.repaired.items():
        tokens = sum(len(one.words) for one in part.sentences)
        line = f"{name}: {len(part.sentences):,} sentences"
        if config.model.reads_documents:
            line += f" in {len({one.document for one in part.sentences}):,} documents"
        line += f", {tokens:,} tokens"
        if sets.scheme is not None:
            kinds = Counter(span.kind for one in part.sentences for span in find_spans(one.tags))
            counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
            line += f", {kinds.total():,} spans ({counts}), {sets.scheme}"
        watch.say(console, line)
        if part.num_repaired:
            what = (
                f"tags that break the scheme were repaired: {part.num_repaired:,}, the first at {part.first_repaired}"
            )
            watch.say(console, f"{name}: {what}", style="yellow")


def load_vectors(config: TagConfig, console: Console) -> Vectors:
    """Load the word vectors that the config names; they must be as wide as the model's."""
    path, *more = find_files("model.vectors", str(config.model.vectors))
    if more:
        raise UserError(f"model.vectors: {config.model.vectors} stands for {1 + len(more)} files; there must be one")
    with watch.busy(console, f"reading {path}"):
        found = read_vectors(path, most=config.model.max_vectors)
    width = found.table_VD.shape[1]
    if width != config.model.word_width:
        raise UserError(
            f"model.word_width: {config.model.word_width} given; the vectors in {path} have {width} numbers"
        )
    repeated = f" ({found.num_repeated:,} more are of words that came before)" if found.num_repeated else ""
    watch.say(console, f"{path}: {len(found.words):,} vectors of {width} numbers{repeated}")
    return found


@torch.no_grad()
def put_vectors(vectors: Vectors, network: TagNetwork, lexicon: Lexicon) -> None:
    """Copy vectors into their words' rows; where several fold into one word, its own spelling's, or the first."""
    rows = {symbol: row for row, symbol in enumerate(lexicon.words.symbols) if row >= len(SPECIAL)}
    chosen: dict[int, int] = {}
    for at, word in enumerate(vectors.words):
        row = rows.get(normalize_word(word))
        if row is not None and (row not in chosen or normalize_word(word) == word):
            chosen[row] = at
    table_VD = torch.from_numpy(vectors.table_VD)
    network.features.word.weight[list(chosen)] = table_VD[list(chosen.values())]


def hash_files(config: TagConfig) -> list[str]:
    """Hash the files that the run learns from."""
    train = config.data.train
    files = {"data.train": train} if isinstance(train, str) else {f"data.train.{side}": file for side, file in train}
    fields = {**files, "model.vectors": config.model.vectors}
    paths = [path for field, pattern in fields.items() if pattern is not None for path in find_files(field, pattern)]
    return [hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest() for path in paths]


def columns_of(config: TagConfig) -> TagColumns:
    """Return which columns hold words and tags."""
    data = config.data
    return TagColumns(data.word_column, data.tag_column, tuple(data.feature_columns))
