"""The pictures and captions of a run: shapes that the package paints, pictures, clips, or feature maps."""

from __future__ import annotations

from typing import Literal

from saccade.data.pictures.captions import CaptionReader, CaptionSet, make_shape_captions
from saccade.tasks.caption.config import ClipData, ClipFiles, Data, FeatureFiles, PictureData, Shapes
from saccade.tasks.caption.predictor import HELD_OUT

SHAPE_SEEDS = {"train": 0, "valid": 1, "test": HELD_OUT}


def load_set(data: Data, name: Literal["train", "valid", "test"]) -> CaptionSet:
    """Load the training, validation or test set."""
    if isinstance(data, Shapes):
        return make_shape_captions(getattr(data, name), side=data.side, seed=SHAPE_SEEDS[name])
    files = getattr(data, name)
    if isinstance(files, ClipFiles):
        return make_reader(data).read(files.captions, files.clips, files.spans, field=f"data.{name}")
    source = files.features if isinstance(files, FeatureFiles) else files.pictures
    return make_reader(data).read(files.captions, source, field=f"data.{name}")


def make_reader(data: Data) -> CaptionReader:
    """Make what reads the files of a run, and its inputs."""
    if isinstance(data, Shapes):
        return CaptionReader(side=data.side)
    if isinstance(data, PictureData):
        return CaptionReader(side=data.side, lower_case=data.lower_case, punctuation=data.punctuation)
    if isinstance(data, ClipData):
        return CaptionReader(data.side, data.frames, lower_case=data.lower_case, punctuation=data.punctuation)
    return CaptionReader(axes=data.axes, scale=data.scale, lower_case=data.lower_case, punctuation=data.punctuation)
