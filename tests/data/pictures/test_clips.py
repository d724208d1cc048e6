"""Clips are read from animated files and from folders of frames, whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from saccade.data.pictures.captions import CaptionReader
from saccade.data.pictures.clips import ClipSize, WordFrames, read_clip, read_clips, read_spans

SIZE = ClipSize(side=8, frames=6)


def frames(count: int, side: int = 8) -> NDArray[np.uint8]:
    """Frames of one grey each, all different."""
    return np.stack([np.full((side, side, 3), 20 * number + 10, np.uint8) for number in range(count)])


def write(path: Path, frame_FYXC: NDArray[np.uint8], duration: int | list[int] = 100) -> Path:
    first, *others = [Image.fromarray(one) for one in frame_FYXC]
    more: dict[str, Any] = {"lossless": True} if path.suffix == ".webp" else {}
    first.save(path, save_all=True, append_images=others, duration=duration, **more)
    return path


def write_frames(folder: Path, frame_FYXC: NDArray[np.uint8]) -> Path:
    folder.mkdir(parents=True)
    for number, one in enumerate(frame_FYXC):
        Image.fromarray(one).save(folder / f"{number:03}.png")
    return folder


@pytest.mark.parametrize("ending", ["gif", "png", "webp"])
def test_a_file_is_its_frames(tmp_path: Path, ending: str) -> None:
    given = frames(5)
    found = read_clip(write(tmp_path / f"clip.{ending}", given), SIZE)
    assert np.array_equal(found, given.transpose(0, 3, 1, 2))


def test_a_folder_is_its_frames_in_the_order_of_their_names(tmp_path: Path) -> None:
    given = frames(3, side=16)
    found = read_clip(write_frames(tmp_path / "clip", given), SIZE)
    assert found.shape == (3, 3, 8, 8)
    assert found[:, 0, 0, 0].tolist() == given[:, 0, 0, 0].tolist()


def test_a_frame_that_is_shown_longer_counts_more_than_once(tmp_path: Path) -> None:
    """Pillow writes two frames that are the same as one, shown twice as long."""
    given = frames(4)[[0, 1, 1, 1, 2]]
    path = write(tmp_path / "clip.gif", given)
    with Image.open(path) as opened:
        assert getattr(opened, "n_frames", 1) == 3
    assert np.array_equal(read_clip(path, SIZE)[:, 0], given[..., 0])
    still = write(tmp_path / "still.gif", frames(1))
    assert len(read_clip(still, SIZE)) == 1


def test_a_folder_of_clips_or_of_frames(tmp_path: Path) -> None:
    one = write_frames(tmp_path / "clips" / "b", frames(2))
    write(tmp_path / "clips" / "a.gif", frames(3))
    assert [(Path(name).name, len(clip)) for name, clip in read_clips(tmp_path / "clips", SIZE)] == [
        ("a.gif", 3),
        ("b", 2),
    ]
    assert [(Path(name).name, len(clip)) for name, clip in read_clips(one, SIZE)] == [("b", 2)]
    reader = CaptionReader(side=8, frames=6)
    assert [seen.source.shape[0] for seen in reader.read_inputs(tmp_path / "clips")] == [3, 2]


def test_clips_of_several_lengths_are_one_set(tmp_path: Path) -> None:
    write(tmp_path / "a.gif", frames(3))
    write(tmp_path / "b.gif", frames(5))
    (tmp_path / "captions.tsv").write_text("b.gif\t0\tit starts\na.gif\t0\tit stops\na.gif\t1\tThe end\n", "utf-8")
    (tmp_path / "spans.tsv").write_text("a.gif\t2\t1\t3\n", "utf-8")
    reader = CaptionReader(side=8, frames=6)
    found = reader.read(str(tmp_path / "captions.tsv"), str(tmp_path), str(tmp_path / "spans.tsv"))
    assert found.frames_N is not None
    assert found.frames_N.tolist() == [5, 3]
    assert found.load(np.array([1])).shape == (1, 3, 3, 8, 8)
    assert found.load(np.array([1, 0])).shape == (2, 5, 3, 8, 8)
    assert found.item(1).source.shape == (3, 3, 8, 8)
    assert found.spans == [[], [WordFrames(1, 0, 2)]]
    assert found.captions[1] == ["it stops", "the end"]
    (tmp_path / "spans.tsv").write_text("a.gif\t2\t1\t4\n", "utf-8")
    with pytest.raises(ValueError, match=r"spans.tsv: a span of a.gif ends at frame 4; the clip has 3"):
        reader.read(str(tmp_path / "captions.tsv"), str(tmp_path), str(tmp_path / "spans.tsv"))


@pytest.mark.parametrize("share", [0.05, 0.5, 0.99])
def test_a_cut_file_is_refused(tmp_path: Path, share: float) -> None:
    path = write(tmp_path / "clip.gif", frames(5))
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"clip.gif: this is not a complete clip"):
        read_clip(path, SIZE)


def test_what_is_no_clip_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no clip at"):
        read_clip(tmp_path / "none.gif", SIZE)
    (tmp_path / "text.gif").write_text("no picture", "utf-8")
    with pytest.raises(ValueError, match=r"text.gif: this is not a complete clip"):
        read_clip(tmp_path / "text.gif", SIZE)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty: this clip has no frame"):
        read_clip(tmp_path / "empty", SIZE)


def test_too_many_frames_are_refused_not_cut(tmp_path: Path) -> None:
    for path in (write(tmp_path / "clip.gif", frames(7)), write_frames(tmp_path / "folder", frames(7))):
        with pytest.raises(ValueError, match=f"{path.name}: 7 frames; allowed: 6 at most"):
            read_clip(path, SIZE)
    slow = write(tmp_path / "slow.gif", frames(3), duration=[100, 1000, 100])
    with pytest.raises(ValueError, match=r"slow.gif: 12 frames; allowed: 6 at most"):
        read_clip(slow, SIZE)


def test_frames_of_different_sizes_are_refused(tmp_path: Path) -> None:
    folder = write_frames(tmp_path / "clip", frames(2))
    Image.new("RGB", (9, 8)).save(folder / "002.png")
    with pytest.raises(ValueError, match=r"9 x 8 pixels at .*002.png but 8 x 8 at .*000.png; all frames of a clip"):
        read_clip(folder, SIZE)
    (folder / "002.png").write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"002.png: this is not a complete picture"):
        read_clip(folder, SIZE)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a.gif\t1\t2", ":1: there must be 4 columns"),
        ("a.gif\t0\t2\t3", ":1: there must be 4 columns"),
        ("a.gif\tx\t2\t3", ":1: there must be 4 columns"),
        ("b.gif\t1\t2\t3", ":1: b.gif has no caption"),
        ("a.gif\t3\t2\t3", ":1: word 3, frames 2 to 3; the caption has 2 words"),
        ("a.gif\t1\t4\t3", ":1: word 1, frames 4 to 3; the caption has 2 words"),
    ],
)
def test_a_wrong_line_of_spans_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "spans.tsv"
    path.write_text(line + "\n", "utf-8")
    with pytest.raises(ValueError, match=message):
        read_spans(path, {"a.gif": ["it", "stops"]})
    with pytest.raises(ValueError, match="there is no file at"):
        read_spans(tmp_path / "none.tsv", {})
