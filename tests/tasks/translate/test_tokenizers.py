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
from saccade.tasks.translate.tokenizers import load_tokenizers, prepare_tokenizers

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
    config = config_of(tmp_path, model=str(ready), **other)
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
        ({"source": {"kind": "word"}}, r"tokenizer.source.kind: 'word' given; input should be 'unigram', 'bpe'"),
        (
            {"source": {"kind": "words"}, "target": {"vocabulary_size": 4}},
            "target.vocabulary_size: 4 given; it must be above 4",
        ),
    ],
)
def test_what_can_not_be_is_refused(tokenizer: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        prepare_tokenizers(config_of(tmp_path, **tokenizer), tmp_path / "run")
