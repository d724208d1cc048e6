"""What a run reads of its texts, and how it says what it doesn't."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from saccade.errors import UserError
from saccade.runs import config as config_file
from saccade.runs import train
from saccade.runs.load import load_run
from saccade.tasks.translate import coverage
from saccade.tasks.translate.tokenizers import prepare_tokenizers

WORDS = ("red", "green", "blue", "small", "large")
PAIRS = [f"{a} {b}\t{b} {a}" for a in WORDS for b in WORDS]
LONG = f"{'red ' * 9}\tblue"  # a source of nine words
LONG_TARGET = f"blue\t{'red ' * 7}"


def config_of(folder: Path, lines: list[str], held_out: list[str], **data: Any) -> Any:
    for name, rows in (("train", lines), ("valid", held_out)):
        (folder / f"{name}.tsv").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    files = {name: {"source": f"{folder}/{name}.tsv"} for name in ("train", "valid")}
    content = {
        "data": {**files, "max_length": 4, **data},
        "tokenizer": {"kind": "words", "vocabulary_size": 20},
        "model": {"size": "tiny", "width": 8, "num_heads": 1, "hidden_width": 8, "num_layers": 1},
        "training": {"max_steps": 1, "validate_every": 1},
    }
    return config_file.check_config(content, "test")


def said(config: Any, folder: Path) -> list[str]:
    """Train, and return what was said of lengths; warnings begin with an exclamation mark."""
    console = Console(file=io.StringIO(), width=200, record=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # neither validations nor the report repeat it
        train.train(config, folder / "run", console)
    styled = console.export_text(styles=True).splitlines()
    lines = [line.replace("\x1b[33m", "!").replace("\x1b[0m", "") for line in styled]
    words = ("max_length.source:", "too long", "too_long", "longer", " cut ", "their first")
    return [line for line in lines if any(word in line for word in words)]


def test_many_long_pairs_are_a_warning_with_the_fields_to_change(tmp_path: Path) -> None:
    config = config_of(tmp_path, [*PAIRS, *[LONG] * 3, *[LONG_TARGET] * 2], [*PAIRS[:3], LONG], too_long="drop")
    place = f"{tmp_path}/train.tsv"
    reasons = f"3 too long (source), the first at {place}:26; 2 too long (target), the first at {place}:29"
    assert said(config, tmp_path) == [
        f"25 pairs (left out: {reasons}) to train on",
        "!10% of the pairs (3 of 30) are left out, as their sources are too long; raise data.max_length.source (4), or "
        "set data.too_long.source: cut",
        "!6.7% of the pairs (2 of 30) are left out, as their targets are too long; raise data.max_length.target (4), "
        "or set data.too_long.target: cut",
        "!data.valid: pairs longer than data.max_length: 1 of 4; all scores count them, the loss does not",
    ]
    assert load_run(tmp_path / "run").max_source_length == 8192


def test_sources_that_are_often_too_long_are_cut_by_themselves(tmp_path: Path) -> None:
    config = config_of(tmp_path, [*PAIRS, *[LONG] * 3, LONG_TARGET], [*PAIRS[:3], LONG])
    assert said(config, tmp_path) == [
        "too_long: sources are cut (10% of the sources have more than 4 tokens, while their targets fit)",
        f"28 pairs (left out: 1 too long (target), the first at {tmp_path}/train.tsv:29) to train on",
        "!10% of the sources (3 of 29) are cut to their first tokens: data.max_length.source (4)",
        "!3.4% of the pairs (1 of 29) are left out, as their targets are too long; raise data.max_length.target (4), "
        "or set data.too_long.target: cut",
        "!data.valid: 25% of its sources (1 of 4) are read up to their first 4 tokens, as in training",
    ]
    settled = config_file.load_config(tmp_path / "run" / "config.yaml").data
    assert (settled.too_long.source, settled.too_long.target) == ("cut", "drop")
    run = load_run(tmp_path / "run")
    with pytest.warns(UserWarning, match=r"2 of 3 sources have more than 4 tokens, the first is 1; only so many of"):
        found = run.predict(["red " * 5, "red", "red " * 6])
    assert found[0].text == found[2].text == run.predict(["red " * 4])[0].text
    with pytest.warns(UserWarning, match=r"source 2 has 7 tokens; .* \(data.max_length.source of its training\)"):
        run.predict(["red", "red " * 7])


def test_a_few_long_pairs_are_left_out_without_a_warning(tmp_path: Path) -> None:
    config = config_of(tmp_path, [*PAIRS * 5, LONG], PAIRS[:3])
    place = f"{tmp_path}/train.tsv"
    assert said(config, tmp_path) == [
        f"125 pairs (left out: 1 too long (source), the first at {place}:126) to train on"
    ]
    assert config_file.load_config(tmp_path / "run" / "config.yaml").data.too_long.source == "drop"


def test_each_side_has_its_length_and_either_may_be_cut(tmp_path: Path) -> None:
    config = config_of(tmp_path, [*PAIRS * 9, LONG], PAIRS[:1], max_length={"source": 9, "target": 1}, too_long="cut")
    assert [(limit.most, limit.is_cut) for limit in config.data.limits] == [(9, True), (1, True)]
    assert said(config, tmp_path) == [
        "!100% of the targets (225 of 226) are cut to their first tokens: data.max_length.target (1)"
    ]


def document(num_words: int, target: str = "blue") -> str:
    return f"{'red ' * num_words}\t{target}"


def test_sources_are_read_as_far_as_nearly_all_of_them_go(tmp_path: Path) -> None:
    documents = [*[document(270)] * 3, document(900)]
    config = config_of(tmp_path, [*PAIRS * 12, *documents], PAIRS[:1], max_length={"target": 4})
    assert said(config, tmp_path) == [
        "max_length.source: 320 tokens (what nearly all sources need)",
        "0.3% of the sources (1 of 304) are cut to their first tokens: data.max_length.source (320)",
    ]
    settled = config_file.load_config(tmp_path / "run" / "config.yaml").data
    assert (settled.max_length.source, settled.too_long.source) == (320, "cut")


@pytest.mark.parametrize(
    ("documents", "training", "most"),
    [
        ([document(270)] * 2, {}, 256),  # 0.7% of all
        ([document(270, "red " * 9)] * 9, {}, 256),  # their targets are too long, too
        ([document(9000)] * 9, {}, 4095),
        ([document(9000)] * 9, {"tokens_per_batch": 300}, 299),
        ([document(9000)] * 9, {"tokens_per_batch": 100}, 256),
    ],
)
def test_no_more_is_read_than_needed_or_possible(
    documents: list[str], training: dict[str, Any], most: int, tmp_path: Path
) -> None:
    config = config_of(tmp_path, [*PAIRS * 12, *documents], PAIRS, max_length={"target": 4})
    config = config.model_copy(update={"training": config.training.model_copy(update=training)})
    both = prepare_tokenizers(config, tmp_path)
    settled = coverage.settle_lengths(config, both, Console(quiet=True))
    assert settled.data.max_length.source == most


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"max_length": {"source": 0}}, r"data\.max_length\.source: 0 given"),
        ({"max_length": "many"}, r"data\.max_length\.source: 'many' given"),
        ({"max_length": [3]}, r"data\.max_length: \[3\] given; allowed: a value for both sides, or \{source: "),
        ({"max_length": {"sources": 3}}, r"data\.max_length\.sources: unknown \(did you mean source\?\)"),
        ({"too_long": "shorten"}, r"data\.too_long\.source: 'shorten' given"),
        ({"too_long": {"target": "auto"}}, r"data\.too_long\.target: 'auto' given"),
    ],
)
def test_what_is_no_length_is_refused(data: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        config_of(tmp_path, PAIRS, PAIRS, **data)


def unknown(config: Any, folder: Path) -> list[str]:
    console = Console(file=io.StringIO(), width=300, record=True)
    train.train(config, folder / "run", console)
    lines = console.export_text(styles=True).splitlines()
    return [line.replace("\x1b[33m", "!").replace("\x1b[0m", "") for line in lines if "<unk>" in line]


def test_the_share_of_unknown_words_is_said_for_each_side(tmp_path: Path) -> None:
    config = config_of(tmp_path, PAIRS, ["red blue\tgreen pink", *PAIRS[:3]])
    remedy = "raise tokenizer.vocabulary_size, or take tokenizer.kind: unigram, which spells all words"
    expected = f"!<unk> among the words of the targets: 0.0% to train on, 12% in data.valid; {remedy}"
    assert unknown(config, tmp_path) == [expected]


def test_few_unknown_words_are_no_warning_and_none_are_not_said(tmp_path: Path) -> None:
    config = config_of(tmp_path, PAIRS, [*PAIRS * 5, "red blue\tred pink"])
    assert unknown(config, tmp_path) == ["<unk> among the words of the targets: 0.0% to train on, 0.4% in data.valid"]
    (tmp_path / "other").mkdir()
    assert unknown(config_of(tmp_path / "other", PAIRS, PAIRS), tmp_path / "other") == []
