"""A glossary: what is read, where its entries are found, and that outputs have their terms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from runs import make_run
from saccade.cli import app
from saccade.decoding import Hypothesis
from saccade.errors import UserError
from saccade.runs.load import load_run
from saccade.tasks.translate.predictor import SourceText, Translator
from saccade.tasks.translate.wording.glossary import Glossary
from saccade.tasks.translate.wording.insist import InsistedOutput, count_terms, find_next_piece, has_form
from saccade.tasks.translate.wording.options import Wording

WORDS = ["a", "b", "c", "d", "e", "f", "g", "h"]
TEXTS = ["a b c d", "h g f e", "b b a", "", "c"]
RUNNER = CliRunner()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(11)
    return make_run(tmp_path_factory.mktemp("glossary") / "run")


@pytest.fixture(scope="module")
def translator(run: Path) -> Translator:
    return load_run(run)


def found(entries: dict[str, str], text: str) -> list[tuple[str, str]]:
    return [(note.source, note.target) for note in Glossary.of(entries).find(text)]


def test_entries_are_found_as_whole_words_the_longest_first() -> None:
    entries = {"cat": "chat", "black cat": "chat noir", "cat food": "croquettes", "US": "USA", "Polish": "polonais"}
    assert found(entries, "The Black cat, a CAT and cats concatenate") == [("Black cat", "chat noir"), ("CAT", "chat")]
    assert found(entries, "black cat food") == [("black cat", "chat noir")]  # both are as long or longer than the rest
    assert found(entries, "US polish for us") == [("US", "USA")]
    assert found({"c++": "C plus plus", "e-mail": "courriel"}, "C++, e-mail; e-mails") == [
        ("C++", "C plus plus"),
        ("e-mail", "courriel"),
    ]
    assert found({"猫": "cat", "黑猫": "black cat"}, "一只黑猫和猫") == [("黑猫", "black cat"), ("猫", "cat")]
    assert found({"example": "exemple"}, "an example at www.example.org {example}") == [("example", "exemple")]


def test_a_file_is_read_and_its_mistakes_are_named(tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("\ufeffcat\tchat\n\n big  dog \tgros chien\ncat\tchat\n", encoding="utf-8")
    assert Glossary.read(path).entries == (("cat", "chat"), ("big dog", "gros chien"))
    for content, message in {
        "": "terms.tsv: it is empty",
        "\n\n": "glossary: it has no entry",
        "cat chat\n": "terms.tsv:1: the line has 0 tabs; there must be one",
        "a\tb\tc\n": "terms.tsv:1: the line has 2 tabs",
        "cat\t \n": "terms.tsv:1: its target is blank",
        "source\ttarget\n": "look like a header",
        "cat\tchat\ncat\tchatte\n": "terms.tsv:2: 'cat' is to be 'chat' and 'chatte'",
        "cat\t｟chat\n": "terms.tsv:1: it has one of",
    }.items():
        path.write_text(content, encoding="utf-8")
        with pytest.raises(UserError, match=message):
            Glossary.read(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="UTF-16"):
        Glossary.read(path)
    with pytest.raises(UserError, match="no file"):
        Glossary.read(tmp_path / "none.tsv")


def test_terms_are_counted_as_whole_words() -> None:
    assert count_terms(["Katze"], "die Katze, (Katze) Katzen")["Katze"] == 2
    assert count_terms(["die Katze"], "Die Katze schläft, die Katze")["die Katze"] == 2
    assert count_terms(["Öl"], "Öl Öle Erdöl")["Öl"] == 1
    assert count_terms(["猫"], "我的猫和猫")["猫"] == 2
    assert count_terms(["Hund", "schwarzer Hund"], "ein schwarzer Hund") == {"schwarzer Hund": 1, "Hund": 0}
    assert has_form("Katze", "zwei Katzen")
    assert has_form("kleiner Hund", "einen kleinen Hund")
    assert not has_form("Kater", "die Katze")
    assert not has_form("an", "am")


@pytest.mark.parametrize("decoding", [{}, {"width": 1}, {"num_best": 3}, {"no_repeat_ngram": 2}])
def test_every_term_is_written_as_often_as_its_source(translator: Translator, decoding: dict[str, Any]) -> None:
    terms = {"a": "d h", "b": "f", "g f": "c"}
    for text, best in zip(TEXTS, translator.predict_best(TEXTS, glossary=terms, **decoding), strict=True):
        wanted = Glossary.of(terms).find(text)
        for one in best:
            assert [term.way for term in one.terms] == ["as asked"] * len(wanted)
            for note in wanted:
                assert f" {one.text} ".replace(" ", "  ").count(f" {note.target} ".replace(" ", "  ")) >= sum(
                    other.target == note.target for other in wanted
                )


def test_a_text_without_terms_is_as_before(translator: Translator) -> None:
    before = translator.predict(TEXTS)
    after = translator.predict(TEXTS, glossary={"zebra": "g"})
    assert [one.text for one in before] == [one.text for one in after]


def test_a_term_that_no_token_stands_for_is_written_too(translator: Translator) -> None:
    (one,) = translator.predict(["a b c"], glossary={"b": "Zwölf Zebras"})
    assert "Zwölf Zebras" in one.text
    assert one.terms[0].way == "as asked"


def test_a_term_takes_the_place_of_what_read_its_source(run: Path) -> None:
    """The output up to there stays, but for the word before the term."""
    translator, entries = load_run(run), {"c": "h"}
    text = "a b c d"
    (before,), (after,) = translator.predict([text], width=1), translator.predict([text], width=1, glossary=entries)
    if "h" in before.text.split():
        pytest.skip("the model writes the term by itself")
    (seen,) = translator.look([text], targets=[before.text])
    weight_TS = seen.alignment()[:-1, :4]
    reads = [row for row, best in enumerate(seen.alignment()[:-1].argmax(1).tolist()) if best == 2]
    place = max(reads or range(len(weight_TS)), key=lambda row: float(weight_TS[row, 2]))
    while place - 1 in reads:
        place -= 1
    written = after.text.split()
    assert written[place] == "h"
    assert written[: place - 1] == before.text.split()[: max(0, place - 1)]


def test_what_follows_a_term_is_neither_its_end_nor_what_it_replaced(translator: Translator, tmp_path: Path) -> None:
    def follow(run: Translator, prefix: str, output: str, replaced: set[str]) -> str | None:
        text = run.replace_text(SourceText("a", [], "", [], 0, "a", (), run.target), "a b", Wording())
        text = text._replace(prefix=prefix, prefix_ids=run.target.encode(prefix))
        ids = run.target.encode(output)
        one = InsistedOutput(text, Hypothesis(-1.0, ids, [-0.1] * (len(ids) + 1)))
        found = find_next_piece(run, one, frozenset(replaced))
        return None if found is None else run.target.pieces([found])[0]

    assert follow(translator, "h", "h c d", {"c"}) == "d"
    assert follow(translator, "h", "h c d", {"e"}) is None
    assert follow(translator, "h", "h c", {"c"}) is None  # nothing follows
    letters = load_run(make_run(tmp_path / "letters", "tokenizer.kind=characters"))
    assert follow(letters, "a b", "a bc d", set()) == " "


def test_looking_shows_the_terms(translator: Translator) -> None:
    shown = translator.predict(TEXTS, glossary={"a": "d h"})
    for one, seen in zip(shown, translator.look(TEXTS, glossary={"a": "d h"}), strict=True):
        assert seen.answer.text == one.text
        assert seen.answer.terms == one.terms


def test_with_placeholders(translator: Translator) -> None:
    (one,) = translator.predict(["a {0} b c"], glossary={"b": "h e"}, placeholders="keep")
    assert one.text.count("{0}") == 1
    assert "h e" in one.text
    assert len(translator.output_side(one).word_of_piece) == len(one.pieces) + one.ended


@pytest.mark.parametrize("model", ["bahdanau", "luong", "none"])
def test_every_kind_of_model_writes_them(model: str, tmp_path: Path) -> None:
    sizes = {"kind": "rnn", "width": 14, "embedding_width": 10, "attention": model}
    given = sizes if model != "none" else {**sizes, "direction": "forward"}
    translator = load_run(make_run(tmp_path / "rnn", model=given))
    for one in translator.predict(["a b c", "b"], glossary={"b": "h e"}):
        assert [term.way for term in one.terms] == ["as asked"]


def test_ensembles_and_characters_write_them(run: Path, tmp_path: Path) -> None:
    torch.manual_seed(13)
    other = make_run(tmp_path / "other")
    (both,) = load_run(run, other).predict(["a b c"], glossary={"b": "h e"}, placeholders="keep")
    assert both.terms[0].way == "as asked"
    letters = load_run(make_run(tmp_path / "letters", "tokenizer.kind=characters"))
    (spelt,) = letters.predict(["a b c {0}"], glossary={"b": "h e"}, placeholders="keep")
    assert spelt.terms[0].way == "as asked"
    assert spelt.text.count("{0}") == 1


def test_clashes_are_refused(translator: Translator) -> None:
    terms = {"a": "d"}
    with pytest.raises(UserError, match="glossary: given with sample"):
        translator.predict(["a"], glossary=terms, sample=True)
    with pytest.raises(UserError, match="prefixes: text 2 has one, and its output must also have 'd'"):
        translator.predict(["b", "a"], glossary=terms, prefixes=["c", "c"])
    with pytest.raises(UserError, match="terms: annotate given, but the run was not trained"):
        translator.predict(["a"], glossary=terms, terms="annotate")
    with pytest.raises(UserError, match="terms: constrain given without a glossary"):
        translator.predict(["a"], terms="constrain")
    with pytest.raises(UserError, match="terms: 'both' given; allowed: annotate, constrain"):
        translator.predict(["a"], glossary=terms, terms="both")
    with pytest.raises(UserError, match="its target is blank"):
        translator.predict(["a"], glossary={"a": ""})


def test_a_run_that_reads_notes_gets_them(tmp_path: Path) -> None:
    words = [*WORDS, "｟", "｜", "｠"]
    torch.manual_seed(5)
    trained = load_run(make_run(tmp_path / "run", "data.terms=0.5", words=words))
    (free,) = trained.predict(["a b"], attention=True)
    assert free.source_pieces == ["a", "b", "</s>"]
    (noted,) = trained.predict(["a b"], glossary={"a": "h"}, terms="annotate", attention=True)
    assert noted.source_pieces == ["｟", "a", "｜", "h", "｠", "b", "</s>"]
    (sampled,) = trained.predict(["a b"], glossary={"a": "h"}, sample=True, attention=True)
    assert sampled.source_pieces == noted.source_pieces
    (both,) = trained.predict(["a b"], glossary={"a": "h"})
    assert both.terms[0].way == "as asked"
    (kept,) = trained.predict(["a {0} b"], glossary={"b": "h"}, placeholders="keep", attention=True)
    assert kept.source_pieces == ["a", "{0}", "｟", "b", "｜", "h", "｠", "</s>"]


def test_the_commands_take_a_file_and_count(run: Path, tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("a\td h\nzebra\tg\n", encoding="utf-8")
    (tmp_path / "in.txt").write_text("a b\nc\n", encoding="utf-8")
    glossary = ["--glossary", str(tmp_path / "terms.tsv")]
    shown = RUNNER.invoke(app, ["predict", str(run), "--input", str(tmp_path / "in.txt"), "--json", *glossary])
    assert "terms: 1 as asked, 0 in another form, 0 missing; 1 of 2 are in no source" in shown.stderr
    assert json.loads(shown.stdout.splitlines()[0])["terms"] == [{"source": "a", "target": "d h", "way": "as asked"}]
    files = [str(tmp_path / "in.txt")] * 2
    scored = RUNNER.invoke(app, ["evaluate", str(run), *files, "--json", *glossary])
    assert json.loads(scored.stdout)["terms"] == {"as asked": 1, "in no source": 1}
    missing = RUNNER.invoke(app, ["predict", str(run), "--glossary", str(tmp_path / "none.tsv")])
    assert isinstance(missing.exception, UserError)
