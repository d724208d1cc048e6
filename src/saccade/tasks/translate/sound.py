"""Sound as a source (`input: features`): its section, and from it to recordings, stores and the layers that listen."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator
from rich.console import Console

from saccade.config.base import Positive, Section
from saccade.data.sound.mel import Mel
from saccade.data.sound.recordings import Recordings, find_named_files, prepare_recordings
from saccade.data.store import Store, prepare_store
from saccade.data.text.corpus import Corpus, Pair
from saccade.data.text.tokenizer import SentencePiece, Vocabulary
from saccade.layers.augmentation import Augmentation, MaskLimits
from saccade.layers.subsampling import SUBSAMPLINGS, FrameEncoder
from saccade.tasks.console import busy, watched
from saccade.tasks.translate import corpora
from saccade.tasks.translate.corpora import Texts

Count = Annotated[int, Field(ge=0)]


class SoundFeatures(Section):
    """How sound becomes what a model reads: log-mel frames, and vectors of four frames each."""

    rate: Annotated[int, Field(ge=4000, le=48_000)] = Field(
        default=16_000, description="Samples a second; files with another rate are resampled."
    )
    num_mels: Annotated[int, Field(ge=8, le=128)] = Field(default=80, description="Numbers in a frame.")
    window: Annotated[float, Field(ge=0.01, le=0.1)] = Field(default=0.025, description="Seconds that a frame hears.")
    hop: Annotated[float, Field(ge=0.002, le=0.1)] = Field(default=0.01, description="Seconds to the next frame.")
    subsampling: Literal["convolutions", "pyramid"] = Field(
        default="convolutions",
        description="How four frames become one vector: two strided convolutions, or two bidirectional LSTMs whose "
        "steps are joined in pairs (Listen, Attend and Spell; Chan 2016).",
    )
    time_masks: Count = Field(default=2, description="Stretches of time hidden in training (SpecAugment, Park 2019).")
    time_mask_frames: Positive = Field(default=10, description="The longest of them.")
    frequency_masks: Count = Field(default=2, description="Bands of mels hidden in training.")
    frequency_mask_mels: Positive = Field(default=8, description="The widest of them.")
    tempo: Annotated[float, Field(ge=0, le=0.5)] = Field(
        default=0.0, description="In training every batch is slower or faster by up to this share."
    )

    @model_validator(mode="after")
    def _refuse_what_has_no_effect(self) -> SoundFeatures:
        for count, size in (("time_masks", "time_mask_frames"), ("frequency_masks", "frequency_mask_mels")):
            value, default = getattr(self, size), type(self).model_fields[size].default
            if value != default and not getattr(self, count):
                raise ValueError(f"{size}: {value} given; it has no effect with {count}: 0")
        return self

    @property
    def mel(self) -> Mel:
        """From samples to frames."""
        return Mel(self.rate, self.num_mels, self.window, self.hop)

    def frame_encoder(self, width: int, dropout: float) -> FrameEncoder:
        """From frames to vectors."""
        time = MaskLimits(self.time_masks, self.time_mask_frames)
        frequency = MaskLimits(self.frequency_masks, self.frequency_mask_mels)
        subsampling = SUBSAMPLINGS[self.subsampling](self.num_mels, width, dropout=dropout)
        return FrameEncoder(subsampling, Augmentation(time=time, frequency=frequency, tempo=self.tempo))


def recordings(corpus: Corpus, mel: Mel, root: Path, console: Console) -> Recordings:
    """The frames of every file that a list names; names are looked up from where the list lies."""
    files = files_of(corpus, watched(console, corpus.pairs(), f"looking for the files of {corpus.name}"))
    with busy(console, f"making frames of {len(files):,} WAV files"):
        return prepare_recordings(root, files, mel)


def files_of(corpus: Corpus, pairs: Iterable[Pair]) -> dict[str, Path]:
    """Every file that a list names, by its name there; each is there."""
    folder = corpus.sides()[0][0].parent
    return find_named_files((pair.source for pair in pairs), folder, lambda row: corpus.place(row, 0))


def stores(
    config: Texts, mel: Mel, target: SentencePiece | Vocabulary, root: Path, console: Console
) -> tuple[list[Store], list[Recordings]]:
    """The pairs of each training corpus, sources as references to recordings, and these."""
    texts = corpora.training_corpora(config.data)
    heard = [recordings(text, mel, root, console) for text in texts]
    found = [
        prepare_store(
            root,
            text.pairs,
            text.files(),
            encode=(own.encode, target.encode),
            identity={"recordings": own.key, "tokenizer": corpora.fingerprint(target)},
            max_length=config.data.max_length,
            measure=own.length,
        )
        for text, own in zip(texts, heard, strict=True)
    ]
    return found, heard
