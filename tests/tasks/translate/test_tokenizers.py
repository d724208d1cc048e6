"""The tokenizers of a run: one for both sides, one for each of another kind, or ready ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from saccade.data.text.tokenizer import train_tokenizer
from saccade.errors import UserError
from saccade.runs import config as config_file
from saccade.runs import train as runs
from saccade.runs.load import load_run
from saccade.tasks.translate.config import TranslateConfig
from saccade.tasks.translate.tokenizers import load_tokenizers, prepare_tokenizers, settle_kinds

PAIRS = [(f"the {a} {b}", f"{b} {a}") for a in ("red", "green", "blue") for b in ("owl", "bee", "ant", "cat")]


def config_of(folder: Path, **tokenizer: object) -> TranslateConfig:
    (folder / "a.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS), "utf-8")
    files = {"source": str(folder / "a.tsv")}
    content = {
        "data": {"train": files, "valid": files},
        "tokenizer": tokenizer,
        "model": {"size": "tiny", "width": 8, "num_heads": 1, "hidden_width": 8},
        "training": {"max_steps": 1, "validate_every": 1},
    }
    return config_file.check_config(content, "test")


def test_each_side_has_its_own_kind_and_size(tmp_path: Path) -> None:
    config = config_of(tmp_path, kind="words", source={"kind": "characters"}, target={"vocabulary_size": 6})
    runs.train(config, tmp_path / "run", Console(quiet=True))
    source, target = load_tokenizers(config, tmp_path / "run")
    assert source.pieces(source.encode("red")) == ["r", "e", "d"]
    assert target.size == 6
    assert not config_file.load_config(tmp_path / "run" / "config.yaml").tokenizer.shared
    translator = load_run(tmp_path / "run")
    assert len(translator.look(["the owl"], kinds=("cross",))[0].sides["source"].pieces) == len("the owl") + 1


@pytest.mark.parametrize("shared", [True, False])
def test_a_ready_model_is_copied_into_the_run(shared: bool, tmp_path: Path) -> None:
    ready = tmp_path / "ready.model"
    train_tokenizer("bpe", [text for pair in PAIRS for text in pair], 290).save(ready)
    other = {} if shared else {"target": {"kind": "words"}}
    config = settle_kinds(config_of(tmp_path, model=str(ready), **other), Console(quiet=True))
    said = Console(record=True, width=200)
    both = prepare_tokenizers(config, tmp_path / "run", said)
    assert f"tokenizer.model: {ready} has 290 tokens" in said.export_text()
    assert (both[0] is both[1]) is shared
    ready.unlink()
    loaded = load_tokenizers(config, tmp_path / "run")
    assert [one.encode("red owl") for one in loaded] == [one.encode("red owl") for one in both]
    assert both[1].pieces(both[1].encode("red owl"))[:1] == (["▁red"] if shared else ["red"])
    assert [path.suffix for path in sorted((tmp_path / "run").iterdir())] == [".model", ".model" if shared else ".json"]


def test_a_ready_model_that_is_not_there_leaves_no_run(tmp_path: Path) -> None:
    config = config_of(tmp_path, source={"model": str(tmp_path / "none.model")})
    with pytest.raises(UserError, match=r"tokenizer.source.model: there is no file at .*none.model"):
        runs.train(config, tmp_path / "run", Console(quiet=True))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        ({"shared": True, "source": {"kind": "words"}}, "shared: true given; a side with a tokenizer of its own"),
        ({"model": "a.model", "vocabulary_size": 90}, "vocabulary_size: 90 given; the model that is given has its own"),
        ({"source": {"model": "a.model", "vocabulary_size": 90}}, "source.vocabulary_size: given; the model"),
        (
            {"model": "a.model", "source": {"kind": "words"}, "target": {"kind": "bpe"}},
            "model: given, but each side has a tokenizer of its own",
        ),
        ({"sampling": 0.1, "source": {"kind": "words"}, "target": {"kind": "characters"}}, "sampling: 0.1 given"),
        ({"source": {"knd": "words"}}, r"tokenizer.source.knd: unknown \(did you mean kind\?\)"),
        ({"source": {"kind": "word"}}, r"tokenizer.source.kind: 'word' given; input should be 'auto', 'unigram'"),
        (
            {"source": {"kind": "words"}, "target": {"vocabulary_size": 4}},
            "target.vocabulary_size: 4 given; input should be greater than 4, or auto",
        ),
    ],
)
def test_what_can_not_be_is_refused(tokenizer: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        prepare_tokenizers(config_of(tmp_path, **tokenizer), tmp_path / "run")


def test_kinds_and_sizes_that_suit_the_text_are_chosen_said_and_kept(tmp_path: Path) -> None:
    words = [f"{a}{b}{c}o" for a in "bdfgk" for b in ("a", "e", "i") for c in "lmnrst"]
    (tmp_path / "a.tsv").write_text("".join(f"{w}\t{' '.join(w.upper())}\n" for w in words), "utf-8")
    files = {"source": str(tmp_path / "a.tsv")}
    model = {"size": "tiny", "width": 8, "num_heads": 1, "hidden_width": 8}
    content = {"data": {"train": files, "valid": files}, "model": model, "training": {"max_steps": 1}}
    said, run = Console(record=True, width=200), tmp_path / "run"
    runs.train(config_file.check_config(content, "test"), run, said)
    lines = said.export_text().splitlines()
    assert lines[:3] == [
        "tokenizer: characters (few letters or words, mostly new) for sources, words (few different words) for targets",
        "vocabulary of the sources: 19 tokens",
        "vocabulary of the targets: 19 tokens",
    ]
    kept = config_file.load_config(run / "config.yaml").tokenizer
    assert (kept.shared, kept.of_side("source")) == (False, ("characters", 19, None))
    assert kept.of_side("target") == ("words", 19, None)
    assert load_run(run).target.pieces(load_run(run).target.encode("B A L O")) == ["B", "A", "L", "O"]
    again = Console(record=True, width=200)
    runs.train(config_file.check_config({**content, "training": {"max_steps": 2}}, "test"), run, again)  # goes on
    assert "tokenizer:" not in again.export_text()


def test_a_size_that_the_text_does_not_have_is_lowered_and_said(tmp_path: Path) -> None:
    config = settle_kinds(config_of(tmp_path, kind="unigram", vocabulary_size=8000), Console(quiet=True))
    said = Console(record=True, width=200)
    both = prepare_tokenizers(config, tmp_path / "run", said)
    expected = f"{both[0].size:,} tokens (tokenizer.vocabulary_size: 8,000 given; the text has no more)"
    assert said.export_text() == f"vocabulary of the training text: {expected}\n"
    assert both[0].size < 400


@pytest.mark.parametrize(
    ("tokenizer", "kinds", "shared"),
    [
        ({}, ["unigram"] * 2, True),
        ({"shared": False}, ["unigram"] * 2, False),
        ({"kind": "words"}, ["words"] * 2, True),
        ({"target": {"kind": "words"}}, ["unigram", "words"], False),
        ({"sampling": 0.1}, ["unigram"] * 2, True),
        ({"source": {"vocabulary_size": 290}}, ["unigram"] * 2, False),
    ],
)
def test_what_is_given_is_kept_and_the_rest_is_chosen(
    tokenizer: dict[str, object], kinds: list[str], shared: bool, tmp_path: Path
) -> None:
    config = config_of(tmp_path, **tokenizer)
    found = settle_kinds(config, Console(quiet=True)).tokenizer
    assert [found.of_side("source").kind, found.of_side("target").kind] == kinds
    assert found.shared is shared
    assert settle_kinds(config.model_copy(update={"tokenizer": found}), Console(quiet=True)).tokenizer == found
