"""Texts that are given word by word, with further columns behind the words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from saccade.runs import config as config_file
from saccade.runs import train
from saccade.serving.models import load_runs
from servers import Serving, serving


@pytest.fixture(scope="module")
def tagging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A tagger that reads a second column, which alone tells the tag, and one that reads none."""
    folder = tmp_path_factory.mktemp("tagging")
    (folder / "rows").write_text("\n".join(["same up A\nsame down B\n", "same down B\nsame up A\n"] * 20), "utf-8")
    content: dict[str, Any] = {
        "task": "tag",
        "device": "cpu",
        "model": {"width": 16, "dropout": 0.0},
        "training": {"max_steps": 40, "validate_every": 40, "learning_rate": 0.02, "warmup_steps": 5},
    }
    for name, columns in (("second", [1]), ("plain", [])):
        data = {"train": f"{folder}/rows", "valid": f"{folder}/rows", "feature_columns": columns}
        train.train(config_file.check_config({**content, "data": data}, name), folder / name, Console(quiet=True))
    with serving(load_runs([folder / "second", folder / "plain"])) as found:
        yield found


def test_words_come_as_lists_or_as_lines(tagging: Serving) -> None:
    words: Any = {"words": ["same", "same"], "column 1": ["down", "up"]}
    lines = "same down\nsame\tup"
    found = tagging.post("/v1/tag", q=[words, lines, ""]).json()["answers"]
    assert [one["tags"] for one in found] == [["B", "A"], ["B", "A"], []]
    assert tagging.post("/v1/tag", q=words, probabilities=True).json()["answers"][0]["tags"] == ["B", "A"]
    seen = tagging.post("/v1/look", text=lines).json()
    assert (seen["answer"]["tags"], seen["answer"]["words"]) == (["B", "A"], ["same", "same"])
    plain = tagging.post("/v1/tag", q={"words": ["same", "same"]}, model="plain").json()["answers"]
    assert plain[0]["words"] == ["same", "same"]
    by_name = {model["name"]: model["columns"] for model in tagging.client.get("/v1/models").json()["models"]}
    assert by_name == {"second": ["column 1"], "plain": []}


@pytest.mark.parametrize(
    ("q", "said"),
    [
        ("same up down", "sentence 1, line 1: 3 columns; this model reads a word, column 1"),
        ("same", "sentence 1, line 1: 1 column; this model reads a word, column 1"),
        ({"words": ["same"]}, "q: words given; this model reads words, column 1"),
        ({}, "q: nothing given; this model reads words, column 1"),
        (
            {"words": ["same"], "column 1": ["up"], "pos": ["N"]},
            "q: words, column 1, pos given; this model reads words",
        ),
        ({"words": ["same"], "column 1": []}, "q.column 1: 0 given for 1 words; there must be one for each"),
        ({"words": ["a b"], "column 1": ["up"]}, "q.words: 'a b' given; each must be one word without spaces"),
        ({"words": [""], "column 1": ["up"]}, "q.words: '' given; each must be one word without spaces"),
        ({"words": "same", "column 1": "up"}, "q"),
        ([["same"]], "q"),
    ],
)
def test_other_columns_are_refused_in_one_line(tagging: Serving, q: Any, said: str) -> None:
    refused = tagging.post("/v1/tag", q=q)
    assert refused.status_code == 400
    assert said in refused.json()["error"]
    assert "\n" not in refused.json()["error"]
