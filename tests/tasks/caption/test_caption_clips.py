"""Captions of clips: a whole run from files, what it answers, where and when it looked, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from hand_made import GivenAttention
from saccade.data.pictures.captions import CaptionSet
from saccade.data.pictures.clips import WordFrames
from saccade.data.text.tokenizer import Vocabulary
from saccade.datasets.made import clips
from saccade.layers.clip_encoder import ClipEncoder
from saccade.runs import train, verify
from saccade.runs.config import check_config
from saccade.runs.load import load_run
from saccade.tasks.caption.scores import span_attention

QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clips, "SIZES", {"train": 11, "valid": 3, "test": 4})
        clips.make_clips(folder)
    return folder


def plain(data: Path, **model: Any) -> dict[str, Any]:
    files = {
        name: {"captions": f"{data}/{name}.tsv", "clips": f"{data}/{name}", "spans": f"{data}/{name}.spans.tsv"}
        for name in ("train", "valid", "test")
    }
    return {
        "task": "caption",
        "device": "cpu",
        "data": {"kind": "clips", "side": 16, "frames": 16, **files},
        "model": {"width": 8, "embedding_width": 6, "dropout": 0.1, "forgetting": 0.5, **model},
        "training": {"max_steps": 3, "validate_every": 2, "tokens_per_batch": 60},
        "decoding": {"max_length": 6},
    }


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "clips"
    train.train(check_config(plain(data), "test"), folder, QUIET)
    return folder


def test_a_run_from_its_config(run: Path, data: Path, tmp_path: Path) -> None:
    writer = load_run(run)
    found = writer.predict(writer.read(data / "test"))
    assert [Path(one.name).name for one in found] == [f"{number:05}.gif" for number in range(4)]
    one = found[0]
    frames = len(one.picture)
    assert one.attention.shape == (len(one.log_probabilities), frames, 4, 4)
    assert np.allclose(one.attention.sum((1, 2, 3)), 1, atol=1e-5)
    assert np.shape(json.loads(json.dumps(one.plain()))["attention"]) == one.attention.shape
    (alone,) = writer.predict([data / "test" / "00000.gif"])
    assert alone.text == one.text  # clips of other lengths in the batch change nothing
    assert alone.log_probabilities == pytest.approx(one.log_probabilities, abs=1e-5)
    (given,) = writer.predict([one.picture])
    assert given.text == one.text
    one.draw(tmp_path / "drawn.png")
    with Image.open(tmp_path / "drawn.png") as drawn:
        assert drawn.width > 60 * frames
    report = (run / "report.html").read_text("utf-8")
    assert "data:image/png" in report
    row = json.loads((run / "log.jsonl").read_text("utf-8").splitlines()[-1])
    assert {"score", "valid_exact", "valid_span_attention"} <= set(row)


def test_what_it_saw_is_laid_out_as_one_picture(run: Path, data: Path) -> None:
    (found,) = load_run(run).look([data / "test" / "00000.gif"])
    answer, seen = found.answer, found.maps["cross"]
    frames = len(answer.picture)
    down = -(-frames // 8)
    assert seen.shape == (4 * down, 32)
    assert found.picture.shape == (3, 16 * down, 8 * 16)
    assert np.array_equal(found.picture[:, :16, 16:32], answer.picture[1])
    row_YX = seen.weight_LHTS[0, 0, 0].view(seen.shape)
    assert np.array_equal(row_YX[:4, 4:8].numpy(), answer.attention[0, 1])
    assert float(row_YX.sum()) == pytest.approx(1, abs=1e-5)
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        answer.show(console)
    assert captured.get().splitlines()[0].split() == [str(number) for number in range(1, frames + 1)]


def test_evaluation_with_and_without_spans(run: Path, data: Path) -> None:
    writer, files = load_run(run), [data / "test.tsv", data / "test", data / "test.spans.tsv"]
    found = writer.evaluate(files)
    assert found.scores["num_pictures"] == 4
    assert 0 < found.scores["span_attention"] < 100
    assert any("attention of words in the frames in which they happen" in line for line in found.lines)
    assert "span_attention" not in writer.evaluate(files[:2]).scores
    with pytest.raises(ValueError, match="evaluate: nothing given; it needs a captions file, the folder of its clips"):
        writer.evaluate([])


class Looks(torch.nn.Module):
    """An encoder's shape and weights as given."""

    def __init__(self, weight_BTS: torch.Tensor) -> None:
        super().__init__()
        self.weight_BTS, self.attention = weight_BTS, GivenAttention("cross")
        self.encoder = ClipEncoder(8, frames=4, rows=8, columns=4)  # two cells
        self.register_buffer("baseline", torch.zeros(()))

    def forward(self, *_: torch.Tensor) -> None:
        self.attention(self.weight_BTS)


def test_the_share_of_a_word_in_its_span() -> None:
    weight_BTS = torch.zeros(1, 3, 8)
    weight_BTS[0, 1] = torch.tensor([0.1, 0.0, 0.2, 0.1, 0.0, 0.3, 0.3, 0.0])  # of frames: 0.1, 0.3, 0.3, 0.3
    told = CaptionSet(
        ["one"],
        [["it stops", "another"]],
        np.zeros((1, 4, 3, 8, 4), np.uint8),
        frames_N=np.array([4]),
        spans=[[WordFrames(1, 1, 2), WordFrames(1, 3, 3)]],
    )
    model: Any = Looks(weight_BTS)
    found = span_attention(model, Vocabulary.train("words", ["it stops another"], 100), told)
    assert found.tolist() == pytest.approx([0.6, 0.3])


@pytest.mark.usefixtures("quick_start")
def test_a_killed_run_goes_on_bitwise(data: Path, tmp_path: Path) -> None:
    (tmp_path / "clips.yaml").write_text(json.dumps({**plain(data), "device": "cpu"}), "utf-8")
    arguments = ["training.validate_every=4", "training.max_steps=12"]
    assert verify.verify(tmp_path / "clips.yaml", arguments, kills=1, steps=12, console=QUIET).is_same


def test_hard_attention_and_a_start_from_the_mean(data: Path, tmp_path: Path) -> None:
    config = check_config(plain(data, attention="hard", start="mean"), "test")
    train.train(config, tmp_path / "run", QUIET)
    writer = load_run(tmp_path / "run")
    together = writer.predict(writer.read(data / "test"))
    alone = writer.predict([data / "test" / "00002.gif"])[0]
    assert alone.log_probabilities == pytest.approx(together[2].log_probabilities, abs=1e-5)
    assert set(np.unique(alone.attention)) == {0.0, 1.0}


def test_mistakes_are_named(run: Path, data: Path, tmp_path: Path) -> None:
    writer = load_run(run)
    with pytest.raises(
        ValueError, match="input: 17 x 3 x 16 x 16 given; this model reads 1 to 16 frames of 3 x 16 x 16"
    ):
        writer.predict([np.zeros((17, 3, 16, 16), np.uint8)])
    with pytest.raises(ValueError, match="input: 3 x 16 x 16 given; this model reads 1 to 16 frames"):
        writer.predict([np.zeros((3, 16, 16), np.uint8)])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="this clip has no frame"):
        writer.predict([tmp_path / "empty"])
    content = plain(data)
    content["data"]["train"] = {**content["data"]["train"], "clips": str(tmp_path / "none")}
    with pytest.raises(ValueError, match=r"data.train.clips: there is no folder at"):
        train.train(check_config(content, "test"), tmp_path / "run", QUIET)
    content["data"]["frames"] = 0
    with pytest.raises(ValueError, match=r"data.*frames: 0 given"):
        check_config(content, "test")
