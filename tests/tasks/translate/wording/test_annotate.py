"""Terms in training sources: what is written, into which, and that a run learns from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from saccade.api import train
from saccade.data.text.corpus import Pair
from saccade.data.text.word_pairs import WordPairs
from saccade.errors import UserError
from saccade.runs import config as config_file
from saccade.runs.load import load_run
from saccade.tasks.translate import corpora
from saccade.tasks.translate.wording.annotate import Annotator, TermNote, find_written, write_notes

NAMES = {"red": "rot", "blue": "blau", "house": "haus", "dog": "hund", "tree": "baum", "car": "auto", "runs": "rennt"}
PAIRS = [Pair(f"the {one} {other} .", f"{NAMES[other]} das {NAMES[one]} .") for one in NAMES for other in NAMES]
OTHERS = [Pair(f"w{number}", f"v{number}") for number in range(150)] * 2  # so that no word is too common


def test_notes_stand_behind_their_words() -> None:
    notes = [TermNote(6, 9, "cat", "Katze"), TermNote(2, 5, "big", "groß")]
    text, placed = write_notes("a big cat.", notes)
    assert text == "a ｟ big ｜ groß ｠ ｟ cat ｜ Katze ｠."
    assert [text[note.start : note.stop] for note in placed] == ["｟ big ｜ groß ｠", "｟ cat ｜ Katze ｠"]
    assert [text[find_written(place, placed) :][:1] for place in (0, 1, 9)] == ["a", " ", "."]


def test_a_share_of_the_sources_has_terms_always_the_same() -> None:
    pairs = WordPairs(dict.fromkeys(NAMES.items(), 1.0))
    half = Annotator(pairs, 0.5)
    found = [half(pair) for pair in PAIRS]
    assert found == [half(pair) for pair in PAIRS]
    assert 0.25 * len(PAIRS) < sum("｟" in pair.source for pair in found) < 0.75 * len(PAIRS)
    assert [pair.target for pair in found] == [pair.target for pair in PAIRS]
    for pair in found:
        for note in pair.source.split("｟ ")[1:]:
            source, target = note.split(" ｠")[0].split(" ｜ ")
            assert " ".join(NAMES.get(word, "das") for word in source.split()) == target
    assert Annotator(pairs, 0.5)(Pair("", "a")) == Pair("", "a")


def test_words_that_stand_together_on_both_sides_may_be_one_term() -> None:
    pairs = WordPairs({("red", "rot"): 1.0, ("dog", "hund"): 0.9, ("runs", "rennt"): 0.8})
    whole = Annotator(pairs, 0.999999)
    found = {whole(Pair(f"red dog runs {number}", "rot hund rennt")).source for number in range(50)}
    assert any("red dog ｜ rot hund" in source for source in found)
    assert all(source.count("｟") == source.count("｠") == source.count("｜") <= 3 for source in found)


@pytest.mark.parametrize("kind", ["words", "bpe"])
def test_a_run_reads_them_and_held_out_text_stays(kind: str, tmp_path: Path) -> None:
    for side, name in enumerate(("source", "target")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS * 2 + OTHERS), encoding="utf-8")
    sides = {name: str(tmp_path / name) for name in ("source", "target")}
    content = {
        "task": "translate",
        "data": {"train": sides, "valid": {"count": 3}, "terms": 0.5},
        "tokenizer": {"kind": kind, "vocabulary_size": 900, "shared": False},
        "model": {"width": 16, "num_heads": 2, "hidden_width": 32, "num_layers": 1},
        "training": {"max_steps": 2, "validate_every": 2},
    }
    train(content, folder=tmp_path / "run", device="cpu", quiet=True)
    config = config_file.load_config(tmp_path / "run" / "config.yaml")
    both = load_run(tmp_path / "run").source, load_run(tmp_path / "run").target
    (store,) = corpora.stores(config, both, tmp_path / ".data")
    read = [both[0].decode(store.source[row].tolist()) for row in range(len(store))]
    assert any("｟" in text and "｜" in text for text in read)
    assert any("｟" not in text for text in read)
    assert all("｟" not in pair.source for pair in corpora.read_held_out(config)[0].pairs)
    without = config.model_copy(update={"data": config.data.model_copy(update={"terms": 0.0})})
    assert corpora.stores(without, both, tmp_path / ".data")[0].key != store.key


def test_sounds_have_no_terms() -> None:
    sides = {"source": "a", "target": "b"}
    content = {"task": "translate", "input": "features", "data": {"train": sides, "valid": sides, "terms": 0.5}}
    with pytest.raises(UserError, match=r"data\.terms: 0\.5 given; with input: features sources have no words"):
        config_file.check_config(content, "config")
