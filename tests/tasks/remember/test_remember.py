"""Sequences that are written back, from the command line: every command, and what one learns in a few steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from saccade.cli import app
from saccade.errors import UserError
from saccade.runs.load import load_run as load
from saccade.serving.models import load_runs
from saccade.tasks.remember.result import HeadTracks, Recollection, SizeCounts
from saccade.tasks.remember.sequences import (
    MOST_STEPS,
    BitSequence,
    Encoder,
    NumberRange,
    SequenceBatches,
    Size,
    parse_sequence,
)
from servers import serving

TEXT = "110 010"
CONFIG: dict[str, Any] = {
    "task": "remember",
    "device": "cpu",
    "data": {"width": 3, "lengths": [1, 2], "test_lengths": [2, 5], "num_valid": 20, "num_test": 20},
    "model": {"controller": "feed_forward", "width": 24, "places": 6, "cells": 5},
    "training": {"max_steps": 300, "validate_every": 150, "learning_rate": 0.02, "warmup_steps": 10},
}


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("remember")
    (folder / "bits.yaml").write_text(json.dumps(CONFIG), encoding="utf-8")
    found = call("train", folder / "bits.yaml", "--run", folder / "run")
    assert found.exit_code == 0, found.output
    assert "random sequences of 1 to 2 vectors of 3 bits" in found.output
    return folder


def test_it_learns(folder: Path) -> None:
    """By chance half of the bits are right."""
    found = json.loads(call("evaluate", folder / "run", "--json").stdout)
    assert [(one["length"], one["repeats"], one["num_sequences"]) for one in found["sizes"]] == [(2, 1, 20), (5, 1, 20)]
    assert found["bits_right"] == found["sizes"][0]["bits_right"] > 85
    said = call("evaluate", folder / "run").stdout
    assert f"length 2: {found['bits_right']:.2f}% of the bits right" in said


def test_no_engine_can_run_it(folder: Path) -> None:
    refused = call("export", folder / "run", "onnx", folder / "out").exception
    assert isinstance(refused, UserError), refused
    assert "no format can say a model of this task" in str(refused)


def test_files_are_scored_too(folder: Path) -> None:
    (folder / "mine.txt").write_text("110 010\n001\n\n111 000\n", encoding="utf-8")
    found = json.loads(call("evaluate", folder / "run", folder / "mine.txt", "--json").stdout)
    assert [(one["length"], one["num_sequences"]) for one in found["sizes"]] == [(1, 1), (2, 2)]


def test_outputs_are_the_same_however_they_are_asked_for(folder: Path) -> None:
    recaller = load(folder / "run")
    told, other, text = recaller.predict([BitSequence(np.array([[1, 1, 0], [0, 1, 0]], np.uint8)), "001 x2", TEXT])
    assert told.plain() == text.plain()
    assert len(other.words) == 2
    (folder / "asked.txt").write_text(f"{TEXT}\n", encoding="utf-8")
    found = json.loads(call("predict", folder / "run", "--input", folder / "asked.txt", "--json").stdout)
    assert found["text"] == text.line()
    assert found["score"] == pytest.approx(text.plain()["score"], abs=1e-5)
    shown = call("predict", folder / "run", "--input", folder / "asked.txt", "--attention").stdout
    assert "reads (" in shown


def test_look_shows_the_heads_and_what_they_read(folder: Path) -> None:
    (found,) = load(folder / "run").look([TEXT], norms=True)
    assert found.maps["cross"].weight_LHTS.shape == (1, 1, 3, 3)
    heads = found.maps["decoder"]
    assert heads.weight_LHTS.shape == (1, 2, 6, 6)  # a head that reads and one that writes, over six steps and places
    torch.testing.assert_close(heads.weight_LHTS.sum(-1), torch.ones(1, 2, 6))
    assert heads.norm_LHTS is not None
    assert found.sides["steps"].words == ["110", "010", "</s>", *found.answer.words, "</s>"]
    shown = call("look", folder / "run", TEXT)
    assert shown.exit_code == 0, shown.output
    assert "writes (" in shown.stdout
    for name in ("look.html", "look.png"):
        drawn = call("look", folder / "run", TEXT, "--draw", folder / name)
        assert drawn.exit_code == 0, drawn.output
        assert (folder / name).stat().st_size > 1000


def test_a_report_draws_the_heads(folder: Path) -> None:
    page = (folder / "run" / "report.html").read_text("utf-8")
    assert "where its heads were" in page
    assert page.count("<img") >= 2


def test_a_server_answers_and_shows_what_was_read(folder: Path) -> None:
    with serving(load_runs([folder / "run"])) as site:
        first, second = site.post("/v1/remember", q=[TEXT, ""]).json()["answers"]
        assert first["text"] == load(folder / "run").predict([TEXT])[0].line()
        assert second["text"] == ""
        seen = site.post("/v1/look", text=TEXT).json()
        assert seen["sides"]["source"]["words"] == ["110", "010", "</s>"]
        refused = site.post("/v1/remember", q="120")
        assert refused.status_code == 400
        assert "'120' given" in refused.json()["error"]


def test_a_plain_rnn_learns_beside_it_and_has_no_heads(folder: Path) -> None:
    changed = ("model={kind: gru, width: 16}", "training.max_steps=2", "training.validate_every=2")
    found = call("train", folder / "bits.yaml", *changed, "--run", folder / "plain")
    assert found.exit_code == 0, found.output
    assert len(load(folder / "plain").predict([TEXT])[0].words) == 2
    assert call("look", folder / "plain", TEXT).exit_code == 0
    refused = call("predict", folder / "plain", TEXT, "--attention").exception
    assert "--attention: given, but this model's task has no use for it" in str(refused)


@pytest.mark.usefixtures("quick_start")
@pytest.mark.parametrize("model", ["{controller: lstm, width: 8, places: 6, cells: 5}", "{kind: lstm, width: 8}"])
def test_a_killed_training_ends_with_the_same_weights(folder: Path, model: str) -> None:
    short = (f"model={model}", "training.max_steps=8", "training.save_every=3", "training.warmup_steps=2")
    found = call("train", folder / "bits.yaml", *short, "--verify-resume", "--kills", 1)
    assert found.exit_code == 0, found.output
    assert "the same" in found.output


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("data.lengths=[5, 2]", "data.lengths: [5, 2] given; the first must not be above the second"),
        ("data.test_lengths=[9000]", f"length 9000 takes 18,002 steps; at most {MOST_STEPS:,}"),
        ("model.normalizer=hard", "allowed: softmax, sparsemax, entmax15"),
        ("model.places=2", "model.places: 2 given"),
        ("model={score: location, places: 600}", "the location score has a row for each of 512"),
        ("model.kind=brain", "model"),
        ("training.precision=bfloat16", "training.precision"),
    ],
)
def test_mistakes_in_a_config(changed: str, message: str, folder: Path, tmp_path: Path) -> None:
    refused = call("train", folder / "bits.yaml", changed, "--run", tmp_path / "run").exception
    assert isinstance(refused, UserError), refused
    assert message in str(refused)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("text", ["11", "1101", "11a", "110 x0", "x2 110", "110 ２10"])
def test_wrong_inputs_name_the_word(text: str) -> None:
    with pytest.raises(UserError, match="given; allowed: vectors of 3 bits"):
        parse_sequence(text, 3)


def test_a_sequence_may_be_wanted_several_times() -> None:
    sequence = parse_sequence(" 110  001 x12 ", 3)
    assert (sequence.words, sequence.repeats, sequence.size.num_steps) == (["110", "001"], 12, 2 + 1 + 24 + 1)
    assert parse_sequence("", 3).bit_SW.shape == (0, 3)
    with pytest.raises(UserError, match=f"at most {MOST_STEPS:,}"):
        parse_sequence("110 x9999", 3)


def test_a_batch_by_hand() -> None:
    """Two vectors of two bits twice: inputs with the sign of the end and the repeats, outputs with their end."""
    batch = Encoder(2, (1, 3)).batch([BitSequence(np.array([[1, 0], [1, 1]], np.uint8), 3)])
    scaled = (3 - 2) / (2 / 3) ** 0.5
    assert batch.input_BTC[0, :4].tolist() == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 0, 1, pytest.approx(scaled)],
        [0, 0, 0, 0],
    ]
    assert batch.input_BTC.shape == (1, 2 + 1 + 6 + 1, 4)
    assert batch.input_BTC[0, 3:].abs().sum() == 0
    assert batch.output_BTC[0].tolist() == [[1, 0, 0], [1, 1, 0]] * 3 + [[0, 0, 1]]
    assert batch.num_items == 21


def test_batches_are_a_function_of_seed_and_epoch() -> None:
    def draw(seed: int, epoch: int) -> tuple[list[Size], torch.Tensor]:
        plan = SequenceBatches(Encoder(3, (1, 2)), NumberRange.of((2, 5)), NumberRange.of((1, 2)), 4, seed)
        rows = plan.epoch(epoch)
        return [row.size for row in rows], plan.load(rows[7]).input_BTC

    sizes, inputs = draw(1, 0)
    assert {size.length for size in sizes} == {2, 3, 4, 5}
    assert {size.repeats for size in sizes} == {1, 2}
    again = draw(1, 0)
    assert sizes == again[0]
    assert torch.equal(inputs, again[1])
    for other in (draw(2, 0), draw(1, 1)):
        assert other[0] != sizes


def test_repeats_grow_to_the_most() -> None:
    plan = SequenceBatches(Encoder(3, (1, 4)), NumberRange.of((2, 3)), NumberRange.of((1, 4)), 4, 1, growing=900)
    sizes = [row.size for number in range(3) for row in plan.epoch(number)]
    seen = [{size.repeats for size in sizes[first : first + 100]} for first in (0, 350, 650, 950)]
    assert seen == [{1}, {1, 2}, {1, 2, 3}, {1, 2, 3, 4}]
    assert {size.length for size in sizes[:100]} == {2, 3}
    assert 4 not in {size.repeats for size in sizes[:899]}


def test_few_lengths_may_be_trained() -> None:
    lengths = NumberRange.of((2, 20), 5)
    assert lengths.number_N.tolist() == [2, 4, 6, 11, 20]
    assert set(lengths.draw(np.arange(0, 1, 0.01)).tolist()) == {2, 4, 6, 11, 20}
    assert NumberRange.of((1, 4), 9).number_N.tolist() == [1, 2, 3, 4]
    assert NumberRange.of((3, 3), 2).number_N.tolist() == [3]


def test_counts_by_hand() -> None:
    given = BitSequence(np.array([[1, 0]], np.uint8), 2)
    wrong = Recollection(given, np.array([[1, 0], [1, 1]], np.uint8), torch.tensor([[0.9, 0.2], [0.6, 0.75]]), 0.5)
    right = Recollection(given, np.array([[1, 0], [1, 0]], np.uint8), torch.tensor([[0.9, 0.2], [0.6, 0.4]]), 0.5)
    assert wrong.bits_right == 75
    assert np.exp(wrong.log_probabilities).tolist() == pytest.approx([0.72, 0.45, 0.5])
    counts = SizeCounts.of(given.size, [wrong, right])
    assert (counts.bits_right, counts.exact) == (87.5, 50)


def test_what_was_read_is_traced_to_the_step_that_wrote_it() -> None:
    """Step 0 writes to place 2, step 1 to place 0; the head that reads visits place 0, and then half of place 2."""
    writes = torch.eye(3)[[2, 0, 1, 1]]
    reads = torch.tensor([[0.0, 1, 0], [0, 1, 0], [1, 0, 0], [0.0, 0.5, 0.5]])
    tracks = HeadTracks(torch.stack([reads, writes]), 1)
    assert tracks.names == ["reads", "writes"]
    torch.testing.assert_close(tracks.sources(2), torch.tensor([[0.0, 1.0], [1 / 3, 2 / 3]]))
    assert tracks.visited() == slice(0, 3)
