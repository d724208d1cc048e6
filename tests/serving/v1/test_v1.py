"""/v1: what goes beyond LibreTranslate, for every task."""

from __future__ import annotations

import base64
import io
import json
import math
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from saccade.inspection.views.view import with_views
from saccade.serving import work
from saccade.serving.models import ServedRun
from servers import Serving, predictor_of, serving


def picture(rows: int = 24, columns: int = 24, kind: str = "PNG", mode: str = "RGB") -> bytes:
    chance = np.random.default_rng(3)
    pixels = chance.integers(0, 256, (rows, columns, 3) if mode == "RGB" else (rows, columns), dtype=np.uint8)
    written = io.BytesIO()
    Image.fromarray(pixels, mode).save(written, kind)
    return written.getvalue()


def text_of(content: bytes) -> str:
    return base64.b64encode(content).decode()


def test_models_are_listed_with_what_they_can_do(all_served: Serving) -> None:
    found = all_served.client.get("/v1/models").json()["models"]
    tasks = {model["name"]: model["task"] for model in found}
    assert tasks == {
        "there": "translate", "back": "translate", "labels": "classify", "tags": "tag", "glimpses": "glimpse",
        "shapes": "caption", "texts": "write",
    }  # fmt: skip
    there = found[0]
    assert there["languages"]["target"] == {"code": "fr", "name": "French"}
    assert there["layers"] == {"cross": 2, "encoder": 2, "decoder": 2}
    assert there["beam"] == 2
    by_name = {model["name"]: model for model in found}
    assert by_name["labels"]["labels"] == ["x", "y"]
    assert by_name["glimpses"]["picture"] == {"channels": 1, "rows": 12, "columns": 12, "patch": 4}
    assert by_name["shapes"]["picture"] == {"channels": 3, "rows": 24, "columns": 24}


def test_translations_come_with_their_evidence(served: Serving, translating: list[ServedRun]) -> None:
    asked = {"q": ["a b c\nd e", " "], "alignment": True, "tokens": True, "num_best": 2}
    found = served.post("/v1/translate", **asked).json()
    assert (found["model"], found["source"], found["target"]) == ("there", "en", "fr")
    first, second = found["translations"][0]["sentences"]
    translator = predictor_of(translating[0])
    (seen,) = translator.look(["a b c"], num_best=2, width=2)
    assert first["text"] == seen.answer.text
    assert first["cut"] == "length"
    assert first["others"] == [
        {"text": other.text, "score": round(other.score, 6), "cut": "length"} for other in seen.others
    ]
    assert first["source_words"] == ["a", "b", "c"]
    best = seen.alignment().argmax(-1).tolist()[: len(first["words"])]
    assert first["alignment"] == " ".join(f"{left}-{right}" for right, left in enumerate(best) if left < 3)
    assert [math.log(token["probability"]) for token in first["tokens"]] == pytest.approx(
        seen.answer.log_probabilities, abs=1e-3
    )
    side = seen.sides["output"]
    assert [(token["text"], token["word"]) for token in first["tokens"]] == [
        *zip(side.pieces, side.word_of_piece, strict=True)
    ]
    alone = served.post("/v1/translate", q="a b c", tokens=True).json()["translations"][0]["sentences"][0]
    assert [*alone["words"], "</s>"][: alone["tokens"][-1]["word"] + 1] == [*alone["words"], *["</s>"] * alone["ended"]]
    assert found["translations"][0]["text"] == f"{first['text']}\n{second['text']}"
    assert found["translations"][1] == {
        "text": " ",
        "sentences": [{"source": "", "text": "", "score": 0.0, "ended": True, "others": []}],
    }


def test_texts_may_be_left_whole(served: Serving, translating: list[ServedRun]) -> None:
    whole, parts = (served.post("/v1/translate", q="a b\nc d", split=split).json() for split in (False, True))
    assert whole["translations"][0]["text"] == predictor_of(translating[0]).predict(["a b\nc d"])[0].text
    assert [len(found["translations"][0]["sentences"]) for found in (whole, parts)] == [1, 2]


@pytest.mark.parametrize(
    ("asked", "model"),
    [({}, "there"), ({"model": "back"}, "back"), ({"source": "fr"}, "back"), ({"target": "fr"}, "there")],
)
def test_a_model_is_chosen_by_name_or_languages(served: Serving, asked: dict[str, str], model: str) -> None:
    assert served.post("/v1/translate", q="a", **asked).json()["model"] == model


def test_looking_shows_the_layers_and_heads_asked_for(served: Serving, translating: list[ServedRun]) -> None:
    asked = {"text": "a b c", "kinds": ["cross", "encoder"], "norms": True}
    whole = served.post("/v1/look", **asked).json()
    (seen,) = translating[0].predictor.look(["a b c"], kinds=("cross", "encoder"), norms=True)
    assert whole == seen.plain()
    part = served.post("/v1/look", **asked, layers=[1], heads=[1, 0]).json()
    for kind in ("cross", "encoder"):
        for name in ("weights", "norms"):
            layer = whole["attention"][kind][name][1]
            assert part["attention"][kind][name] == [[layer[1], layer[0]]]
        assert (part["attention"][kind]["layers"], part["attention"][kind]["heads"]) == ([1], [1, 0])


def test_views_go_through_all_layers(served: Serving, translating: list[ServedRun]) -> None:
    found = served.post("/v1/look", text="a b c", views=["rollout", "flow"]).json()
    (seen,) = translating[0].predictor.look(["a b c"], kinds=("cross", "encoder", "decoder"))
    assert found["views"] == with_views(seen, ["rollout", "flow"], "cross").plain()["views"]
    assert list(found["attention"]) == ["cross"]
    refused = served.post("/v1/look", text="a " * 60, views=["flow"])
    assert refused.status_code == 400
    assert "views: flow of 3,721 pairs of pieces requested; allowed: 2,000" in refused.json()["error"]


def test_too_many_numbers_are_refused(served: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "MAX_WEIGHTS", 100)
    found = served.post("/v1/look", text="a b c d e f g", target="a b c d e f g")
    assert found.status_code == 400
    assert "numbers requested; allowed: 100 (choose layers or heads)" in found.json()["error"]
    assert served.post("/v1/look", text="a", target="b", layers=[0]).status_code == 200


def test_a_given_output_is_read(served: Serving, translating: list[ServedRun]) -> None:
    found = served.post("/v1/look", text="a b c", target="c b").json()
    (seen,) = translating[0].predictor.look(["a b c"], targets=["c b"])
    assert found["sides"]["output"]["words"] == ["c", "b", "</s>"]
    assert found == seen.plain()


def test_labels_and_tags(all_served: Serving, judging: list[ServedRun]) -> None:
    labels, tags = predictor_of(judging[0]), predictor_of(judging[1])
    found = all_served.post("/v1/classify", q=["a 1", "b 2"], attention=True, key_terms=1).json()
    expected = labels.predict(["a 1", "b 2"], attention=True, key_terms=1)
    assert (found["model"], [one["label"] for one in found["answers"]]) == ("labels", [one.label for one in expected])
    assert found["answers"][0]["attention"] == pytest.approx(expected[0].attention.numpy())
    assert len(found["answers"][1]["key_terms"]) == 1
    tagged = all_served.post("/v1/tag", q="a b").json()["answers"]
    assert [one["tags"] for one in tagged] == [list(one.tags) for one in tags.predict(["a b"])]
    assert all_served.post("/v1/look", model="labels", text="a 1").json()["task"] == "classify"
    assert all_served.post("/v1/look", model="tags", text="a b").json()["answer"]["words"] == ["a", "b"]


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_pictures_come_as_json_or_as_a_file(all_served: Serving, kind: str) -> None:
    content = picture(kind=kind)
    for path, model in (("/v1/caption", "shapes"), ("/v1/glimpse", "glimpses")):
        as_json = all_served.post(path, image=text_of(content)).json()
        address = all_served.post(path, image=f"data:image/png;base64,{text_of(content)}").json()
        as_file = all_served.client.post(
            path, files={"image": ("../../etc/x.png", content)}, data={"model": model}
        ).json()
        assert as_json == address == as_file, path
        assert as_json["model"] == model
    seen = all_served.post("/v1/look", model="shapes", image=text_of(content)).json()
    assert seen["attention"]["cross"]["shape"] == [6, 6]
    path = all_served.post("/v1/look", model="glimpses", image=text_of(content)).json()["answer"]["path"]
    assert len(path) == 2


def test_captions_tell_where_they_looked(all_served: Serving) -> None:
    found = all_served.post("/v1/caption", image=text_of(picture()), num_best=2, attention=True).json()["answers"]
    assert len(found) == 2
    assert np.shape(found[0]["attention"]) == (len(found[0]["log_probabilities"]), 6, 6)
    plain = all_served.post("/v1/caption", image=text_of(picture())).json()["answers"]
    assert "attention" not in plain[0]


@pytest.mark.parametrize(
    ("path", "asked", "message"),
    [
        ("/v1/translate", {}, "q: Field required"),
        ("/v1/translate", {"q": "a", "beam": 17}, "beam: Input should be less than or equal to 16"),
        ("/v1/translate", {"q": "a", "beam": 2, "num_best": 3}, "num_best: 3 given; a beam of 2"),
        ("/v1/translate", {"q": "a", "bean": 2}, "bean: Extra inputs are not permitted"),
        ("/v1/translate", {"q": "a", "model": "x"}, "no model of the task translate has this name; allowed: there"),
        ("/v1/translate", {"q": "a", "model": "there", "target": "en"}, "model there translates en to fr only"),
        ("/v1/translate", {"q": "a", "target": "de"}, "no model translates between these languages"),
        ("/v1/translate", {"q": "x" * 20_001}, "exceeds text limit (20000)"),
        ("/v1/look", {"text": "a", "layers": [2]}, "layers: 2 given; allowed for cross: 0 to 1"),
        ("/v1/look", {"text": "a", "kinds": ["self"]}, "kinds.0: Input should be 'cross'"),
        ("/v1/look", {"text": "x" * 1001}, "request (1001) exceeds text limit (1000) for a text that is not split"),
        ("/v1/look", {"text": "a " * 257}, "request (257 pieces) exceeds text limit (256 pieces)"),
        ("/v1/translate", {"q": ["a", "a " * 257], "split": False}, "request (257 pieces) exceeds text limit"),
        ("/v1/look", {"text": " "}, "text is blank"),
        ("/v1/look", {}, "missing text parameter: this model reads texts"),
        ("/v1/look", {"model": "x"}, "no model has this name; allowed: there, back"),
        ("/v1/classify", {"q": "a"}, "this server has no model of the task classify"),
        ("/v1/caption", {"image": ""}, "this server has no model of the task caption"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(served: Serving, path: str, asked: dict[str, Any], message: str) -> None:
    found = served.post(path, **asked)
    assert found.status_code == 400
    assert found.json()["error"].startswith("Invalid request: ")
    assert message in found.json()["error"]


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ("?", "image is not base64"),
        (text_of(b"GIF89a"), "image is not a complete PNG or JPEG file"),
        (text_of(picture()[:200]), "image is not a complete PNG or JPEG file"),
        (text_of(picture(kind="BMP")), "image is not a complete PNG or JPEG file"),
        (None, "image: Field required"),
    ],
)
def test_what_is_no_picture_is_refused(all_served: Serving, image: str | None, message: str) -> None:
    found = all_served.post("/v1/glimpse", **({} if image is None else {"image": image}))
    assert (found.status_code, found.json()) == (400, {"error": f"Invalid request: {message}"})


@pytest.mark.parametrize("side", [2_100, 10_000, 20_000])  # Pillow itself warns at the second, and refuses the third
def test_a_small_file_of_a_huge_picture_is_not_unpacked(all_served: Serving, side: int) -> None:
    head = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head))
    empty = struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))
    found = all_served.post("/v1/caption", image=text_of(content + empty))
    assert found.status_code == 400
    assert "image has too many pixels; allowed: 4,194,304 in all" in found.json()["error"]


def test_deep_json_is_refused(served: Serving) -> None:
    for content in (b'{"q":' * 70_000, b"[" * 300_000, b"{", b"\xff"):
        found = served.client.post("/v1/translate", content=content, headers={"Content-Type": "application/json"})
        assert found.status_code == 400, content[:10]


@pytest.mark.parametrize(
    "text",
    ["\x00\x01\x02", "\u202eabc\u202c", "\u200b\u200d\ufeff", "a" * 5000, "😀" * 300, "\r\n\v\f\x1c\x85\u2028",
     "�", "e\u0301" * 50,
     "Z\u0351\u036b\u0343" * 40, "\U0010ffff\ufdd0", "\ud800 half \udc00"],
)  # fmt: skip
def test_strange_texts_are_texts(served: Serving, text: str) -> None:
    asked = ({"q": text, "source": "auto", "target": "fr", "format": kind} for kind in ("text", "html"))
    for path, body in (("/v1/translate", {"q": text, "alignment": True}), *(("/translate", one) for one in asked)):
        found = served.client.post(path, content=json.dumps(body), headers={"Content-Type": "application/json"})
        assert found.status_code == 200, found.text
        assert "error" not in found.json()


def test_metrics_count(translating: list[ServedRun]) -> None:
    with serving(translating[:1]) as counted:
        for _ in range(3):
            counted.post("/translate", q="a b! C", source="en", target="fr")
        counted.post("/translate")
        counted.client.get("/no/such/place")
        lines = counted.client.get("/metrics").text.splitlines()
    assert 'saccade_requests_total{route="/translate",status="200"} 3.0' in lines
    assert 'saccade_requests_total{route="/translate",status="400"} 1.0' in lines
    assert 'saccade_requests_total{route="other",status="404"} 1.0' in lines
    assert 'saccade_batch_size_sum{model="there"} 6.0' in lines
    assert 'saccade_queue_length{model="there"} 0.0' in lines
    assert any(line.startswith('saccade_tokens_total{model="there"}') for line in lines)
