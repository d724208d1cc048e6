"""The kind of model that a text-to-text run takes by itself."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from saccade.data.text.tokenizer import SPECIAL, Vocabulary
from saccade.decoding.limits import PairLengths
from saccade.errors import UserError
from saccade.runs import config as config_file
from saccade.runs import train
from saccade.tasks.translate.config import TranslateConfig
from saccade.tasks.translate.copying import summaries
from saccade.tasks.translate.networks import choose_kind
from saccade.tasks.translate.task import prepare

SYMBOLS, PIECES = Vocabulary([*SPECIAL, "a"], "characters"), object()


def pairs(count: int, source: int, target: int) -> PairLengths:
    return PairLengths.of(np.full(count, source), np.full(count, target))


@pytest.mark.parametrize(
    ("both", "lengths", "kind", "why"),
    [
        ((SYMBOLS, SYMBOLS), [pairs(7, 40, 40)], "rnn", "few short texts of characters or words"),
        ((SYMBOLS, PIECES), [pairs(7, 5, 5)], "transformer", "texts of many words"),
        ((PIECES, SYMBOLS), [pairs(7, 5, 5)], "transformer", "texts of many words"),
        ((SYMBOLS, SYMBOLS), [pairs(7, 41, 5)], "transformer", "more than 40 tokens on a side"),
        ((SYMBOLS, SYMBOLS), [pairs(7, 5, 20), pairs(7, 5, 61)], "transformer", "more than 40 tokens on a side"),
        ((SYMBOLS, SYMBOLS), [pairs(50_000, 5, 5), pairs(50_001, 5, 5)], "transformer", "more than 100,000 pairs"),
    ],
)
def test_the_kind_suits_the_texts(both: Any, lengths: list[PairLengths], kind: str, why: str) -> None:
    assert choose_kind(both, lengths) == (kind, why)


def test_targets_that_are_put_together_get_an_rnn(tmp_path: Path) -> None:
    cities, days = [f"{first}{last}ville" for first in "abcdefgh" for last in "klmnop"], ["monday", "friday", "sunday"]
    rows = [(one, other, day) for one in cities for other in cities[:4] for day in days]
    lines = [f"from {one} to {other} on {day} please\tbook : {one} ; {other} ; {day}\n" for one, other, day in rows]
    (tmp_path / "slots.tsv").write_text("".join(lines), encoding="utf-8")
    data = {"train": {"source": f"{tmp_path}/slots.tsv"}, "valid": 5}
    config = config_file.check_config({"data": data, "tokenizer": {"kind": "unigram"}}, "test")
    text = io.StringIO()
    prepared = prepare(config, tmp_path / "run", Console(file=text, width=200)).config
    assert isinstance(prepared, TranslateConfig)
    assert prepared.model.kind == "rnn"
    assert "targets are put together from few different words and words of their sources)\nt" in text.getvalue()
    assert choose_kind((PIECES, PIECES), [pairs(7, 41, 5)], is_assembled=True)[0] == "transformer"


def trained(folder: Path, **sections: Any) -> tuple[Any, str]:
    """Train for a step; return the model's section in the run's config, and what was said of it."""
    (folder / "pairs.tsv").write_text("".join(f"{a} {b}\t{b} {a}\n" for a in "abc" for b in "abc"), encoding="utf-8")
    files, text = {"source": f"{folder}/pairs.tsv"}, io.StringIO()
    content = {
        "data": {"train": files, "valid": files},
        "tokenizer": {"kind": "words"},
        **sections,
        "training": {"max_steps": 1, **sections.get("training", {})},
    }
    train.train(config_file.check_config(content, "test"), folder / "run", Console(file=text, width=200))
    said = [line for line in text.getvalue().splitlines() if line.startswith("model: ")]
    return config_file.load_config(folder / "run" / "config.yaml").model, "".join(said)


def test_a_run_keeps_its_kind_and_says_it(tmp_path: Path) -> None:
    model, said = trained(tmp_path, model={"size": "tiny", "dropout": 0.4})
    assert (model.kind, model.width, model.dropout) == ("rnn", 128, 0.4)
    assert said == "model: rnn (few short texts of characters or words)"
    again, _ = trained(tmp_path, model={"size": "tiny", "dropout": 0.4}, training={"max_steps": 2})
    assert again == model
    with pytest.raises(UserError, match="holds a run with another model"):
        trained(tmp_path, model={"size": "tiny"}, training={"max_steps": 3})


def summing(folder: Path, subject: str = "{} meeting", **sections: Any) -> tuple[Any, str]:
    """Train on mails with their subjects for a step; return the run's config, and what was said of its model."""
    names = [f"{first}{second}on" for first in ("bar", "cal", "del", "far") for second in ("n", "st", "tr", "l", "m")]
    words = "please let me know whether you can come to the meeting that we have planned for the next week with"
    rows = [
        f"hello {one} and {other} {words} {one}\t{subject.format(other, one)}\n" for one in names for other in names
    ]
    folder.mkdir(exist_ok=True)
    (folder / "mails.tsv").write_text("".join(rows), encoding="utf-8")
    content = {
        "data": {"train": {"source": f"{folder}/mails.tsv"}, "valid": {"count": 5}},
        "model": {"size": "tiny"},
        **sections,
        "training": {"max_steps": 1, **sections.get("training", {})},
    }
    text = io.StringIO()
    train.train(config_file.check_config(content, "test"), folder / "run", Console(file=text, width=200))
    said = [line for line in text.getvalue().splitlines() if line.startswith("model: ")]
    return config_file.load_config(folder / "run" / "config.yaml"), "".join(said)


def test_few_summaries_get_a_model_that_copies_words(tmp_path: Path) -> None:
    config, said = summing(tmp_path)
    assert said == "model: rnn that copies words of its source (few texts that are summed up)"
    assert (config.model.kind, config.model.copies, config.model.width) == ("rnn", True, 128)
    assert (config.tokenizer.shared, config.training.metric) == (True, "rouge")


def test_summaries_of_words_that_are_frequent_or_copied_are_learned_as_words_and_slowly(tmp_path: Path) -> None:
    config, _ = summing(tmp_path)
    assert config.tokenizer.kind == "words"
    assert (config.training.learning_rate, config.training.ema) == (0.001, 0.999)
    given: dict[str, Any] = {"training": {"learning_rate": 0.002, "ema": 0.0}, "tokenizer": {"vocabulary_size": 30}}
    config, _ = summing(tmp_path / "given", **given)
    assert (config.training.learning_rate, config.training.ema) == (0.002, 0.0)
    assert (config.tokenizer.kind, config.tokenizer.vocabulary_size) == ("words", 30)


@pytest.mark.parametrize(("subject", "tokenizer"), [("{0}-{1} {0}/{1}", {}), ("{} meeting", {"kind": "bpe"})])
def test_other_summaries_are_learned_as_ever(subject: str, tokenizer: dict[str, Any], tmp_path: Path) -> None:
    config, _ = summing(tmp_path, subject, tokenizer=tokenizer)
    assert (config.model.copies, config.training.learning_rate, config.training.ema) == (True, 0.003, 0.0)


@pytest.mark.parametrize(
    "sections",
    [
        {"model": {"size": "tiny", "copies": False}},
        {"training": {"consistency": 1.0}},
        {"tokenizer": {"shared": False}},
        {"model": {"kind": "transformer", "size": "tiny"}},
    ],
)
def test_summaries_are_not_copied_where_something_else_is_asked_for(sections: dict[str, Any], tmp_path: Path) -> None:
    config, said = summing(tmp_path, **sections)
    assert config.model.copies is False
    assert "copies" not in said


def test_many_summaries_are_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "MOST_PAIRS", 300)
    assert summing(tmp_path)[0].model.copies is False


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"model": {"size": "tiny"}, "training": {"recompute": True}}, "model: transformer (as training.recompute, "),
        ({"model": {"size": "tiny", "num_layers": 1}}, ""),
        ({"model": {"size": "tiny", "kind": "transformer"}}, ""),
    ],
)
def test_what_only_a_transformer_has_makes_one(sections: dict[str, Any], said: str, tmp_path: Path) -> None:
    model, found = trained(tmp_path, **sections)
    assert (model.kind, model.dropout) == ("transformer", 0.1)
    assert found.startswith(said)
    assert bool(found) == bool(said)
