"""Clips on the page and in the API: chosen files are sent as they are, and shown frame by frame."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, FilePayload, Page, expect
from rich.console import Console

from pages.browser import opened, ready, words_of
from saccade.data.pictures.clips import ClipSize, frames_of
from saccade.datasets.made import clips
from saccade.inspection.draw import strip
from saccade.runs import config as config_file
from saccade.runs import train
from saccade.serving.models import load_runs
from servers import Serving, serving

SIDE, FRAMES = 16, 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clips")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clips, "SIZES", {"train": 6, "valid": 2})
        clips.make_clips(folder)
    files = {name: {"captions": f"{folder}/{name}.tsv", "clips": f"{folder}/{name}"} for name in ("train", "valid")}
    content: dict[str, Any] = {
        "task": "caption",
        "device": "cpu",
        "data": {"kind": "clips", "side": SIDE, "frames": FRAMES, **files},
        "model": {"width": 8, "embedding_width": 4},
        "training": {"max_steps": 2, "validate_every": 2, "precision": "float32"},
        "decoding": {"max_length": 5},
    }
    train.train(config_file.check_config(content, "clips"), folder / "run", Console(quiet=True))
    return folder


@pytest.fixture(scope="module")
def clip_site(folder: Path) -> Iterator[Serving]:
    with serving(load_runs([folder / "run"])) as found:
        yield found


def text_of(content: bytes) -> str:
    return base64.b64encode(content).decode()


def test_a_clip_is_sent_as_json_or_as_a_file(clip_site: Serving, folder: Path) -> None:
    content = (folder / "valid" / "00000.gif").read_bytes()
    as_json = clip_site.post("/v1/caption", image=text_of(content), attention=True).json()
    as_file = clip_site.client.post(
        "/v1/caption", files={"image": ("clip.gif", content)}, data={"attention": "true"}
    ).json()
    assert as_json == as_file
    with Image.open(io.BytesIO(content)) as opened_clip:
        frame_FCYX = frames_of(opened_clip, "clip", ClipSize(SIDE, FRAMES))
    answer = as_json["answers"][0]
    assert np.shape(answer["attention"]) == (len(answer["log_probabilities"]), len(frame_FCYX), 4, 4)
    seen = clip_site.post("/v1/look", image=text_of(content)).json()
    head, _, shown = seen["picture"].partition(",")
    assert head == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(shown))) as drawn:
        assert np.array_equal(np.asarray(drawn).transpose(2, 0, 1), strip.lay_out(frame_FCYX.swapaxes(0, 1)))
    (described,) = clip_site.client.get("/v1/models").json()["models"]
    assert described["picture"] == {"channels": 3, "rows": SIDE, "columns": SIDE, "frames": FRAMES}


def animated(count: int, side: int = SIDE) -> bytes:
    written = io.BytesIO()
    first, *others = [Image.new("RGB", (side, side), (9 * number, 0, 0)) for number in range(count)]
    first.save(written, "gif", save_all=True, append_images=others, duration=50)
    return written.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"GIF89a", "image is not a complete GIF, PNG or WEBP file"),
        (animated(5)[:-40], "image is not a complete GIF, PNG or WEBP file"),
        (b"no picture", "image is not a complete GIF, PNG or WEBP file"),
        (animated(17), "image: 17 frames; allowed: 16 at most"),
        (animated(2, side=520), "image has too many pixels; allowed: 262,144 in a frame"),
    ],
)
def test_what_is_no_clip_is_refused(clip_site: Serving, content: bytes, message: str) -> None:
    found = clip_site.post("/v1/caption", image=text_of(content))
    assert found.status_code == 400
    assert message in found.json()["error"]


@pytest.fixture
def clip_page(browser: Browser, clip_site: Serving) -> Iterator[Page]:
    with opened(browser, clip_site) as found:
        yield found


def size_of(page: Page) -> list[int]:
    found: list[int] = page.locator("canvas.picture").evaluate("picture => [picture.width, picture.height]")
    return found


def test_a_random_clip_is_there_at_once_and_is_a_gif(clip_page: Page) -> None:
    ready(clip_page)
    with clip_page.expect_response("**/v1/look") as answer:
        clip_page.get_by_role("button", name="Random clip").click()
    ready(clip_page)
    sent: Any = answer.value.request.post_data_json
    with Image.open(io.BytesIO(base64.b64decode(sent["image"]))) as given:
        assert given.format == "GIF"
        frame_FCYX = frames_of(given, "clip", ClipSize(SIDE, FRAMES))
    assert len(frame_FCYX) == 14
    assert len(np.unique(frame_FCYX.reshape(14, -1), axis=0)) > 3  # something moves
    assert size_of(clip_page) == [8 * SIDE, 2 * SIDE]


def test_a_chosen_clip_is_shown_frame_by_frame(clip_page: Page, folder: Path) -> None:
    ready(clip_page)
    content = (folder / "valid" / "00001.gif").read_bytes()
    file: FilePayload = {"name": "clip.gif", "mimeType": "image/gif", "buffer": content}
    with clip_page.expect_response("**/v1/look") as answer:
        clip_page.get_by_label("Choose a clip").set_input_files(file)
    ready(clip_page)
    sent: Any = answer.value.request.post_data_json
    assert base64.b64decode(sent["image"]) == content
    insight = json.loads(answer.value.body())
    down = insight["attention"]["cross"]["shape"][0] // 4
    assert size_of(clip_page) == [8 * SIDE, down * SIDE]
    words = words_of(clip_page)
    expect(clip_page.locator(".thumbnails.strips .thumbnail")).to_have_count(words.count())
    words.first.hover()
    assert clip_page.locator(".picture-input .shade").evaluate("canvas => canvas.width") == 256
