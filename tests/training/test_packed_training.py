"""Packed batches, recomputed blocks and batches loaded ahead train what plain ones train."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from saccade.data.batches import bucket_pairs
from saccade.data.prefetch import Prefetcher
from saccade.errors import UserError
from saccade.runs import config as config_file
from saccade.runs import train
from saccade.runs.events import TrainingEvent
from saccade.tasks.translate import batches as batching
from saccade.tasks.translate import task
from saccade.tasks.translate.config import TranslateConfig
from saccade.tasks.translate.tokenizers import prepare_tokenizers
from saccade.training.options import Plan

LINES = [" ".join("abcdefgh"[(row + step) % 8] for step in range(2 + row % 5)) for row in range(60)]


def config(folder: Path, *overrides: str) -> TranslateConfig:
    text = folder / "text.txt"
    text.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    sides = {"source": str(text), "target": str(text)}
    content = {
        "data": {"train": sides, "valid": sides},
        "tokenizer": {"kind": "words"},
        "model": {"width": 12, "num_heads": 2, "hidden_width": 14, "num_layers": 2, "dropout": 0.2},
        "training": {
            "precision": "float32",
            "max_steps": 6,
            "tokens_per_batch": 64,
            "warmup_steps": 2,
            "validate_every": 3,
        },
    }
    path = folder / "run.yaml"
    path.write_text(json.dumps(content), encoding="utf-8")
    return config_file.load_config(path, list(overrides))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_packed_batch_has_the_loss_and_gradients_of_its_sentences(tmp_path: Path, norm: str) -> None:
    made = config(tmp_path, f"model.norm={norm}", "training.batches=packed", "training.tokens_per_batch=128")
    both = task.sides(made, prepare_tokenizers(made, tmp_path))
    (store,) = task._stores(made, both, tmp_path / ".data", Console(quiet=True))[0]
    network = task.model(made, both).eval()
    rows, found = np.arange(17), []
    padded_run = config(tmp_path, f"model.norm={norm}", "training.batches=padded")
    plans: tuple[Plan, ...] = (
        batching.plan(made, batching.TrainingPairs.of([store])),
        bucket_pairs(store, tokens_per_batch=128, seed=1),
    )
    for plan, run in zip(plans, (made, padded_run), strict=True):
        batch = plan.load(rows)
        loss, likelihood = batching.choose_loss(run, network)(batch)
        gradients = torch.autograd.grad(loss, list(network.parameters()))
        found.append((batch.num_items, loss, likelihood, *gradients))
    packed, padded = found
    assert packed[0] == padded[0]
    for one, other in zip(packed[1:], padded[1:], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_run_on_packed_batches_goes_on_and_learns(tmp_path: Path) -> None:
    made = config(tmp_path, "training.batches=packed", "training.learning_rate=0.01")
    for steps in (3, 6):
        training = made.training.model_copy(update={"max_steps": steps})
        train.train(made.model_copy(update={"training": training}), tmp_path / "run", Console(quiet=True))
    rows = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text("utf-8").splitlines()]
    losses = [row["loss"] for row in rows if "loss" in row]
    assert losses[-1] < losses[0]
    assert config_file.load_config(tmp_path / "run" / "config.yaml").training.batches == "packed"


def test_auto_means_padded_on_a_cpu(tmp_path: Path) -> None:
    train.train(config(tmp_path, "device=cpu"), tmp_path / "run", Console(quiet=True))
    assert config_file.load_config(tmp_path / "run" / "config.yaml").training.batches == "padded"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.positions=relative", "relative positions need padded ones"),
        ("training.consistency=1", "training.consistency reads every row twice"),
        ("model.score=additive", "its kernel knows dot products under a softmax, not additive under softmax"),
        ("model={kind: rnn, width: 12, embedding_width: 12}", "RNNs read padded ones"),
    ],
)
def test_what_cannot_be_packed_is_refused(tmp_path: Path, override: str, message: str) -> None:
    made = config(tmp_path, override, "training.batches=packed")
    with pytest.raises(
        UserError, match=rf"training\.batches: 'packed' given, but {message}; allowed: auto, even, padded"
    ):
        train.train(made, tmp_path / "run", Console(quiet=True))


@pytest.mark.parametrize("kind", ["rnn", "transformer"])
def test_even_batches_have_few_sizes_and_the_same_losses(tmp_path: Path, kind: str) -> None:
    made = config(tmp_path, f"model={{kind: {kind}, size: tiny}}", "training.batches=even")
    both = task.sides(made, prepare_tokenizers(made, tmp_path))
    (store,) = task._stores(made, both, tmp_path / ".data", Console(quiet=True))[0]
    network = task.model(made, both).eval()
    even, padded = (
        batching.plan(made, batching.TrainingPairs.of([store])),
        bucket_pairs(store, tokens_per_batch=64, seed=1),
    )
    rows = even.epoch(0)
    assert sorted(row for batch in rows for row in batch) == list(range(60))
    batches = [even.load(batch) for batch in rows]
    assert len({batch.source_BS.shape for batch in batches}) == 1  # all sentences have at most 8 tokens
    assert {batch.source_BS.shape for batch in batches} == {batch.read_BT.shape for batch in batches}
    for some, batch in zip(rows, batches, strict=True):
        wanted = padded.load(some)
        assert batch.num_items == wanted.num_items
        for one, other in zip(*(batching.choose_loss(made, network)(own) for own in (batch, wanted)), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_recomputed_blocks_train_bitwise_the_same_weights(tmp_path: Path) -> None:
    weights = []
    for name, value in (("kept", "false"), ("recomputed", "true")):
        train.train(config(tmp_path, f"training.recompute={value}"), tmp_path / name, Console(quiet=True))
        weights.append((tmp_path / name / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


def test_batches_are_loaded_ahead_in_order() -> None:
    rows, threads = [[number] for number in range(7)], []

    def loaded(row: list[int]) -> int:
        threads.append(threading.current_thread().name)
        return row[0]

    ahead = Prefetcher(loaded, depth=2)
    order = [0, 1, 2, 5, 6]  # a jump, as at the end of an epoch
    assert [ahead.take(rows[at], rows[at + 1 : at + 4]) for at in order] == order
    ahead.close()
    assert threads.count("MainThread") == 2  # the first, and the one after the jump


def test_a_mistake_while_loading_ahead_reaches_the_one_who_waits() -> None:
    def loaded(row: int) -> int:
        if row == 1:
            raise UserError("row 1 is bad")
        return row

    ahead, rows = Prefetcher(loaded, depth=1), [0, 1]
    assert ahead.take(rows[0], rows[1:]) == 0
    with pytest.raises(UserError, match="row 1 is bad"):
        ahead.take(rows[1], [])


@pytest.mark.parametrize("batches", ["padded", "packed"])
def test_a_run_that_reads_portions_goes_on_in_the_middle_of_one(tmp_path: Path, batches: str) -> None:
    made = config(tmp_path, f"training.batches={batches}", "training.shuffle_buffer=25", "training.max_steps=14")

    def trained(name: str, *stops: int) -> tuple[bytes, str]:
        def stop(event: TrainingEvent) -> None:
            if event.step in stops:
                event.stop()

        for _ in range(len(stops) + 1):
            train.train(made, tmp_path / name, Console(quiet=True), callbacks=[stop])
        log = (tmp_path / name / "log.jsonl").read_text("utf-8")
        return (tmp_path / name / "model.safetensors").read_bytes(), log

    weights, log = trained("whole")
    assert trained("stopped", 4, 10)[0] == weights
    assert json.loads(log.splitlines()[-1])["epoch"] >= 2  # the third portion of the first pass, or a later one
