"""How long a run trains by itself, and what it says of it."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from saccade.config import base
from saccade.decoding.limits import PairLengths
from saccade.runs import config as config_file
from saccade.runs import train
from saccade.tasks import steps
from saccade.tasks.translate import batches
from saccade.tasks.translate.config import TranslateConfig

FILES = {"source": "nowhere"}


def plan_of(num_batches: int) -> Any:
    return SimpleNamespace(epoch=lambda number: list(range(num_batches)))


def config_of(**training: Any) -> Any:
    return config_file.check_config({"data": {"train": FILES, "valid": FILES}, "training": training}, "test")


@pytest.mark.parametrize(
    ("num_batches", "training", "expected"),
    [
        (7, {}, (2000, 200, 200)),  # at least
        (61, {}, (3660, 366, 366)),
        (61, {"accumulate": 3}, (2000, 200, 200)),  # 21 steps an epoch
        (5003, {}, (10_000, 1000, 500)),  # at most
        (7, {"max_steps": 50, "warmup_steps": 3}, (50, 3, 5)),
        (7, {"max_steps": 50, "validate_every": 4}, (50, 5, 4)),
    ],
)
def test_steps_suit_the_amount_of_data(num_batches: int, training: dict[str, Any], expected: tuple[int, ...]) -> None:
    found = steps.settle_steps(config_of(**training), plan_of(num_batches)).training
    assert (found.max_steps, found.warmup_steps, found.validate_every) == expected


def test_summaries_that_copy_are_read_fewer_times_in_larger_batches() -> None:
    """14,000 e-mails of 150 tokens: 15 times, in batches of 16,384 tokens; the same as translations: 10,000 steps."""
    lengths = [PairLengths.of(np.full(14_000, 151), np.full(14_000, 7))]
    model = {"kind": "rnn", "copies": True}
    content = {"data": {"train": FILES, "valid": FILES}, "model": model}
    for metric, size, num_steps, kind in (("rouge", 16_384, 2250, "even"), ("exact", 4096, 9000, "padded")):
        content["training"] = {"metric": metric}
        config = config_file.check_config(content, "test")
        assert isinstance(config, TranslateConfig)
        found = batches._settle_batches(config, None, lengths, Console(quiet=True))  # type: ignore[arg-type]
        assert (found.training.tokens_per_batch, found.training.batches) == (size, kind)
        epochs = batches.EPOCHS_OF_SUMMARIES if batches._sums_up(config) else None
        assert steps.settle_steps(config, plan_of(150), epochs).training.max_steps == num_steps


def test_the_line_says_how_often_all_data_are_read() -> None:
    plan = plan_of(80)
    settled = steps.settle_steps(config_of(max_steps=600, accumulate=2), plan)
    said = "training: 600 steps (max_steps), which read all data 15.0 times"
    assert steps.describe_steps(settled, plan) == said
    patient = steps.settle_steps(config_of(max_steps=600, accumulate=2, patience=3), plan)
    assert steps.describe_steps(patient, plan) == f"{said}; fewer if 3 validations, one every 60, are no better"


@pytest.mark.parametrize(
    ("num_pairs", "length", "size"),
    [
        (11, 8, 1024),  # at least
        (16_384, 8, 2048),  # 147,456 tokens with </s>: 72 batches
        (400_000, 8, 4096),  # at most
        (3, 6000, 6001),  # the longest pair
    ],
)
def test_batches_suit_the_amount_of_text(num_pairs: int, length: int, size: int) -> None:
    source_N = np.full(num_pairs, length + 1)
    assert batches._choose_size([PairLengths.of(source_N, source_N // 2)]) == size


def test_a_run_keeps_what_it_chose_and_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "FEWEST_STEPS", 3)
    monkeypatch.setattr(base.TrainingSection, "usual_epochs", 2)
    (tmp_path / "pairs.tsv").write_text("".join(f"{a} {b}\t{b} {a}\n" for a in "abc" for b in "abc"), encoding="utf-8")
    files, text = {"source": f"{tmp_path}/pairs.tsv"}, io.StringIO()
    model = {"size": "tiny", "width": 8, "num_heads": 1, "hidden_width": 8, "num_layers": 1}
    content = {"data": {"train": files, "valid": files}, "tokenizer": {"kind": "words"}, "model": model}
    train.train(config_file.check_config(content, "test"), tmp_path / "run", Console(file=text, width=200))
    assert "tokens_per_batch: 1,024 (for the amount of text)\n" in text.getvalue()
    assert "training: 3 steps (max_steps), which read all data 3.0 times\n" in text.getvalue()
    kept = config_file.load_config(tmp_path / "run" / "config.yaml").training
    assert (kept.max_steps, kept.warmup_steps, kept.validate_every) == (3, 0, 1)
    assert (kept.tokens_per_batch, kept.schedule) == (1024, "cosine")
