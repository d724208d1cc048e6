"""Captions beside pictures and feature maps: formats give the same, every mistake is named."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.data.pictures.captions import CaptionReader, CaptionRows, CaptionSet, make_shape_captions
from saccade.data.text.tokenizer import END, PAD, START, Vocabulary

TSV = "b.png\t0\tA Dog , runs .\nb.png\t1\ta dog\na.png\t0\tTwo cats\n"
FEATURES = np.arange(2 * 2 * 2 * 3, dtype=np.int8).reshape(2, 2, 2, 3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "captions.tsv").write_text(TSV, "utf-8")
    np.save(tmp_path / "features.npy", FEATURES)
    return tmp_path


def read(folder: Path, source: str = "features.npy", captions: str = "captions.tsv", **how: Any) -> CaptionSet:
    return CaptionReader(**how).read(str(folder / captions), str(folder / source), field="data.train")


def test_captions_by_first_appearance_lower_cased(folder: Path) -> None:
    told = read(folder)
    assert told.names == ["b.png", "a.png"]
    assert told.captions == [["a dog , runs .", "a dog"], ["two cats"]]
    assert read(folder, punctuation=False).captions[0] == ["a dog runs", "a dog"]
    assert read(folder, lower_case=False).captions[0][0] == "A Dog , runs ."
    (folder / "captions.tsv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + TSV.replace("\n", "\r\n").encode()))
    assert read(folder, captions="captions.tsv.gz").captions == told.captions


def test_every_format_of_feature_maps_gives_the_same(folder: Path) -> None:
    told = read(folder, scale=0.5)
    assert told.grid == (2, 2)
    expected = torch.from_numpy(FEATURES.reshape(2, 4, 3)).float() / 2
    assert torch.equal(told.load(slice(None)), expected)
    flat = FEATURES.reshape(2, 4, 3)
    axes = {"NSC": flat, "NCS": flat.transpose(0, 2, 1), "CNS": flat.transpose(2, 0, 1)}
    for name, array in {**axes, "NCYX": FEATURES.transpose(0, 3, 1, 2)}.items():
        np.save(folder / "other.npy", array)
        (folder / "other.npy.gz").write_bytes(gzip.compress((folder / "other.npy").read_bytes()))
        other = read(folder, "other.npy.gz", axes=name, scale=0.5)
        assert torch.equal(other.load(slice(None)), expected)
        assert other.grid == (2, 2)
    np.savez(folder / "named.npz", features=FEATURES[::-1], names=["a.png", "b.png"], scale=0.5)
    assert torch.equal(read(folder, "named.npz").load(slice(None)), expected)
    seen = list(CaptionReader().read_inputs(folder / "named.npz"))
    assert [one.name for one in seen] == ["a.png", "b.png"]
    assert np.array_equal(seen[1].source, expected[0].numpy())
    assert [one.name.rsplit(":", 1)[1] for one in CaptionReader().read_inputs(folder / "features.npy")] == ["1", "2"]


def test_statistics_are_those_of_the_features(folder: Path) -> None:
    told = read(folder, scale=0.5)
    mean_C, deviation_C = told.statistics()
    flat = told.load(slice(None)).reshape(-1, 3)
    torch.testing.assert_close(mean_C, flat.mean(0))
    torch.testing.assert_close(deviation_C, flat.std(0, correction=0))


def test_pictures_are_read_and_made_one_size(folder: Path) -> None:
    for name, size in (("a.png", (5, 7)), ("b.png", (8, 8))):
        Image.new("RGB", size, (255, 0, 0)).save(folder / name)
    told = read(folder, ".", side=8)
    assert told.source.shape == (2, 3, 8, 8)
    assert told.item(1).name == "a.png"
    assert told.item(1).picture is not None
    assert (told.source[:, 0] == 255).all()
    assert [one.source.shape for one in CaptionReader(side=8).read_inputs(folder / "a.png")] == [(3, 8, 8)]


def test_batches_of_captions(folder: Path) -> None:
    told = read(folder)
    tokenizer = Vocabulary.train("words", ["a dog", "two cats"], 100)
    lines = CaptionRows(told, tokenizer, places=4)
    assert lines.lengths.tolist() == [6, 3, 3]
    batch = lines.load(np.array([1, 0]))
    a, dog = tokenizer.encode("a dog")
    assert batch.read_BT[0].tolist() == [START, a, dog, PAD, PAD, PAD]
    assert batch.write_BT[0].tolist() == [a, dog, END, PAD, PAD, PAD]
    assert torch.equal(batch.source[0], batch.source[1])
    assert batch.places_B.tolist() == [4, 4]
    assert batch.num_items == 9
    assert batch.to(torch.device("cpu")).num_items == 9


def test_shapes_have_masks_and_a_key() -> None:
    one, same, other = (make_shape_captions(5, side=24, seed=seed) for seed in (1, 1, 2))
    assert one.key() == same.key() != other.key()
    assert one.mask_N2YX is not None
    assert len(one) == 5


BAD = "data.train"


@pytest.mark.parametrize(
    ("change", "how", "message"),
    [
        (
            {"captions.tsv": b"a.png\tA dog\n"},
            {},
            "captions.tsv:1: the line has 2 columns; there must be 3: image TAB number TAB",
        ),
        ({"captions.tsv": b"a.png\t0\t .\n"}, {"punctuation": False}, "captions.tsv:1: the caption has no word"),
        ({"captions.tsv": b""}, {}, "captions.tsv: it is empty; there must be at least one line"),
        ({"captions.tsv": b"a.png\t0\t\xff\n"}, {}, "captions.tsv:1: this is not UTF-8"),
        (
            {"captions.tsv": b"a.png\t0\ta\n"},
            {},
            r"features.npy: 2 feature maps, but .*captions.tsv names 1 pictures",
        ),
        ({"features.npy": b"\x93NUMPY"}, {}, "features.npy: this is not a complete .npy file"),
        (
            {},
            {"axes": "NSC"},
            r"features.npy: int8 of shape \[2, 2, 2, 3\]; there must be numbers, an axis for each of NSC",
        ),
        ({}, {"side": 8}, "data.train.pictures: there is no folder at"),
    ],
)
def test_mistakes_are_named(folder: Path, change: dict[str, bytes], how: dict[str, Any], message: str) -> None:
    for name, content in change.items():
        (folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read(folder, **how)


def test_more_mistakes_are_named(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"data.train.captions: there is no file at"):
        read(folder, captions="none.tsv")
    with pytest.raises(ValueError, match=r"data.train.features: there is no file at"):
        read(folder, "none.npy")
    with pytest.raises(ValueError, match=r"features: .*captions.tsv given; allowed: .npz, .npy, .npy.gz"):
        read(folder, "captions.tsv")
    np.savez(folder / "no.npz", other=FEATURES)
    with pytest.raises(ValueError, match=r"no.npz: there is no array 'features' in it; there is other"):
        read(folder, "no.npz")
    np.savez(folder / "names.npz", features=FEATURES, names=["b.png", "c.png"])
    with pytest.raises(ValueError, match=r"names.npz: there is no feature map for a.png, which .*captions.tsv names"):
        read(folder, "names.npz")
    np.save(folder / "five.npy", np.zeros((2, 5, 3)))
    with pytest.raises(ValueError, match=r"five.npy: 5 places; S must be a square"):
        read(folder, "five.npy", axes="NSC")
    np.save(folder / "empty.npy", np.zeros((0, 4, 3)))
    with pytest.raises(ValueError, match=r"empty.npy: it is empty; there must be at least one feature map"):
        read(folder, "empty.npy", axes="NSC")
