"""A run's data from config to store: what is said about them, and what is wrong with them."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from saccade.config.base import HeldOutPart
from saccade.data.batches import bucket_pairs
from saccade.data.text.headers import ODD
from saccade.errors import UserError
from saccade.files import lock_folder
from saccade.runs import config as config_file
from saccade.runs import train as runs
from saccade.runs.load import load_run
from saccade.tasks.translate import corpora
from saccade.tasks.translate.config import TranslateConfig
from saccade.tasks.translate.tokenizers import prepare_tokenizers

WORDS = ("red", "green", "blue", "small", "large")
PAIRS = [f"{a} {b}\t{b} {a}" for a in WORDS for b in WORDS]


def written(folder: Path, **texts: list[str]) -> None:
    for name, lines in texts.items():
        (folder / f"{name}.tsv").write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def config_of(folder: Path, *train: str, valid: object = None, **sections: object) -> TranslateConfig:
    files = [{"source": f"{folder}/{name}.tsv"} for name in train]
    data = {
        "train": files if len(files) > 1 else files[0],
        "valid": {"source": f"{folder}/valid.tsv"} if valid is None else valid,
        "max_length": 4,
    }
    tokenizer = {"kind": "words", "vocabulary_size": 20}
    return config_file.check_config({"data": data, "tokenizer": tokenizer, **sections}, "test")


def said(config: TranslateConfig, folder: Path) -> str:
    text = io.StringIO()
    console = Console(file=text, width=40)
    held_out = corpora.read_held_out(config)
    both = prepare_tokenizers(config, folder / "run", console)
    corpora.say(config, corpora.stores(config, both, folder / "stores", console), held_out, console)
    return "".join(line for line in text.getvalue().splitlines(keepends=True) if not line.startswith("vocabulary of"))


def test_what_is_there_is_said(tmp_path: Path) -> None:
    written(tmp_path, train=PAIRS, valid=["black\twhite"])
    assert said(config_of(tmp_path, "train"), tmp_path) == "25 pairs to train on\n"


def test_what_is_left_out_is_said_with_its_first_place(tmp_path: Path) -> None:
    written(tmp_path, train=[*PAIRS, "a\t\u3000", "a a a a a\tb", "\tb"], valid=["black\twhite"])
    found = said(config_of(tmp_path, "train"), tmp_path)
    place = f"{tmp_path}/train.tsv"
    reasons = f"2 blank, the first at {place}:26; 1 too long (source), the first at {place}:27"
    assert found == f"25 pairs (left out: {reasons}) to train on\n"


def test_a_first_pair_like_no_other_is_told(tmp_path: Path) -> None:
    written(tmp_path, train=["thing\tbackwards", *PAIRS], valid=["black\twhite"])
    assert said(config_of(tmp_path, "train"), tmp_path).splitlines()[1:] == [f"{tmp_path}/train.tsv:1: {ODD}"]


def test_each_of_several_corpora_has_its_line(tmp_path: Path) -> None:
    written(tmp_path, one=[*PAIRS, "a\t"], two=["x y\ty x"], valid=["black\twhite"])
    lines = said(config_of(tmp_path, "one", "two"), tmp_path).splitlines()
    left_out = f"(left out: 1 blank, the first at {tmp_path}/one.tsv:26)"
    assert lines == [
        f"data.train.0, {tmp_path}/one.tsv, weight 1: 25 pairs {left_out}",
        f"data.train.1, {tmp_path}/two.tsv, weight 1: 1 pair",
        "26 pairs to train on",
    ]
    assert len(list((tmp_path / "stores").iterdir())) == 2


def test_held_out_pairs_that_were_seen_are_a_warning(tmp_path: Path) -> None:
    written(tmp_path, train=PAIRS, valid=["red blue\tblue red", "a\t", "new\tnew"], test=["new\tnew", PAIRS[0]])
    data = config_of(tmp_path, "train").data.model_dump() | {"test": {"source": f"{tmp_path}/test.tsv"}}
    config = config_file.check_config({"data": data, "tokenizer": {"kind": "words"}}, "test")
    lines = said(config, tmp_path).splitlines()
    assert lines[1:] == [
        f"data.valid: 1 of its 3 pairs is left out, blank on a side; the first at {tmp_path}/valid.tsv:2",
        "data.valid: 1 of its 3 pairs is also in the training text",
        "data.test: 1 of its 2 pairs is also in the training text",
    ]


@pytest.mark.parametrize("shared", [True, False])
def test_tokenizers_learn_from_every_corpus_and_its_own_side(shared: bool, tmp_path: Path) -> None:
    written(tmp_path, one=["a\tb"], two=["c\td"], valid=["never\tnever"])
    config = config_of(tmp_path, "one", "two", tokenizer={"kind": "words", "shared": shared})
    source, target = prepare_tokenizers(config, tmp_path / "run")
    known = [tokenizer.pieces(range(4, tokenizer.size)) for tokenizer in (source, target)]
    assert known == ([["a", "b", "c", "d"]] * 2 if shared else [["a", "c"], ["b", "d"]])
    again = prepare_tokenizers(config, tmp_path / "run")
    assert [tokenizer.pieces(range(tokenizer.size))[4:] for tokenizer in again] == known


def test_a_sample_of_a_large_corpus_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.tasks.translate.tokenizers.MOST_CHARACTERS", 200)
    written(tmp_path, train=PAIRS, valid=["black\twhite"])
    found = " ".join(said(config_of(tmp_path, "train"), tmp_path).split())
    assert re.match(r"The tokenizer learns from 1\d of 50 texts, by chance\.", found)


def test_a_mistake_in_the_data_leaves_no_run_behind(tmp_path: Path) -> None:
    written(tmp_path, train=PAIRS, bad=["no tab"], valid=["black\twhite"])
    quiet, folder = Console(quiet=True), tmp_path / "run"
    training = {"max_steps": 1, "validate_every": 1}
    model = {"size": "tiny", "width": 8, "num_heads": 1, "hidden_width": 8}
    with pytest.raises(UserError, match=r"data\.train\.source: there is no file at .*none\.tsv"):
        runs.train(config_of(tmp_path, "none"), folder, quiet)
    with pytest.raises(UserError, match=r"bad\.tsv:1: the line has 1 column"):
        runs.train(config_of(tmp_path, "bad"), folder, quiet)
    assert not folder.exists()
    with pytest.raises(UserError, match="nothing is left"):  # after the tokenizers were learned
        runs.train(config_of(tmp_path, "train", tokenizer={"kind": "characters"}), folder, quiet)
    runs.train(config_of(tmp_path, "train", training=training, model=model), folder, quiet)
    assert config_file.load_config(folder / "config.yaml").tokenizer.kind == "words"
    assert len(load_run(folder).source.encode("red")) == 1
    with pytest.raises(UserError, match="holds a run with another tokenizer"):
        runs.train(
            config_of(tmp_path, "train", training=training, model=model, tokenizer={"kind": "bpe"}), folder, quiet
        )


def test_a_folder_has_one_training_at_a_time(tmp_path: Path) -> None:
    written(tmp_path, train=PAIRS, valid=["black\twhite"])
    with lock_folder(tmp_path / "run"), pytest.raises(UserError, match="another process is training in it"):
        runs.train(config_of(tmp_path, "train"), tmp_path / "run", Console(quiet=True))
    with lock_folder(tmp_path / "run"):
        pass


def test_pieces_drawn_at_random_are_repeatable_and_read_in_turn(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"the cat number {i}\tle chat numero {i}\n" for i in range(60)), "utf-8")
    files = {"source": str(tmp_path / "a.tsv")}
    content = {
        "data": {"train": files, "valid": files},
        "tokenizer": {"kind": "bpe", "vocabulary_size": 300, "sampling": 0.5},
    }
    config = config_file.check_config(content, "test")
    both = prepare_tokenizers(config, tmp_path)
    first, again = (corpora.stores(config, both, tmp_path / name) for name in ("one", "two"))
    assert len(first) == corpora.VARIANTS
    for one, other in zip(first, again, strict=True):
        assert all((one.source[row] == other.source[row]).all() for row in range(60))
    assert any(len(first[0].source[row]) != len(first[1].source[row]) for row in range(60))
    assert both[0].decode(first[0].source[7].tolist()) == "the cat number 7"
    batches = bucket_pairs(
        *first, tokens_per_batch=200, seed=1, weights=corpora.weigh_variants(config.data, first)
    ).epoch(0)
    assert sum(map(len, batches)) == pytest.approx(60, abs=8)


@pytest.mark.parametrize("valid", [0.3, {"share": 0.3}, 12, {"count": 12}])
def test_a_part_of_the_training_pairs_is_held_out(valid: object, tmp_path: Path) -> None:
    written(tmp_path, one=[*PAIRS, "a\t", "red\tred"], two=[*PAIRS, "red red\tanother"])
    config = config_of(tmp_path, "one", "two", valid=valid)
    line, *lines = said(config, tmp_path).splitlines()
    (held,) = corpora.read_held_out(config)
    left = [pair for corpus in corpora.training_corpora(config) for pair in corpus.pairs()]
    assert len(held.pairs) + len(left) == 2 * len(PAIRS) + 3
    assert {pair.source for pair in held.pairs}.isdisjoint(pair.source for pair in left)
    amount = 0.3 if "0.3" in str(valid) else 12
    said_of_it = f"{len(held.pairs)} of the 53 pairs of data.train, chosen by a hash of the source ({amount})"
    assert line == f"data.valid: {said_of_it}"
    assert any(f"(left out: 1 blank, the first at {tmp_path}/one.tsv:26)" in line for line in lines)
    assert not any("also in the training text" in line for line in lines)
    source, _ = prepare_tokenizers(config, tmp_path / "run")
    known = {word for pair in left for side in pair for word in side.split()}
    assert set(source.pieces(range(4, source.size))) == known


def test_a_run_whose_validation_set_is_held_out_is_trained_and_reported(tmp_path: Path) -> None:
    written(tmp_path, train=PAIRS)
    training = {"max_steps": 2, "validate_every": 1}
    config = config_of(tmp_path, "train", valid=5, training=training, model={"width": 8, "num_heads": 1})
    folder, quiet = tmp_path / "run", Console(quiet=True)
    runs.train(config, folder, quiet)
    assert '"name": "valid",\n   "num_used": 5' in (folder / "summary.json").read_text("utf-8")
    assert config_file.load_config(folder / "config.yaml").data.valid == HeldOutPart(count=5)
    with pytest.raises(UserError, match="holds a run with another data"):
        runs.train(config_of(tmp_path, "train", valid=6, training=training, model=config.model), folder, quiet)


@pytest.mark.parametrize(
    ("valid", "message"),
    [
        (0, "data.valid.count: 0 given; input should be greater than or equal to 1"),
        (1.5, "data.valid.share: 1.5 given; input should be less than 1"),
        (True, "data.valid: True given"),
        ({"share": 0.1, "source": "x"}, r"data.valid.source: given beside a part; allowed: files or a part"),
        ({"soource": "x"}, r"data.valid.source: missing; data.valid.soource: unknown \(did you mean source\?\)"),
        (25, "data.valid: 25 given; data.train has 25, and some must be left to train on"),
        (1e-9, "data.valid: 1e-09 given; it holds out no pair; allowed: a count, or a file"),
    ],
)
def test_an_impossible_part_is_refused(valid: object, message: str, tmp_path: Path) -> None:
    written(tmp_path, train=PAIRS)
    with pytest.raises(UserError, match=message):
        corpora.read_held_out(config_of(tmp_path, "train", valid=valid))


def test_old_pairs_have_their_share_of_an_epoch_without_what_was_held_out(tmp_path: Path) -> None:
    written(tmp_path, new=[f"new {n}\told" for n in range(23)], one=PAIRS, two=PAIRS[:7], valid=["black\twhite"])
    earlier = config_of(tmp_path, "one", "two", valid={"share": 0.4})
    (tmp_path / "base").mkdir()
    config_file.save_config(earlier, tmp_path / "base" / "config.yaml")
    alone = config_of(tmp_path, "new", **{"from": str(tmp_path / "base")})
    data = alone.data.model_copy(update={"old_share": 0.3})
    config = corpora.settle_old(alone.model_copy(update={"data": data}))
    new, *old = ([pair.source for pair in corpus.pairs()] for corpus in corpora.training_corpora(config))
    learned = [[pair.source for pair in corpus.pairs()] for corpus in corpora.training_corpora(earlier)]
    assert old == learned
    assert 0 < len(old[0]) < len(PAIRS)
    both = prepare_tokenizers(config_of(tmp_path, "new", "one"), tmp_path)
    stores = corpora.stores(config, both, tmp_path / "stores")
    weights = corpora.weigh_variants(config.data, stores)
    sizes = [weight * len(one) for weight, one in zip(weights, (new, *old), strict=True)]
    assert weights[0] == 1
    assert sum(sizes[1:]) / sum(sizes) == pytest.approx(0.3)
    assert sizes[1] / sizes[2] == pytest.approx(len(old[0]) / len(old[1]))
