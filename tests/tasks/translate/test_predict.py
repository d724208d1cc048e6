"""Predicting and scoring with runs that were never trained: what doesn't depend on what they say."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from runs import WORDS, make_run
from saccade.cli import app
from saccade.errors import UserError
from saccade.models.transformer import Transformer
from saccade.runs.load import load_run
from saccade.tasks.translate import predictor
from saccade.tasks.translate.scoring import scores

LINES = [" ".join(words) for count in (1, 3, 5) for words in itertools.islice(itertools.permutations(WORDS, count), 40)]
RUNNER = CliRunner()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(7)
    return make_run(tmp_path_factory.mktemp("predict") / "run")


def test_a_stream_is_what_predict_gives_and_reads_no_further_than_its_window(run: Path) -> None:
    translator, num_read = load_run(run), 0

    def lines() -> Iterator[str]:
        nonlocal num_read
        for line in LINES:
            num_read += 1
            yield line

    stream = translator.stream(lines(), window=8)
    first = [next(stream) for _ in range(8)]
    assert num_read == 8
    assert [found.text for found in [*first, *stream]] == [found.text for found in translator.predict(LINES)]


def test_samples_depend_on_seed_and_text_alone(run: Path) -> None:
    translator = load_run(run)
    together = translator.predict(LINES, sample=True, temperature=2.0, seed=3)
    assert [translator.predict([line], sample=True, temperature=2.0, seed=3)[0].text for line in LINES[-5:]] == [
        found.text for found in together[-5:]
    ]
    assert [found.text for found in translator.predict(LINES, sample=True, temperature=2.0)] != [
        found.text for found in together
    ]
    several = translator.predict_best(LINES[:3], sample=True, num_best=6, top_k=5, top_p=0.9)
    assert [len(best) for best in several] == [6, 6, 6]
    assert all(best == sorted(best, key=lambda found: -found.score) for best in several)


def test_predict_gives_as_many_outputs_as_it_is_asked_for(run: Path) -> None:
    translator = load_run(run)
    assert translator.options.width == 4
    for decoding in ({"num_best": 3}, {"num_best": 6}, {"num_best": 3, "beam": 5}, {"num_best": 5, "sample": True}):
        found, blank = translator.predict(["a b c", ""], **decoding)
        best = translator.predict_best(["a b c"], **decoding)[0]
        assert [found._replace(others=()), *found.others] == best
        assert len(best) == decoding["num_best"]
        assert [one["text"] for one in found.plain()["others"]] == [one.text for one in best[1:]]
        assert (blank.text, blank.others) == ("", ())
    (alone,) = translator.predict(["a b c"])
    assert alone.others == ()
    assert "others" not in alone.plain()
    with pytest.raises(UserError, match="num_best: 3 given; a beam of 1 holds no more than its width, so give a wider"):
        translator.predict(["a b c"], num_best=3, beam=1)


def test_the_command_line_prints_as_many_outputs(run: Path) -> None:
    for options, count in ((["--num-best", "3"], 3), (["--num-best", "7", "--sample"], 7), (["--num-best", "6"], 6)):
        done = RUNNER.invoke(app, ["predict", str(run), "--json", *options], input=b"a b c\n")
        assert len(json.loads(done.stdout)["others"]) == count - 1


@pytest.mark.parametrize(
    ("decoding", "message"),
    [
        ({"temperature": 2.0}, "temperature: not an option of a beam; it goes with sample"),
        ({"key_terms": 3}, "key_terms: not an option of a beam; allowed: "),
        ({"sample": True, "width": 4}, "width: not an option of samples; allowed: num_best, length_penalty"),
        ({"layer": 1}, "layer: given without attention"),
        ({"attention": True, "layer": 2}, "layer: 2 given; allowed: 0 to 1, or -1 for the last"),
        ({"attention": True, "head": -3}, "head: -3 given; allowed: 0 to 1"),
        ({"prefixes": ["a"]}, "prefixes: there must be one for each text, but the prefixes end after 1"),
        ({"prefixes": ["a", "b", "c"]}, "but the texts end after 2"),
    ],
)
def test_what_has_no_effect_is_refused(run: Path, decoding: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_run(run).predict(["a b", "c"], **decoding)


def test_outputs_begin_with_their_prefixes_even_with_unknown_words(run: Path) -> None:
    translator = load_run(run)
    for width in (1, 4):
        found = translator.predict(["a b", "c d e", "", "f"], prefixes=["g unheard h", "", "a", "b"], width=width)
        assert found[0].text.startswith("g unheard h")
        assert found[0].pieces[:3] == ["g", "<unk>", "h"]
        assert found[1].text == translator.predict(["c d e"], width=width)[0].text
        assert found[2].text == ""
        assert found[3].pieces[0] == "b"


def test_unknown_words_are_counted_and_the_first_source_with_some_is_named(run: Path, tmp_path: Path) -> None:
    assert [one.unknown for one in load_run(run).predict(["a b", "a unheard", "", "new words a"])] == [None, 1, None, 2]
    (tmp_path / "new.txt").write_text("a b\na unheard\n\nnew words a\n", "utf-8")
    told = "of 4 sources have words or letters that the model doesn't know and reads as <unk>, the first is 2\n"
    done = RUNNER.invoke(app, ["predict", str(run), "--input", str(tmp_path / "new.txt"), "--json"])
    assert done.stderr.endswith(f"saccade: 2 {told}")
    assert [json.loads(line).get("unknown") for line in done.stdout.splitlines()] == [None, 1, None, 2]
    shown = RUNNER.invoke(app, ["evaluate", str(run), *[str(tmp_path / "new.txt")] * 2]).stdout
    assert f"2 {told}" in shown


def test_what_is_cut_is_flagged_counted_and_named(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def say_one_word(model: Transformer, vectors: Tensor) -> Tensor:
        return torch.eye(model.target.num_embeddings)[5].expand(*vectors.shape[:-1], -1) * 1e4

    monkeypatch.setattr(Transformer, "logits", say_one_word)
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_text("a b c\n\nd e f g\n\n", encoding="utf-8")
    target.write_text("a\nb\nc\nd\n", encoding="utf-8")

    def said(*options: str) -> str:
        done = RUNNER.invoke(app, ["predict", str(run), "--input", str(source), "--json", *options])
        flags = [json.loads(line).get("cut") for line in done.stdout.splitlines()]
        assert flags == ["loop" if "circles" in done.stderr else "length", None] * 2
        return done.stderr

    reached = "2 of 4 outputs reached their greatest length: decoding"
    for way in (("--beam", "1"), ("--beam", "3"), ("--sample",), ("--ensemble", str(run))):
        assert said(*way) == f"saccade: {reached}.max_length_factor\n"
    assert said("--max-length", "5") == f"saccade: {reached}.max_length\n"
    circles = "2 of 4 outputs were cut where they went in circles: decoding.max_rounds"
    assert said("--beam", "1", "--max-length-factor", "20") == f"saccade: {circles}\n"
    assert said("--beam", "1", "--max-length-extra", "70") == f"saccade: {circles}\n"
    assert "max_length_factor" in said("--beam", "1", "--max-length-factor", "20", "--max-rounds", "0")
    arguments = ["evaluate", str(run), str(source), str(target), "--beam", "1", "--max-length-factor", "20"]
    assert RUNNER.invoke(app, arguments).stdout.splitlines()[-1] == circles
    assert json.loads(RUNNER.invoke(app, [*arguments, "--json"]).stdout)["cut"] == {"max_rounds": 2}


def test_attention_comes_on_request(run: Path) -> None:
    translator = load_run(run)
    plain = translator.predict(["a b c", "", "d e"])
    found = translator.predict(["a b c", "", "d e"], attention=True)
    assert [one.text for one in found] == [one.text for one in plain]
    assert plain[0].attention is None
    assert found[1].attention is None
    assert found[0].source_pieces == ["a", "b", "c", "</s>"]
    for one, size in ((found[0], 4), (found[2], 3)):
        assert one.attention is not None
        assert one.attention.shape == (len(one.log_probabilities), size)
        torch.testing.assert_close(one.attention.sum(1), torch.ones(len(one.log_probabilities)))
    heads = [translator.predict(["a b c"], attention=True, head=head)[0].attention for head in (0, 1)]
    assert found[0].attention is not None
    torch.testing.assert_close(found[0].attention, (heads[0] + heads[1]) / 2)
    other = translator.predict(["a b c"], attention=True, layer=0)[0].attention
    assert not torch.equal(found[0].attention, other)


@pytest.mark.parametrize("attention", ["none", "bahdanau", "luong"])
def test_recurrent_models_decode_alike(attention: str, run: Path, tmp_path: Path) -> None:
    model = {"kind": "rnn", "width": 16, "embedding_width": 16, "num_layers": 1, "attention": attention}
    translator = load_run(make_run(tmp_path / "rnn", model=model))
    for decoding in ({"width": 1}, {"width": 3}, {"sample": True, "temperature": 2.0}):
        together = translator.predict(LINES, **decoding)
        alone = [translator.predict([line], **decoding)[0] for line in LINES[-3:]]
        assert [found.text for found in alone] == [found.text for found in together[-3:]]
    if attention == "none":
        with pytest.raises(UserError, match="attention: this model has none"):
            translator.predict(["a b"], attention=True)
    else:
        weight_TS = translator.predict(["a b"], attention=True)[0].attention
        assert weight_TS is not None
        assert weight_TS.shape[1] == 3
    assert len(load_run(run, tmp_path / "rnn").predict(LINES, attention=True)) == len(LINES)


def test_an_ensemble_of_equals_is_the_run_and_tokenizers_must_agree(run: Path, tmp_path: Path) -> None:
    alone, twice = (translator.predict(LINES) for translator in (load_run(run), load_run(run, run)))
    assert [found.text for found in alone] == [found.text for found in twice]
    other = load_run(run, make_run(tmp_path / "same", "seed=5")).predict(LINES, attention=True)
    assert [found.text for found in alone] != [found.text for found in other]
    stranger = make_run(tmp_path / "stranger", words=[*WORDS, "x"])
    with pytest.raises(
        UserError, match=r"stranger: its source tokenizer differs from that of .*run; an ensemble shares"
    ):
        load_run(run, stranger)


def test_sources_that_are_too_long_are_cut_with_a_warning(run: Path) -> None:
    translator = replace(load_run(run), max_source_length=4)
    with pytest.warns(UserWarning, match=r"source 5 has 1,200 tokens; only the first 4 are read \(max_source_length\)"):
        *_, found = translator.stream(["a", "b", "", "c d", "a b c d " * 300], window=2)
    assert found.text == translator.predict(["a b c d"])[0].text


def test_learned_positions_bound_both_sides(tmp_path: Path) -> None:
    learned = make_run(tmp_path / "learned", "model.positions=learned", "data.max_length=8")
    with pytest.warns(UserWarning, match="only the first 31 are read"):
        (found,) = load_run(learned).predict(["a b c d e f g h " * 10], min_length=31)
    assert len(found.log_probabilities) <= 32


def test_scores_by_length_by_hand() -> None:
    sources = ["a b c d e", "a", "a b c d e f", "x " * 200, ""]
    outputs = ["one two three four five", "one two three four", "wrong", "six seven eight nine", ""]
    references = [outputs[0], outputs[1], "one two three four five six", outputs[3], ""]
    found = scores.score_by_length(sources, outputs, references)
    assert [(row.label, row.num_pairs) for row in found] == [("0-5", 3), ("6-10", 1), ("over 100", 1)]
    assert [row.scores.bleu for row in found] == pytest.approx([100, 0, 100])
    with pytest.raises(UserError, match="sources: 2 given for 5 outputs"):
        scores.score_by_length(sources[:2], outputs, references)
    with pytest.raises(UserError, match="references: 3 given for 5 outputs"):
        scores.score_texts(outputs, references[:3])


def test_evaluate_reports_by_length_and_draws(run: Path, tmp_path: Path) -> None:
    source, target, plot = tmp_path / "x.gz", tmp_path / "y", tmp_path / "plot.svg"
    source.write_bytes(gzip.compress("".join(f"{line}\n" for line in LINES).encode()))
    target.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    arguments = ["evaluate", str(run), str(source), str(target), "--beam", "1", "--plot", str(plot)]
    report = json.loads(RUNNER.invoke(app, [*arguments, "--json"]).output)
    assert [(row["label"], row["num_pairs"]) for row in report["by_length"]] == [("0-5", len(LINES))]
    assert report["by_length"][0]["bleu"] == report["bleu"]
    assert b"<svg" in plot.read_bytes()
    shown = RUNNER.invoke(app, arguments).output
    assert "words in the source" in shown
    assert f"chrF {report['chrf']:.2f}" in shown
    assert "BLEU" not in shown  # most references have fewer than four words
    target.write_text("one line\n", encoding="utf-8")
    refused = RUNNER.invoke(app, arguments).exception
    assert isinstance(refused, UserError)
    assert "same number of lines" in str(refused)


def test_predict_speaks_json_and_draws(run: Path, tmp_path: Path) -> None:
    def shown(*options: str) -> list[str]:
        done = RUNNER.invoke(app, ["predict", str(run), *options], input=b"a b c\n\n")
        assert done.exit_code == 0, done.output
        return done.stdout.splitlines()

    first, blank = (json.loads(line) for line in shown("--json", "--num-best", "3", "--attention"))
    assert len(first["others"]) == 2
    assert first["source_pieces"] == ["a", "b", "c", "</s>"]
    assert len(first["attention"]) == len(first["log_probabilities"])
    assert blank == {"text": "", "score": 0.0, "pieces": [], "log_probabilities": [], "ended": True}
    drawn = shown("--attention")
    assert drawn[0] == first["text"]
    assert drawn[1].split() == ["a", "b", "c", "</s>"]
    prefix = tmp_path / "prefix"
    prefix.write_text("h g\n\n", encoding="utf-8")
    assert shown("--prefix", str(prefix), "--ensemble", str(run))[0].startswith("h g")
    assert shown("--sample", "--seed", "4") == shown("--sample", "--seed", "4")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--num-best", "3"), "--num-best: more than one output a line needs --json"),
        (("--num-best", "3", "--beam", "1", "--json"), "num_best: 3 given; a beam of 1 holds no more than its width"),
        (("--sample", "--top-p", "2"), "top_p: 2.0 given"),
        (("--min-length", "5000"), "min_length: 5000 given; it must be below max_length, 4096"),
    ],
)
def test_predict_says_what_is_wrong(run: Path, options: tuple[str, ...], message: str) -> None:
    refused = RUNNER.invoke(app, ["predict", str(run), *options], input=b"a\n").exception
    assert isinstance(refused, UserError)
    assert message in str(refused)


def test_long_lines_are_named_on_standard_error(run: Path) -> None:
    done = RUNNER.invoke(app, ["predict", str(run), "--max-length", "9"], input=b"a\n" + b"a b " * 6000 + b"\n")
    assert done.exit_code == 0
    first, *_ = done.stderr.splitlines()
    assert first == "saccade: source 2 has 12,000 tokens; only the first 8,192 are read (max_source_length)"
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.usefixtures("quick_start")
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_reader_who_has_seen_enough_and_ctrl_c_end_it_quietly(run: Path) -> None:
    command = [sys.executable, "-c", "from saccade.cli import main; main()", "predict", str(run), "--beam", "1"]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=quiet, **pipes) as process:  # type: ignore[call-overload]
        process.stdout.close()
        process.stdin.write(b"a b\n" * 100)
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0
    with subprocess.Popen(command, env=quiet, **pipes) as process:  # type: ignore[call-overload]
        process.stdin.write(b"a b\n" * predictor.WINDOW)
        process.stdin.flush()
        assert process.stdout.readline()  # it waits for the next window now
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b"saccade: interrupted\n"
        assert process.wait(60) == 130
