"""What captions tell of, as a run names it: shapes that the package paints, pictures, or feature maps."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saccade.config.base import Positive, Section
from saccade.data.pictures.captions import CaptionReader, CaptionSet, make_shape_captions
from saccade.layers.image_encoder import ImageEncoder
from saccade.tasks.caption.predictor import HELD_OUT

SHAPE_SEEDS = {"train": 0, "valid": 1, "test": HELD_OUT}


class Shapes(Section):
    """Pictures of two shapes with a sentence each, which the package makes; see docs/caption.md."""

    kind: Literal["shapes"] = "shapes"
    side: Annotated[int, Field(ge=24, multiple_of=ImageEncoder.CELL)] = Field(default=48, description="In pixels.")
    train: Positive = Field(default=20_000, description="How many pictures to learn from.")
    valid: Positive = 500
    test: Positive = 2_000


class PictureFiles(Section):
    """Captions, and the folder where the pictures that they name lie."""

    captions: str = Field(description="A TSV file (plain or .gz): image TAB number TAB caption.")
    pictures: str


class FeatureFiles(Section):
    """Captions, and the feature maps of what they tell of, in the order of first appearance or by name."""

    captions: str = Field(description="A TSV file (plain or .gz): image TAB number TAB caption.")
    features: str = Field(description=".npz (features, and perhaps names and scale), .npy or .npy.gz.")
    pictures: str | None = Field(default=None, description="A folder with the pictures themselves, to draw on.")


class CaptionData(Section):
    """How captions are read."""

    lower_case: bool = True
    punctuation: bool = Field(default=True, description="false leaves out words without a letter or a digit.")


class PictureData(CaptionData):
    """Pictures from files."""

    kind: Literal["pictures"]
    train: PictureFiles
    valid: PictureFiles
    test: PictureFiles | None = None
    side: Annotated[int, Field(ge=8, multiple_of=ImageEncoder.CELL)] = Field(
        default=64, description="Every picture is made so many pixels high and wide."
    )


class FeatureData(CaptionData):
    """Feature maps that another network made."""

    kind: Literal["features"]
    train: FeatureFiles
    valid: FeatureFiles
    test: FeatureFiles | None = None
    axes: Literal["NYXC", "NCYX", "NSC", "NCS", "CNS"] = Field(
        default="NYXC",
        description="What the array's axes are: N pictures, Y rows, X columns, S places of a square, C channels.",
    )
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        default=1.0, description="A feature is so many times what is stored (whole numbers have a step)."
    )


Data = Shapes | PictureData | FeatureData


def told(data: Data, name: Literal["train", "valid", "test"]) -> CaptionSet:
    """One of the sets."""
    if isinstance(data, Shapes):
        return make_shape_captions(getattr(data, name), side=data.side, seed=SHAPE_SEEDS[name])
    files = getattr(data, name)
    source = files.features if isinstance(files, FeatureFiles) else files.pictures
    return reader(data).read(files.captions, source, field=f"data.{name}")


def reader(data: Data) -> CaptionReader:
    """How files are read."""
    if isinstance(data, Shapes):
        return CaptionReader(side=data.side)
    if isinstance(data, PictureData):
        return CaptionReader(side=data.side, lower_case=data.lower_case, punctuation=data.punctuation)
    return CaptionReader(axes=data.axes, scale=data.scale, lower_case=data.lower_case, punctuation=data.punctuation)
