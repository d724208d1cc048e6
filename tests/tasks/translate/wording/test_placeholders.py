"""Placeholders: which there are, how a text reads without them, where they are put, and that none is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from runs import make_run
from saccade.cli import app
from saccade.data.text.placeholders import find_placeholders, take_out
from saccade.data.text.tokenizer import Vocabulary
from saccade.errors import UserError
from saccade.inspection.insight import TextSide
from saccade.runs import config as config_file
from saccade.runs.load import load_run
from saccade.tasks.translate.result import TranslationResult
from saccade.tasks.translate.wording.put_back import put_back, read_words

TEXTS = [
    "a b {0} c",
    "%s",
    "d <x id=\"1\"/>e<x id='2'/> f, see https://example.org/a_(b)?x=1&y=2.",
    "write to info@example.com a b c",
    "a {0}-{1} b %(name)d c %1$s",
    "",
    "h g f e d c b a",
]
RNN = {"kind": "rnn", "width": 14, "embedding_width": 10, "attention": "none", "direction": "forward"}
RUNNER = CliRunner()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(7)
    return make_run(tmp_path_factory.mktemp("placeholders") / "run", "languages={source: en, target: de}")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Dear {0}, you have %d new messages.", ["{0}", "%d"]),
        ("{name} {} {0:.2f} {{ user.name }} ${x} #{y}", ["{name}", "{}", "{0:.2f}", "{{ user.name }}", "${x}", "#{y}"]),
        (
            "%s %5.2f %-10s %1$s %(count)d %@ %ld 100%%",
            ["%s", "%5.2f", "%-10s", "%1$s", "%(count)d", "%@", "%ld", "%%"],
        ),
        ("50 %ige, 20% der, 100%sure, 5 % so, {a b}, {count, plural, one {# file}}", []),
        ('<x id="1"/> <b>bold</b> <br> <g id=2 k>', ['<x id="1"/>', "<b>", "</b>", "<br>", "<g id=2 k>"]),
        ("if a < b and c > d, I <3 you", []),
        ("see (https://a.b/c_(d)), www.x.org. ftp://h/f!", ["https://a.b/c_(d)", "www.x.org", "ftp://h/f"]),
        ("a.b+c@mail.example.org, or @me, or a@b", ["a.b+c@mail.example.org"]),
        ("請看https://x.y/z。好", ["https://x.y/z"]),
    ],
)
def test_placeholders_are_found(text: str, found: list[str]) -> None:
    assert sorted(find_placeholders(text).elements()) == sorted(found)


@pytest.mark.parametrize(
    ("text", "rest", "taken"),
    [
        ("Dear {0}, you", "Dear, you", [("{0}", 4, "", ",")]),
        ("dear {0} , you", "dear , you", [("{0}", 4, "", "")]),
        ("{0}MB of ({1}) free", "of free", [("{0}MB", 0, "", ""), ("({1})", 2, "", "")]),
        ("rows {0}-{1}: {user}@{host}", "rows:", [("{0}-{1}", 4, "", ":"), ("{user}@{host}", 5, "", "")]),
        ("a <b>cat</b> b", "a cat b", [("<b>", 1, "", "c"), ("</b>", 5, "t", "")]),
        ("l'{0} est", "l' est", [("{0}", 2, "'", "")]),
        ("{0}", "", [("{0}", 0, "", "")]),
    ],
)
def test_a_text_without_them_reads_on(text: str, rest: str, taken: list[tuple[str, int, str, str]]) -> None:
    stripped = take_out(text)
    assert stripped.text == rest
    assert [(one.text, one.place, one.before, one.after) for one in stripped.placeholders] == taken


def place(source: str, output: str, links: list[tuple[int, int]], *, has_weights: bool = True) -> TranslationResult:
    """Put the placeholders of a source into an output whose words are linked with the source's other words so."""
    stripped, words = take_out(source), output.split()
    sides = TextSide.of(stripped.text, stripped.text.split()), TextSide.of(output, words)
    weight_TS = torch.full((len(words) + 1, len(sides[0].words) + 1), 0.01)
    for read, word in links:
        weight_TS[word, read] = 1.0
    weights = weight_TS if has_weights else None
    result = TranslationResult(
        output, -1.0, words, [-0.5] * (len(words) + 1), attention=weights, source_pieces=[*sides[0].words, "</s>"]
    )
    return put_back(result, stripped.placeholders, read_words(*sides, weights), Vocabulary([], "words"))


def test_each_goes_where_its_neighbours_were_read() -> None:
    assert place("Dear {0}, you have %d messages.", "Sie haben Nachrichten, Lieber", [(0, 3), (1, 0), (2, 1), (3, 2)])[
        0
    ] in ("Sie haben %d Nachrichten, Lieber {0}", "{0} Sie haben %d Nachrichten, Lieber")
    assert place("open {0} now", "jetzt öffnen", [(0, 1), (1, 0)])[0] in ("jetzt öffnen {0}", "{0} jetzt öffnen")
    assert place("the <b>black</b> cat", "le chat noir", [(0, 0), (1, 2), (2, 1)])[0].count("<b>") == 1
    assert place("a {0} b {1} c", "A B C", [(0, 0), (1, 1), (2, 2)])[0] == "A {0} B {1} C"
    assert place("{1} {0} a", "A", [(0, 0)])[0] == "{1} {0} A"
    assert place("write to {0}.", "schreibe an.", [(0, 0), (1, 1)])[0] == "schreibe an {0}."
    assert place("click <x/>here<y/> now", "jetzt hier klicken", [(0, 2), (1, 1), (2, 0)])[0].count("hier") == 1


def test_tags_touch_the_word_that_they_touched() -> None:
    assert (
        place("a <b>cat</b> sleeps", "eine Katze schläft", [(0, 0), (1, 1), (2, 2)])[0] == "eine <b>Katze</b> schläft"
    )


def test_without_attention_the_length_decides_and_says_so() -> None:
    found = place("a b {0} c d", "A B C D", [], has_weights=False)
    assert (found.text, found.kept[0].way) == ("A B {0} C D", "by length")


def test_it_is_a_piece_that_is_certain_and_read_itself() -> None:
    found = place("a {0} b", "A B", [(0, 0), (1, 1)])
    assert found.pieces == ["A", "{0}", "B"]
    assert found.log_probabilities == [-0.5, 0.0, -0.5, -0.5]
    assert found.source_pieces == ["a", "{0}", "b", "</s>"]
    assert found.attention is not None
    assert found.attention.shape == (4, 4)
    assert found.attention[1].tolist() == [0.0, 1.0, 0.0, 0.0]
    assert found.attention[:, 1].tolist() == [0.0, 1.0, 0.0, 0.0]
    assert found.attention[2, 2] == 1.0


@pytest.mark.parametrize(
    "decoding", [{}, {"width": 1}, {"num_best": 3}, {"sample": True, "seed": 3}, {"attention": True}]
)
def test_every_output_has_each_of_them_once(run: Path, decoding: dict[str, object]) -> None:
    translator = load_run(run)
    for text, best in zip(TEXTS, translator.predict_best(TEXTS, **decoding), strict=True):
        for one in best:
            assert find_placeholders(one.text) == find_placeholders(text)
            assert len(one.log_probabilities) in (len(one.pieces), len(one.pieces) + 1)
            side = translator.output_side(one)
            assert len(side.word_of_piece) == len(one.pieces) + one.ended
            if one.attention is not None:
                assert one.attention.shape == (len(one.log_probabilities), len(one.source_pieces))
    (plain,) = translator.predict(["h g f e d c b a"], **decoding)
    (same,) = translator.predict(["h g f e d c b a"], placeholders="ignore", **decoding)
    assert plain.text == same.text


def test_a_text_of_nothing_else_stays_and_a_model_without_attention_keeps_them(run: Path, tmp_path: Path) -> None:
    assert load_run(run).predict(["{0}:  {1}"])[0].text == "{0}: {1}"
    rnn = load_run(make_run(tmp_path / "rnn", "decoding.placeholders=keep", model=RNN))
    found = rnn.predict(["a b {0} c"])[0]
    assert found.text.count("{0}") == 1
    assert [one.way for one in found.kept] == ["by length"]


def test_a_model_that_copies_them_keeps_its_own_output(tmp_path: Path) -> None:
    words = ["{0}", "a"]
    torch.manual_seed(3)
    run = load_run(make_run(tmp_path / "run", "languages={source: en, target: de}", words=words))
    texts = [" ".join(["a"] * (4 - count) + ["{0}"] * count) for count in (1, 2, 3)]
    num_copied = 0
    for seed in range(8):
        decoding = {"sample": True, "seed": seed, "temperature": 50.0, "max_length_factor": 1.0, "max_length_extra": 0}
        free = run.predict(texts, placeholders="ignore", **decoding)
        kept = run.predict(texts, **decoding)
        for text, one, other in zip(texts, free, kept, strict=True):
            if find_placeholders(one.text) == find_placeholders(text):
                num_copied += 1
                assert (other.text, {kept.way for kept in other.kept}) == (one.text, {"copied"})
    assert num_copied


def test_looking_reads_the_output_with_them(run: Path) -> None:
    translator = load_run(run)
    texts = ["a b {0} c", "h g f", "%s"]
    for seen, shown in zip(translator.look(texts), translator.predict(texts), strict=True):
        assert seen.answer.text == shown.text
        assert len(seen.sides["output"].pieces) == len(seen.answer.log_probabilities)
        assert seen.map("cross").weight_LHTS.shape[2] == len(seen.sides["output"].pieces)
        put = [one.text for one in shown.kept if one.way != "copied"]
        words = zip(seen.answer.text.split(), seen.answer.log_probabilities, strict=False)
        assert [word for word, step in words if step == 0] == put


def test_who_says_so_decides(run: Path, tmp_path: Path) -> None:
    unknown = load_run(make_run(tmp_path / "unknown"))
    assert "{0}" not in unknown.predict(["a {0} b"])[0].text  # no languages: they are words like others
    assert "{0}" in unknown.predict(["a {0} b"], placeholders="keep")[0].text
    assert "{0}" not in load_run(run).predict(["a {0} b"], placeholders="ignore")[0].text
    never = load_run(make_run(tmp_path / "never", "languages={source: en, target: de}", "decoding.placeholders=ignore"))
    assert "{0}" not in never.predict(["a {0} b"])[0].text


def test_mistakes_are_refused(run: Path) -> None:
    translator = load_run(run)
    with pytest.raises(UserError, match="placeholders: 'yes' given; allowed: keep, ignore"):
        translator.predict(["a"], placeholders="yes")
    with pytest.raises(UserError, match=r"prefixes: text 2 has one, and its output must also have '\{0\}'"):
        translator.predict(["a", "a {0}"], prefixes=["b", "b"])
    sounds = {
        "input": "features",
        "data": {"train": {"source": "a", "target": "b"}, "valid": {"source": "a", "target": "b"}},
    }
    with pytest.raises(UserError, match=r"decoding\.placeholders: 'keep' given"):
        config_file.check_config({**sounds, "task": "translate", "decoding": {"placeholders": "keep"}}, "config")


def test_the_command_keeps_them_and_says_how(run: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a b {0} c\n", encoding="utf-8")
    found = RUNNER.invoke(app, ["predict", str(run), "--input", str(tmp_path / "in.txt"), "--json"])
    shown = json.loads(found.stdout)
    assert shown["text"].count("{0}") == 1
    assert shown["kept"] == [{"text": "{0}", "way": "aligned"}]
    command = ["predict", str(run), "--input", str(tmp_path / "in.txt"), "--placeholders", "ignore"]
    assert "{0}" not in RUNNER.invoke(app, command).stdout
