"""The metric that a run goes by: chosen by its targets, and said."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from saccade.data.text.corpus import Pair
from saccade.runs import config as config_file
from saccade.tasks.translate import corpora
from saccade.tasks.translate.config import TranslateConfig
from saccade.tasks.translate.scoring.choice import choose_metric, settle_metric

DRAW = random.Random(1)
WORDS = ["".join(DRAW.choices("abcdefgh", k=5)) for _ in range(500)]


def rows(source: int, target: int, words: list[str] | None = None, joined: str = " ") -> list[Pair]:
    """Pairs with so many words on either side."""
    return [
        Pair(" ".join(DRAW.choices(WORDS, k=source)), joined.join(DRAW.choices(words or WORDS, k=target)))
        for _ in range(40)
    ]


def slots(num_own: int) -> list[Pair]:
    """Requests and their slots; so many of four values are not words of the request."""
    found = []
    for _ in range(100):
        value = DRAW.choices(WORDS, k=4)
        named = [*value[num_own:], *DRAW.choices(WORDS, k=num_own)]
        target = " | ".join(f"slot{place}={word}" for place, word in enumerate(named))
        found.append(Pair(f"please book {' or '.join(value)} today", target))
    return found


@pytest.mark.parametrize(
    ("pairs", "metric", "reason"),
    [
        (rows(8, 1), "exact", "most targets are one word"),
        (rows(60, 1), "exact", "most targets are one word"),
        (rows(6, 3), "exact", "most targets have fewer than four words, where BLEU is 0"),
        (rows(60, 3), "rouge", "sources have 20 times the words of their targets"),
        (rows(19, 4), "bleu", "targets are sentences"),
        (rows(12, 11), "bleu", "targets are sentences"),
        (rows(1, 7, WORDS[:20]), "wer", "targets are written with 20 different words, so that errors can be counted"),
        (
            rows(12, 12, ["我们", "喜欢", "好书", "很多", "旧书"], joined=""),
            "chrf",
            "targets are written without spaces",
        ),
        (slots(0), "exact", "targets are put together from few different words and words of their sources"),
        (slots(0)[:60], "bleu", "targets are sentences"),  # too few to tell
        (slots(3), "bleu", "targets are sentences"),
        ([Pair("", "a")], "exact", "most targets are one word"),
    ],
)
def test_the_metric_suits_the_targets(pairs: list[Pair], metric: str, reason: str) -> None:
    assert choose_metric(pairs) == (metric, reason)


def settled(folder: Path, pairs: list[Pair], **training: Any) -> tuple[TranslateConfig, str]:
    file, text = folder / "pairs.tsv", io.StringIO()
    file.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    data = {"train": {"source": str(file)}, "valid": {"source": str(file)}}
    config = config_file.check_config({"data": data, "training": training}, "test")
    return settle_metric(config, corpora.read_held_out(config)[0], Console(file=text, width=40)), text.getvalue()


def test_auto_is_settled_and_said(tmp_path: Path) -> None:
    config, said = settled(tmp_path, rows(8, 1))
    assert (config.training.metric, said) == ("exact", "metric: exact (most targets are one word)\n")


def test_bleu_for_short_answers_is_a_warning(tmp_path: Path) -> None:
    config, said = settled(tmp_path, [*rows(8, 3), *rows(8, 4)[:10]], metric="bleu")
    share = "80% of the targets in data.valid have fewer than four words, where BLEU is 0 or luck"
    assert (config.training.metric, said) == (
        "bleu",
        f"training.metric: bleu given, but {share}; exact, wer or chrf tell more\n",
    )
    assert settled(tmp_path, rows(8, 4), metric="bleu")[1] == ""
    assert settled(tmp_path, rows(8, 1), metric="loss")[1] == ""
