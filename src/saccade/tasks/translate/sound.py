"""Sound as a source (`input: features`): its recordings and stores."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from saccade.data.sound.mel import Mel
from saccade.data.sound.recordings import Recordings, find_named_files, prepare_recordings
from saccade.data.store import Store, encode_sides, prepare_store
from saccade.data.text.corpus import Corpus, Pair
from saccade.data.text.tokenizer import AnyTokenizer
from saccade.tasks.console import busy, show_progress
from saccade.tasks.translate import corpora
from saccade.tasks.translate.config import TranslateConfig


def recordings(corpus: Corpus, mel: Mel, root: Path, console: Console) -> Recordings:
    """Make the frames of every file that a list names; names are looked up from where the list lies."""
    files = files_of(corpus, show_progress(console, corpus.pairs(), f"looking for the files of {corpus.name}"))
    with busy(console, f"making frames of {len(files):,} sound files"):
        return prepare_recordings(root, files, mel)


def files_of(corpus: Corpus, pairs: Iterable[Pair]) -> dict[str, Path]:
    """Return every file that a list names, by its name there; each is there."""
    folder = corpus.sides()[0][0].parent
    return find_named_files((pair.source for pair in pairs), folder, lambda row: corpus.place(row, 0))


def stores(
    config: TranslateConfig, mel: Mel, target: AnyTokenizer, root: Path, console: Console
) -> tuple[list[Store], list[Recordings]]:
    """Store the pairs of each training corpus, sources as references to recordings; return these, too."""
    texts = corpora.training_corpora(config)
    heard = [recordings(text, mel, root, console) for text in texts]
    found = [
        prepare_store(
            root,
            text.pairs,
            text.files(),
            encode=encode_sides(own.encode, target.encode),
            identity={**corpora.corpus_identity(text), "recordings": own.key, "tokenizer": corpora.fingerprint(target)},
            limits=config.data.limits,
            measure=own.length,
        )
        for text, own in zip(texts, heard, strict=True)
    ]
    return found, heard
