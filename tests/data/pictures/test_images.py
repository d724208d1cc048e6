"""Pictures from files: idx, NPZ and folders give the same arrays, and every mistake is named."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from saccade.data.pictures.images import read_images, read_picture, read_pictures
from saccade.errors import UserError

RANDOM = np.random.default_rng(7)
PIXELS = RANDOM.integers(0, 256, (5, 11, 13), np.uint8)
LABELS = np.array([1, 0, 2, 2, 0], np.uint8)


def idx(path: Path, array: NDArray[np.uint8], kind: int = 8) -> str:
    content = bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


def folder(path: Path, pixels: NDArray[np.uint8] = PIXELS) -> Path:
    for number, (picture, label) in enumerate(zip(pixels, LABELS, strict=True)):
        (path / "abc"[label]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path / "abc"[label] / f"{number}.png")
    return path


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_idx_files(tmp_path: Path, ending: str) -> None:
    found = read_images(idx(tmp_path / f"i{ending}", PIXELS), idx(tmp_path / f"l{ending}", LABELS))
    assert (found.pixel_NCYX[:, 0] == PIXELS).all()
    assert found.pixel_NCYX.shape == (5, 1, 11, 13)
    assert found.label_N.tolist() == LABELS.tolist()
    assert (found.names, len(found)) == (["0", "1", "2"], 5)
    assert found.rows(slice(2, 4)).label_N.tolist() == [2, 2]
    assert found.key() == found.rows(slice(None)).key() != found.rows(np.array([1, 0, 2, 3, 4])).key()


def test_npz_and_folder_give_the_same_pictures(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", images=PIXELS, labels=LABELS)
    packed, loose = read_images(str(tmp_path / "x.npz")), read_images(str(folder(tmp_path / "f")))
    order = np.argsort(LABELS, kind="stable")
    assert (loose.pixel_NCYX == packed.pixel_NCYX[order]).all()
    assert loose.label_N.tolist() == sorted(LABELS)
    assert loose.names == ["a", "b", "c"]


def test_colours(tmp_path: Path) -> None:
    colour = RANDOM.integers(0, 256, (5, 11, 13, 3), np.uint8)
    np.savez(tmp_path / "x.npz", images=colour, labels=LABELS)
    found = read_images(str(tmp_path / "x.npz"), channels=3)
    assert (found.pixel_NCYX == np.moveaxis(colour, -1, 1)).all()
    loose = read_images(str(folder(tmp_path / "f", colour)), channels=3)
    assert (loose.pixel_NCYX == found.pixel_NCYX[np.argsort(LABELS, kind="stable")]).all()
    with pytest.raises(UserError, match=r"don't have 1 channels"):
        read_images(str(tmp_path / "x.npz"))


def test_pictures_to_predict_come_one_by_one(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", images=PIXELS)
    names, pictures = zip(*read_pictures(tmp_path / "x.npz"), strict=True)
    assert names[4] == f"{tmp_path / 'x.npz'}:5"
    assert (np.stack(pictures)[:, 0] == PIXELS).all()
    one = folder(tmp_path / "f") / "b" / "0.png"
    assert [(name, picture.shape) for name, picture in read_pictures(one)] == [(str(one), (1, 11, 13))]
    assert [Path(name).stem for name, _ in read_pictures(tmp_path / "f")] == list("14023")
    idx(tmp_path / "t10k-images-idx3-ubyte", PIXELS)
    assert len([*read_pictures(tmp_path / "t10k-images-idx3-ubyte")]) == 5


def test_pictures_are_resized(tmp_path: Path) -> None:
    one = folder(tmp_path) / "b" / "0.png"
    assert read_picture(one, channels=3, resize=(7, 5)).shape == (3, 7, 5)
    assert read_images(str(tmp_path), resize=17).pixel_NCYX.shape == (5, 1, 17, 17)
    flat = tmp_path / "flat.png"
    Image.fromarray(np.full((12, 12), 93, np.uint8)).save(flat)
    assert (read_picture(flat, channels=1, resize=4) == 93).all()


def test_mistakes_in_idx_files(tmp_path: Path) -> None:
    images, labels = idx(tmp_path / "i", PIXELS), idx(tmp_path / "l", LABELS)
    for bad, message in (
        (tmp_path / "none", "images: there is no file or folder at"),
        (_written(tmp_path / "empty", b""), "this is not an idx file of bytes with 3 or 4 dimensions"),
        (_written(tmp_path / "text", b"hello, world"), "not an idx file"),
        (Path(labels), "this is not an idx file of bytes with 3 or 4"),
        (Path(idx(tmp_path / "floats", PIXELS, kind=13)), "this is not an idx file of bytes"),
        (_written(tmp_path / "short", Path(images).read_bytes()[:-2]), "713 bytes behind its header; 5 x 11 x 13"),
        (_written(tmp_path / "x.gz", b"no"), "this is not a complete gzip file"),
        (_written(tmp_path / "y.gz", gzip.compress(bytes(99))[:-9]), "this is not a complete gzip file"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(UserError, match=message):
            read_images(str(bad), labels)
    with pytest.raises(UserError, match="5 pictures, but 4 labels"):
        read_images(images, idx(tmp_path / "fewer", LABELS[:4]))
    with pytest.raises(UserError, match="empty; there must be at least one picture"):
        read_images(idx(tmp_path / "i0", PIXELS[:0]), idx(tmp_path / "l0", LABELS[:0]))


def test_mistakes_in_npz_files(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    for arrays, message in (
        ({"images": PIXELS}, "no array 'labels' in it; there must be images and labels"),
        ({"images": PIXELS / 255, "labels": LABELS}, r"images are float64 of shape \(5, 11, 13\); allowed: uint8"),
        ({"images": PIXELS, "labels": LABELS / 2}, "labels must be whole numbers"),
        ({"images": PIXELS, "labels": LABELS.astype(int) - 1}, "labels must be whole numbers"),
        ({"images": PIXELS, "labels": np.array([object()] * 5)}, "this is not a complete NPZ file"),
    ):
        np.savez(path, **arrays)
        with pytest.raises(UserError, match=message):
            read_images(str(path))
    for bad in (_written(tmp_path / "z.npz", b"PK\3\4 no zip"), _written(tmp_path / "w.npz", b"")):
        with pytest.raises(UserError, match="this is not a complete NPZ file"):
            read_images(str(bad))
    with pytest.raises(UserError, match="there is no file at"):
        list(read_pictures(tmp_path / "gone.npz"))


def test_mistakes_in_folders(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train.images: there is no file or folder at gone"):
        read_images("gone", field="train.images")
    with pytest.raises(UserError, match="it has 0 folders; there must be one for each class"):
        read_images(str(tmp_path))
    root = folder(tmp_path / "f")
    with pytest.raises(UserError, match=r"0.png given; allowed: a folder of class folders, an .npz file"):
        read_images(str(root / "b" / "0.png"))
    Image.fromarray(PIXELS[0, :7]).save(root / "b" / "small.png")
    with pytest.raises(UserError, match=r"7 x 13 pixels at .*small.png but 11 x 13 pixels at .*1.png; .*data.resize"):
        read_images(str(root))
    _written(root / "b" / "small.png", (root / "b" / "0.png").read_bytes()[:60])
    with pytest.raises(UserError, match=r"small.png: this is not a complete picture"):
        read_images(str(root))
    (root / "d").mkdir()
    with pytest.raises(UserError, match="d: this class has no picture"):
        read_images(str(root))
    with pytest.raises(UserError, match="no picture in it"):
        list(read_pictures(root / "d"))
    with pytest.raises(UserError, match="there is no file at"):
        read_picture(root / "gone.png")


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


GREY = np.array([[0, 64], [128, 255]], np.uint8)


@pytest.mark.parametrize("ending", [".png", ".tif", ".pgm"])
@pytest.mark.parametrize("channels", [1, 3])
def test_16_bits_are_scaled_to_8(tmp_path: Path, ending: str, channels: int) -> None:
    path = tmp_path / f"deep{ending}"
    if ending == ".pgm":
        path.write_bytes(b"P5 2 2 65535\n" + (GREY.astype(">u2") * 257).tobytes())
    else:
        Image.fromarray(GREY.astype(np.uint16) * 257).save(path)
    found = read_picture(path, channels=channels)
    assert found.tolist() == [GREY.tolist()] * channels


@pytest.mark.parametrize("mode", ["L", "P", "1", "CMYK", "RGB", "LA", "RGBA", "PA"])
def test_every_mode_of_pillow_keeps_its_greys(tmp_path: Path, mode: str) -> None:
    grey = GREY if mode != "1" else np.array([[0, 255], [255, 0]], np.uint8)
    picture = Image.fromarray(grey)
    picture = picture.convert("RGB").convert(mode) if mode == "CMYK" else picture.convert(mode)
    picture.save(tmp_path / "p.tif") if mode in ("CMYK", "PA") else picture.save(tmp_path / "p.png")
    (path,) = tmp_path.iterdir()
    assert np.abs(read_picture(path, channels=3).astype(int) - grey).max() <= 1
    assert np.abs(read_picture(path, channels=1).astype(int) - grey).max() <= 1


@pytest.mark.parametrize("palette", [False, True])
def test_what_is_transparent_is_white(tmp_path: Path, palette: bool) -> None:
    if palette:
        picture = Image.fromarray(np.array([[0, 1]], np.uint8), "L").convert("P")
        picture.putpalette([0, 0, 0, 90, 90, 90])
        picture.save(tmp_path / "p.png", transparency=0)
    else:
        Image.fromarray(np.array([[[0, 0, 0, 0], [90, 90, 90, 255]]], np.uint8), "RGBA").save(tmp_path / "p.png")
    assert read_picture(tmp_path / "p.png", channels=1).tolist() == [[[255, 90]]]


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_pixels_of_no_known_range_are_refused(tmp_path: Path, kind: type) -> None:
    Image.fromarray(np.array([[0, 100_000]], kind)).save(tmp_path / "p.tif")
    with pytest.raises(UserError, match=r"p\.tif: .*allowed: 8 or 16 bits"):
        read_picture(tmp_path / "p.tif")
