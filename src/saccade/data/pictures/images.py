"""Reads pictures with classes from files: idx (plain or .gz), NPZ, or a folder with a folder for each class."""

from __future__ import annotations

import gzip
import hashlib
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from saccade.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm")
MODES = {1: "L", 3: "RGB"}
WHITE_16 = 65_535
BYTES = 8  # idx files name the type of their numbers: this is unsigned bytes
Pixels = NDArray[np.uint8]


@final
@dataclass(frozen=True)
class Images:
    """Pictures of one size, the class of each, and the names of the classes."""

    pixel_NCYX: Pixels
    label_N: NDArray[np.int64]
    names: list[str]

    def __len__(self) -> int:
        return len(self.label_N)

    def rows(self, chosen: NDArray[np.int64] | slice) -> Images:
        return Images(self.pixel_NCYX[chosen], self.label_N[chosen], self.names)

    def key(self) -> str:
        """Return a hash of all pixels and classes."""
        parts = [np.array(self.pixel_NCYX.shape), self.pixel_NCYX, self.label_N, np.array(self.names)]
        return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


def read_images(
    images: str, labels: str | None = None, *, field: str = "images", channels: int = 1, resize: int | None = None
) -> Images:
    """Read all pictures of two idx files, an NPZ file (images, labels) or a folder of class folders."""
    path = Path(images).expanduser()
    if not path.exists():
        raise UserError(f"{field}: there is no file or folder at {images}")
    if resize is not None and not path.is_dir():
        raise UserError(f"data.resize: {resize} given; it is for folders of pictures, and {images} is a file")
    if labels is not None:
        return _check_images(
            _read_idx(path, (3, 4)), _read_idx(Path(labels).expanduser(), (1,)), f"{images} and {labels}", channels
        )
    if path.is_dir():
        return _read_folder(path, channels, resize)
    if path.suffix == ".npz":
        arrays = _read_npz(path, ("images", "labels"))
        return _check_images(arrays[0], arrays[1], images, channels)
    wanted = "a folder of class folders, an .npz file, or an idx file together with labels"
    raise UserError(f"{field}: {images} given; allowed: {wanted}")


def read_pictures(path: Path, *, channels: int = 1, resize: int | None = None) -> Iterator[tuple[str, Pixels]]:
    """Yield names and pixels [C, Y, X] of a picture file, of a folder's pictures by path, or of an NPZ or idx file."""
    if path.is_dir():
        files = _find_pictures(path)
        if not files:
            raise UserError(f"{path}: there is no picture in it (files that end in {', '.join(ENDINGS)})")
        yield from ((str(file), read_picture(file, channels=channels, resize=resize)) for file in files)
    elif path.suffix == ".npz":
        yield from _number(path, _read_npz(path, ("images",))[0], channels)
    elif "idx" in path.name:
        yield from _number(path, _read_idx(path, (3, 4)), channels)
    else:
        yield str(path), read_picture(path, channels=channels, resize=resize)


def read_picture(path: Path, *, channels: int = 3, resize: int | tuple[int, int] | None = None) -> Pixels:
    """Read the pixels [C, Y, X] of a file that Pillow knows; `resize` is a side or (rows, columns)."""
    from PIL import Image

    try:
        with Image.open(path) as opened:
            return pixels_of(opened, str(path), channels=channels, resize=resize)
    except FileNotFoundError:
        raise UserError(f"there is no file at {path}") from None
    except UserError:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"{path}: this is not a complete picture ({' '.join(str(error).split())})") from None


def pixels_of(
    opened: Image.Image, name: str, *, channels: int = 3, resize: int | tuple[int, int] | None = None
) -> Pixels:
    """Return the pixels [C, Y, X] of a picture that Pillow has opened, upright; messages use the name."""
    from PIL import Image, ImageOps

    picture = _to_bytes(ImageOps.exif_transpose(opened), name).convert(MODES[channels])
    if resize is not None:
        rows, columns = (resize, resize) if isinstance(resize, int) else resize
        picture = picture.resize((columns, rows), Image.Resampling.BOX if rows < picture.height else None)
    return _channels_first(np.asarray(picture), channels, name)


def _to_bytes(picture: Image.Image, name: str) -> Image.Image:
    """Scale 16 bits to 8, which Pillow would clip to white, and lay what is transparent on white, as viewers do."""
    from PIL import Image

    if picture.mode.startswith("I"):
        value_YX = np.asarray(picture).astype(np.int64)
        if value_YX.min(initial=0) < 0 or value_YX.max(initial=0) > WHITE_16:
            raise UserError(f"{name}: pixels from {value_YX.min():,} to {value_YX.max():,}; allowed: 8 or 16 bits each")
        return Image.fromarray(((value_YX * 255 + WHITE_16 // 2) // WHITE_16).astype(np.uint8))
    if picture.mode == "F":
        raise UserError(
            f"{name}: its pixels are fractions, and nothing says which is white; allowed: 8 or 16 bits each"
        )
    if not picture.has_transparency_data:
        return picture
    seen = picture.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen)


def _read_folder(path: Path, channels: int, resize: int | None) -> Images:
    names = sorted(child.name for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))
    if len(names) < 2:
        raise UserError(f"{path}: it has {len(names)} folders; there must be one for each class, two or more")
    files = [(file, label) for label, name in enumerate(names) for file in _find_pictures(path / name, wanted=True)]
    pictures = [read_picture(file, channels=channels, resize=resize) for file, _ in files]
    for (file, _), picture in zip(files, pictures, strict=True):
        if picture.shape != pictures[0].shape:
            sizes = " but ".join(f"{_size(p)} at {f}" for p, f in ((picture, file), (pictures[0], files[0][0])))
            raise UserError(f"{path}: {sizes}; all pictures must be of one size (data.resize makes them so)")
    return Images(np.stack(pictures), np.array([label for _, label in files], np.int64), names)


def _find_pictures(folder: Path, *, wanted: bool = False) -> list[Path]:
    found = sorted(file for file in folder.rglob("*") if file.suffix.lower() in ENDINGS and file.is_file())
    if wanted and not found:
        raise UserError(f"{folder}: this class has no picture (files that end in {', '.join(ENDINGS)})")
    return found


def _check_images(images: NDArray[Any], labels: NDArray[Any], where: str, channels: int) -> Images:
    """Check that pictures and classes fit together."""
    if not len(images):
        raise UserError(f"{where}: it is empty; there must be at least one picture")
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or labels.min(initial=0) < 0:
        raise UserError(f"{where}: labels must be whole numbers from 0 on, one for each picture")
    if len(images) != len(labels):
        raise UserError(f"{where}: {len(images):,} pictures, but {len(labels):,} labels; the numbers must be equal")
    names = [str(label) for label in range(max(2, int(labels.max()) + 1))]
    return Images(_channels_first(images, channels, where), labels.astype(np.int64), names)


def _channels_first(pixels: NDArray[Any], channels: int, where: object) -> Pixels:
    """Turn [.., Y, X] or [.., Y, X, C] into [.., C, Y, X] with this many channels."""
    if channels == 1 and pixels.shape[-1] != 3:
        pixels = pixels.reshape(*pixels.shape[:-1], 1) if pixels.shape[-1] == 1 else pixels[..., None]
    if pixels.ndim not in (3, 4) or pixels.shape[-1] != channels:
        raise UserError(f"{where}: its pictures don't have {channels} channels; data.channels must be their number")
    return np.ascontiguousarray(np.moveaxis(pixels, -1, -3))


def _number(path: Path, images: NDArray[Any], channels: int) -> Iterator[tuple[str, Pixels]]:
    pixel_NCYX = _channels_first(images, channels, path)
    return ((f"{path}:{number}", picture) for number, picture in enumerate(pixel_NCYX, 1))


def _read_npz(path: Path, names: tuple[str, ...]) -> list[NDArray[Any]]:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            if missing := [name for name in names if name not in file]:
                raise UserError(f"{path}: there is no array {missing[0]!r} in it; there must be {' and '.join(names)}")
            found = [np.asarray(file[name]) for name in names]
    except FileNotFoundError:
        raise UserError(f"there is no file at {path}") from None
    except UserError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path}: this is not a complete NPZ file ({' '.join(str(error).split())})") from None
    if found[0].dtype != np.uint8 or found[0].ndim not in (3, 4):
        what = f"images are {found[0].dtype} of shape {found[0].shape}"
        raise UserError(f"{path}: {what}; allowed: uint8 [N, rows, columns] or [N, rows, columns, channels]")
    return found


def _read_idx(path: Path, dimensions: tuple[int, ...]) -> Pixels:
    """Read an idx file of bytes: two zeros, the type, the number of dimensions, their sizes, and the numbers."""
    content = _read_bytes(path)
    kind, number = (content[2], content[3]) if content[:2] == b"\0\0" and len(content) > 3 else (0, 0)
    if kind != BYTES or number not in dimensions:
        wanted = " or ".join(str(allowed) for allowed in dimensions)
        raise UserError(f"{path}: this is not an idx file of bytes with {wanted} dimensions")
    sizes = np.frombuffer(content[4 : 4 + 4 * number].ljust(4 * number, b"\0"), ">u4").tolist()
    values = content[4 + 4 * number :]
    if len(values) != np.prod(sizes, dtype=np.int64):
        shape = " x ".join(map(str, sizes))
        raise UserError(f"{path}: {len(values):,} bytes behind its header; {shape} would be {np.prod(sizes):,}")
    return np.frombuffer(values, np.uint8).reshape(sizes)


def _read_bytes(path: Path) -> bytes:
    try:
        if path.suffix != ".gz":
            return path.read_bytes()
        with gzip.open(path, "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        raise UserError(f"there is no file at {path}") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: this is not a complete gzip file ({error})") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None


def _size(picture: Pixels) -> str:
    return f"{picture.shape[-2]} x {picture.shape[-1]} pixels"
