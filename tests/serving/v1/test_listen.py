"""Sounds that are sent to a server: heard as from a file, looked into, and refused in one line."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import soundfile

from runs import make_run
from saccade.serving.models import ServedRun, load_runs
from saccade.serving.settings import MAX_SECONDS
from servers import Serving, serving
from sounds import make_hearing, tone, write_wav


class Hearing(NamedTuple):
    """A server of a run that hears, and of one that reads texts; and some files."""

    serving: Serving
    run: ServedRun
    files: list[Path]


@pytest.fixture(scope="module")
def hearing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hearing]:
    folder = tmp_path_factory.mktemp("hearing")
    files = make_hearing(folder / "hears")
    make_run(folder / "reads", "languages.source=en", "languages.target=fr")
    hears, reads = load_runs([folder / "hears", folder / "reads"])
    with serving([hears, reads]) as found:
        yield Hearing(found, hears, files)


def coded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def test_a_sound_is_heard_as_its_file_is(hearing: Hearing) -> None:
    file = hearing.files[4]
    (wanted,) = hearing.run.predictor.predict([str(file)])
    found = hearing.serving.post("/v1/listen", sound=coded(file.read_bytes()), num_best=2).json()
    assert found["model"] == "hears"
    (answer,) = found["answers"]
    assert (answer["text"], answer["score"]) == (wanted.line(), pytest.approx(wanted.plain()["score"], abs=1e-4))
    assert len(answer["others"]) == 1
    form = hearing.serving.client.post(
        "/v1/listen", files={"sound": ("a.wav", file.read_bytes())}, data={"num_best": "2"}
    )
    assert form.json() == found


def test_what_it_heard_is_shown_as_one_row_of_cells(hearing: Hearing) -> None:
    content = hearing.files[4].read_bytes()
    found = hearing.serving.post("/v1/look", model="hears", sound=coded(content)).json()
    cross = found["attention"]["cross"]
    num_steps = len(found["sides"]["source"]["pieces"])
    assert cross["shape"] == [1, num_steps]
    assert np.array(cross["weights"]).shape[-1] == num_steps > 1
    described = {model["name"]: model for model in hearing.serving.client.get("/v1/models").json()["models"]}
    assert (described["hears"]["reads"], described["reads"]["reads"]) == ("sound", "text")
    assert (described["hears"]["kinds"], described["hears"]["title"]) == (["cross"], "Sound to text")


def test_floating_point_and_channels_are_read(hearing: Hearing) -> None:
    samples = np.stack([tone(450, 0.3), np.zeros(2400, np.float32)], 1)
    file = io.BytesIO()
    soundfile.write(file, samples, 8000, format="WAV", subtype="FLOAT")
    assert hearing.serving.post("/v1/listen", sound=coded(file.getvalue())).status_code == 200


def test_texts_are_not_read_as_names_of_files(hearing: Hearing) -> None:
    name = str(hearing.files[0])
    assert hearing.serving.post("/v1/translate", q=name).json()["model"] == "reads"
    for path, body in {
        "/v1/translate": {"q": name, "model": "hears"},
        "/v1/look": {"text": name, "model": "hears"},
        "/v1/listen": {"q": name},
    }.items():
        assert hearing.serving.post(path, **body).status_code == 400
    languages = hearing.serving.client.get("/languages").json()
    assert [one["code"] for one in languages] == ["en", "fr"]


def slow(tmp_path: Path) -> bytes:
    """A second an hour: it would be resampled to gigabytes."""
    return write_wav(tmp_path / "slow.wav", tone(0.1, MAX_SECONDS + 1, rate=1), rate=1).read_bytes()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "sound: Field required"),
        ({"sound": "%"}, "sound is not base64"),
        ({"sound": ""}, "sound is not a WAV file"),
        ({"sound": coded(b"OggS" + bytes(40))}, "sound is not a WAV file"),
        ({"sound": coded(b"RIFF\x00\x00\x00\x00WAVEfmt ")}, "this is not a WAV file"),
        ({"sound": "slow"}, "sound has 61 seconds; allowed: 60"),
        ({"sound": "good", "model": "reads"}, "model: no model with this name reads sounds; allowed: hears"),
        ({"sound": "good", "beam": 99}, "beam"),
        ({"sound": "good", "speed": 2}, "speed"),
    ],
)
def test_what_is_no_sound_is_refused_in_one_line(
    hearing: Hearing, body: dict[str, Any], said: str, tmp_path: Path
) -> None:
    known = {"slow": slow(tmp_path), "good": hearing.files[0].read_bytes()}
    given = {**body, "sound": coded(known[body["sound"]])} if body.get("sound") in known else body
    refused = hearing.serving.post("/v1/listen", **given)
    assert refused.status_code == 400
    assert said in refused.json()["error"]
    assert "\n" not in refused.json()["error"]
