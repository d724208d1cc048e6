"""Reads captions with pictures, clips or feature maps: a TSV (image, number, caption) beside a folder or an array."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.batches import collate_pairs
from saccade.data.pictures import shapes
from saccade.data.pictures.clips import ClipSize, WordFrames, read_clip, read_clips, read_spans
from saccade.data.pictures.images import Pixels, read_picture, read_pictures
from saccade.data.text.corpus import clean, read_raw_lines
from saccade.data.text.tokenizer import Tokenizer
from saccade.errors import UserError

COLUMNS = 3


class CaptionSource(NamedTuple):
    """One input: its name; bytes [C, Y, X], frames [F, C, Y, X] or features [S, C]; and what of it can be drawn on."""

    name: str
    source: NDArray[Any]
    picture: Pixels | None = None


@final
@dataclass(frozen=True)
class CaptionSet:
    """N pictures as bytes [N, C, Y, X], or feature maps [N, S, C] with their `grid`, and the captions of each.

    Feature values are `scale` times what is stored. `mask_N2YX` says where the two named things lie, if it is known.
    Clips are [N, F, C, Y, X], padded to the longest; `frames_N` counts the frames of each, and `spans` says when words
    of its first caption happen, if it is known.
    """

    names: list[str]
    captions: list[list[str]]
    source: NDArray[Any]
    grid: tuple[int, int] | None = None
    scale: float = 1.0
    mask_N2YX: NDArray[np.bool_] | None = None
    frames_N: NDArray[np.int64] | None = None
    spans: list[list[WordFrames]] | None = None

    def __len__(self) -> int:
        return len(self.names)

    def load(self, rows: NDArray[np.int64] | slice) -> Tensor:
        """Return some pictures, clips or feature maps, as a network reads them."""
        source = self.source if self.frames_N is None else self.source[:, : int(self.frames_N[rows].max())]
        chosen = torch.from_numpy(np.ascontiguousarray(source[rows]))
        return chosen if self.grid is None else chosen.float() * self.scale

    def item(self, row: int) -> CaptionSource:
        source = self.load(slice(row, row + 1))[0].numpy()
        return CaptionSource(self.names[row], source, source if self.grid is None else None)

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Return the mean and deviation of each channel of the feature maps, over all places of all pictures."""
        flat_NC = self.source.reshape(-1, self.source.shape[-1])
        parts = [flat_NC[at : at + 65536].astype(np.float64) for at in range(0, len(flat_NC), 65536)]
        mean_C = sum(part.sum(0) for part in parts) / len(flat_NC)
        variance_C = sum(np.square(part - mean_C).sum(0) for part in parts) / len(flat_NC)
        deviation_C = np.sqrt(np.maximum(variance_C, 1e-12))
        return tuple(torch.from_numpy(self.scale * x).float() for x in (mean_C, deviation_C))  # type: ignore[return-value]

    def key(self) -> str:
        """Return a hash of all pictures and captions."""
        text = repr((self.captions, self.source.shape, str(self.source.dtype), self.scale)).encode()
        counts = b"" if self.frames_N is None else self.frames_N.tobytes()
        return hashlib.sha256(text + counts + np.ascontiguousarray(self.source).tobytes()).hexdigest()


def make_shape_captions(count: int, *, side: int, seed: int) -> CaptionSet:
    """Paint pictures of shapes, each with one sentence."""
    made = shapes.paint_shapes(count, side=side, seed=seed)
    names = [f"shapes-{seed}-{number}" for number in range(1, count + 1)]
    return CaptionSet(names, [[sentence] for sentence in made.sentences], made.picture_NCYX, mask_N2YX=made.mask_N2YX)


@final
@dataclass(frozen=True)
class CaptionReader:
    """Reads captions with pictures, clips or feature maps.

    `side` is the height and width that pictures are scaled to; None stands for feature maps. `axes` names the axes of
    their array: N pictures, Y rows, X columns, S places (of a square, row by row), C channels. With `frames`, the most
    that there may be, it reads clips.
    """

    side: int | None = None
    frames: int | None = None
    axes: str = "NYXC"
    scale: float = 1.0
    lower_case: bool = True
    punctuation: bool = True

    @property
    def clip(self) -> ClipSize | None:
        """Return the size of clips; None if it reads none."""
        return None if self.side is None or self.frames is None else ClipSize(self.side, self.frames)

    def read(self, captions: str, source: str, spans: str | None = None, *, field: str = "data") -> CaptionSet:
        """Read captions, and the picture, clip or feature map of every name in them; and when words happen in clips."""
        captions_of = self._captions(Path(captions).expanduser(), field)
        names, path = list(captions_of), Path(source).expanduser()
        if self.side is not None:
            if not path.is_dir():
                what = "pictures" if self.clip is None else "clips"
                raise UserError(f"{field}.{what}: there is no folder at {source}")
            if self.clip is not None:
                return self._clips(captions_of, path, spans, self.clip)
            pictures = [read_picture(path / name, channels=3, resize=self.side) for name in names]
            return CaptionSet(names, list(captions_of.values()), np.stack(pictures))
        found = self._features(path, field)
        return CaptionSet(
            names, list(captions_of.values()), found.rows(names, captions, source), found.grid, found.scale
        )

    def read_inputs(self, path: Path) -> Iterator[CaptionSource]:
        """Yield the pictures, clips or feature maps of a file or folder, without captions."""
        if self.clip is not None:
            for name, frame_FCYX in read_clips(path, self.clip):
                yield CaptionSource(name, frame_FCYX, frame_FCYX)
            return
        if self.side is not None:
            for name, pixels in read_pictures(path, channels=3, resize=self.side):
                yield CaptionSource(name, pixels, pixels)
            return
        found = self._features(path, "input")
        names = found.names or [f"{path}:{number}" for number in range(1, len(found.feature_NSC) + 1)]
        for name, feature_SC in zip(names, found.feature_NSC, strict=True):
            yield CaptionSource(name, feature_SC.astype(np.float32) * np.float32(found.scale))

    def normalize(self, text: str) -> str:
        """Return a caption as it is learned and scored, with the case and punctuation that were chosen."""
        words = clean(text.lower() if self.lower_case else text).split()
        return " ".join(word for word in words if self.punctuation or any(sign.isalnum() for sign in word))

    def _clips(self, captions_of: dict[str, list[str]], path: Path, spans: str | None, size: ClipSize) -> CaptionSet:
        first_words = {name: captions[0].split() for name, captions in captions_of.items()}
        spans_of = read_spans(Path(spans).expanduser(), first_words) if spans is not None else None
        clips = [read_clip(path / name, size) for name in captions_of]
        for name, clip in zip(captions_of, clips, strict=True):
            last = max((span.last for span in (spans_of or {}).get(name, [])), default=0)
            if last >= len(clip):
                raise UserError(f"{spans}: a span of {name} ends at frame {last + 1}; the clip has {len(clip)}")
        return CaptionSet(
            list(captions_of),
            list(captions_of.values()),
            stack_clips(clips),
            frames_N=np.array([len(clip) for clip in clips]),
            spans=None if spans_of is None else list(spans_of.values()),
        )

    def _captions(self, path: Path, field: str) -> dict[str, list[str]]:
        """Read the captions of each picture, in the order of first appearance."""
        if not path.is_file():
            raise UserError(f"{field}.captions: there is no file at {path}")
        found: dict[str, list[str]] = {}
        for number, line in enumerate(read_raw_lines(path), 1):
            columns = line.rstrip("\r\n").split("\t")
            if len(columns) != COLUMNS or not columns[0]:
                wanted = "image TAB number TAB caption"
                raise UserError(
                    f"{path}:{number}: the line has {len(columns)} columns; there must be {COLUMNS}: {wanted}"
                )
            if not (caption := self.normalize(columns[2])):
                raise UserError(f"{path}:{number}: the caption has no word")
            found.setdefault(columns[0].removeprefix("\ufeff"), []).append(caption)
        if not found:
            raise UserError(f"{path}: it is empty; there must be at least one line")
        return found

    def _features(self, path: Path, field: str) -> _Features:
        arrays = _read_arrays(path, field)
        stored = arrays["features"]
        if stored.ndim != len(self.axes) or stored.dtype.kind not in "iuf":
            what = f"{stored.dtype} of shape {list(stored.shape)}"
            raise UserError(f"{path}: {what}; there must be numbers, an axis for each of {self.axes} (data.axes)")
        order = [self.axes.index(axis) for axis in ("NSC" if "S" in self.axes else "NYXC")]
        moved = stored.transpose(order)
        if not moved.size:
            raise UserError(f"{path}: it is empty; there must be at least one feature map")
        grid = (math.isqrt(moved.shape[1]),) * 2 if "S" in self.axes else cast(tuple[int, int], moved.shape[1:3])
        if grid[0] * grid[1] != math.prod(moved.shape[1:-1]):
            raise UserError(f"{path}: {moved.shape[1]} places; S must be a square (Y and X say another shape)")
        names = [str(name) for name in arrays["names"]] if "names" in arrays else None
        scale = float(arrays["scale"]) if "scale" in arrays else self.scale
        return _Features(moved.reshape(len(moved), -1, moved.shape[-1]), (grid[0], grid[1]), scale, names)


class _Features(NamedTuple):
    feature_NSC: NDArray[Any]
    grid: tuple[int, int]
    scale: float
    names: list[str] | None

    def rows(self, names: list[str], captions: str, source: str) -> NDArray[Any]:
        """Return the maps of these pictures; a file without names has them in the captions' order."""
        if self.names is None:
            if len(self.feature_NSC) != len(names):
                counts = f"{len(self.feature_NSC):,} feature maps, but {captions} names {len(names):,} pictures"
                raise UserError(f"{source}: {counts}; the numbers must be equal")
            return np.ascontiguousarray(self.feature_NSC)
        places = {name: row for row, name in enumerate(self.names)}
        if missing := [name for name in names if name not in places]:
            raise UserError(f"{source}: there is no feature map for {missing[0]}, which {captions} names")
        return self.feature_NSC[[places[name] for name in names]]


def _read_arrays(path: Path, field: str) -> dict[str, NDArray[Any]]:
    """Read the arrays of an NPZ file, or the one of an .npy file (plain or .gz) as `features`."""
    if not path.is_file():
        raise UserError(f"{field}.features: there is no file at {path}")
    kinds = [suffix for suffix in path.suffixes if suffix in (".npz", ".npy")]
    if not kinds:
        raise UserError(f"{field}.features: {path} given; allowed: .npz, .npy, .npy.gz")
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        stored = np.load(io.BytesIO(content), allow_pickle=False)
        arrays = {"features": stored} if isinstance(stored, np.ndarray) else {name: stored[name] for name in stored}
    except (OSError, ValueError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: this is not a complete {kinds[-1]} file ({' '.join(str(error).split())})") from None
    if "features" not in arrays:
        raise UserError(f"{path}: there is no array 'features' in it; there is {', '.join(arrays) or 'none'}")
    return arrays


def stack_clips(clips: Sequence[Pixels]) -> Pixels:
    """Join clips into one array [N, F, C, Y, X]; behind the end of a shorter one all is black."""
    stacked = np.zeros((len(clips), max(map(len, clips)), *clips[0].shape[1:]), np.uint8)
    for row, clip in enumerate(clips):
        stacked[row, : len(clip)] = clip
    return stacked


class CaptionBatch(NamedTuple):
    """Pictures, clips or feature maps, the number of places of each, and captions to read and to write."""

    source: Tensor
    places_B: Tensor
    read_BT: Tensor
    write_BT: Tensor
    length_B: Tensor

    def to(self, device: torch.device) -> CaptionBatch:
        return CaptionBatch(*(tensor.to(device, non_blocking=True) for tensor in self))

    @property
    def num_items(self) -> int:
        """Number of words to write, </s> included."""
        return int(self.length_B.sum())


@final
class CaptionRows:
    """Every caption of every picture as ids: the rows of batches. A picture, or a frame of a clip, has `places`."""

    def __init__(self, pictures: CaptionSet, tokenizer: Tokenizer, *, places: int) -> None:
        self.pictures = pictures
        frames_N = np.ones(len(pictures), np.int64) if pictures.frames_N is None else pictures.frames_N
        self.places_N = places * frames_N
        pairs = [(row, caption) for row, captions in enumerate(pictures.captions) for caption in captions]
        self.picture_N = np.array([row for row, _ in pairs])
        self.ids = [np.asarray(tokenizer.encode(caption), np.int32) for _, caption in pairs]
        self.lengths = np.array([len(ids) + 1 for ids in self.ids])  # </s>

    def load(self, rows: NDArray[np.int64]) -> CaptionBatch:
        ids = [self.ids[row] for row in rows]
        _, _, read_BT, write_BT, length_B = collate_pairs(ids, ids)
        pictures = self.picture_N[rows]
        places_B = torch.from_numpy(self.places_N[pictures])
        return CaptionBatch(self.pictures.load(pictures), places_B, read_BT, write_BT, length_B)
