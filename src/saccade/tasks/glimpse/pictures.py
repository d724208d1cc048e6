"""The pictures of a glimpse run, with the classes of its training set."""

from __future__ import annotations

import numpy as np

from saccade.data.pictures.images import Images, read_images
from saccade.errors import UserError
from saccade.tasks.glimpse.config import (
    GlimpseConfig,
    GlimpseData,
    GlimpseFiles,
)

FIXED_SEED = 1406  # of the canvases that are measured on: the same for every run


def read_sets(config: GlimpseConfig) -> dict[str, Images]:
    """Read every set of the run, with the classes of the training set."""
    data = config.data
    files = {"train": data.train, "valid": data.valid, "test": data.test}
    sets = {name: _read(f"data.{name}", given, data) for name, given in files.items() if given is not None}
    train = sets["train"]
    sets |= {name: number_classes(images, train.names, f"data.{name}") for name, images in sets.items()}
    if data.hold_out is not None:
        if data.hold_out >= len(train):
            raise UserError(f"data.hold_out: {data.hold_out} given; there are only {len(train):,} training pictures")
        rows = np.random.default_rng(FIXED_SEED).permutation(len(train))
        kept = {"train": np.sort(rows[data.hold_out :]), "valid": np.sort(rows[: data.hold_out])}
        sets |= {name: train.rows(chosen) for name, chosen in kept.items()}
    shape = train.pixel_NCYX.shape[1:]
    for name, images in sets.items():
        if images.pixel_NCYX.shape[1:] != shape and data.canvas is None:
            size = " x ".join(map(str, images.pixel_NCYX.shape[2:]))
            raise UserError(f"data.{name}: pictures of {size} pixels; those of training have {shape[1]} x {shape[2]}")
    return sets


def _read(field: str, files: GlimpseFiles, data: GlimpseData) -> Images:
    return read_images(files.images, files.labels, field=f"{field}.images", channels=data.channels, resize=data.resize)


def number_classes(images: Images, names: list[str], where: str) -> Images:
    """Number pictures as the model numbers its classes; one of another class is refused."""
    if unknown := [name for name in images.names if name not in names]:
        used = {images.names[label] for label in np.unique(images.label_N)}
        if any(name in used for name in unknown):
            raise UserError(f"{where}: class {unknown[0]!r} isn't among those of training: {', '.join(names)}")
    number = np.array([names.index(name) if name in names else -1 for name in images.names])
    return Images(images.pixel_NCYX, number[images.label_N], names)
