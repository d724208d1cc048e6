"""Copying through the whole task: unknown words come out, whatever way they are searched; what can't be is refused."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from runs import make_run
from saccade.api import train
from saccade.cli import app
from saccade.errors import UserError
from saccade.runs.load import load_run
from saccade.tasks.texts import LongTextWarning
from saccade.tasks.translate.predictor import Translator

RUNNER = CliRunner()
MODELS: dict[str, dict[str, object]] = {
    "transformer": {"width": 16, "num_heads": 2, "hidden_width": 32, "num_layers": 1, "copies": True},
    "rnn": {"kind": "rnn", "width": 14, "embedding_width": 10, "copies": True, "coverage": True},
}
TEXTS = ["a Mara b 17 Mara", "Tom", "c d e", ""]


@pytest.fixture(scope="module", params=MODELS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(7)
    return make_run(tmp_path_factory.mktemp("copying") / "run", model=MODELS[request.param])


@pytest.fixture(scope="module")
def translator(run: Path) -> Translator:
    found = load_run(run)
    assert isinstance(found, Translator)
    with torch.no_grad():
        found.model.get_parameter("gate.bias").fill_(-3.0)  # it copies most of the time
    return found


def test_a_beam_of_one_is_greedy_and_a_beam_is_no_worse(translator: Translator) -> None:
    greedy = translator.predict(TEXTS, width=1, max_length=6)
    assert "Mara" in greedy[0].text.split() or "17" in greedy[0].text.split()
    for one, best in zip(greedy, translator.predict_best(TEXTS[:3], num_best=3, width=6, max_length=6), strict=False):
        assert best[0].score >= one.score - 1e-5
        assert len({other.text for other in best}) == 3
    for text, one in zip(TEXTS, greedy, strict=True):
        assert set(one.text.split()) <= {*text.split(), *"abcdefgh", "<unk>"}


def test_alone_or_in_company_is_the_same(translator: Translator) -> None:
    together = translator.predict(TEXTS, width=4)
    assert [one.text for one in together] == [translator.predict([text], width=4)[0].text for text in TEXTS]
    drawn = translator.predict(TEXTS, sample=True, seed=3)
    assert [one.text for one in drawn] == [translator.predict([text], sample=True, seed=3)[0].text for text in TEXTS]


def test_an_ensemble_copies_as_its_members_do(translator: Translator, tmp_path: Path) -> None:
    both = Translator.ensemble([("one", translator), ("two", translator)])
    for one, alone in zip(both.predict(TEXTS, width=2), translator.predict(TEXTS, width=2), strict=True):
        assert one.text == alone.text
        assert one.score == pytest.approx(alone.score, abs=1e-4)
    plain = load_run(make_run(tmp_path / "plain"))
    with pytest.raises(UserError, match="all runs copy, or none"):
        Translator.ensemble([("one", translator), ("plain", plain)])


def test_outputs_may_begin_with_a_word_that_only_the_source_has(translator: Translator) -> None:
    (found,) = translator.predict(["a Mara b"], prefixes=["Mara b"], width=2)
    assert found.text.startswith("Mara b")
    (given,) = translator.look(["a Mara b"], targets=["Mara b"])
    assert given.answer.pieces == ["Mara", "b"]
    assert given.answer.log_probabilities[:2] == pytest.approx(found.log_probabilities[:2], abs=1e-4)


def test_words_behind_the_end_of_what_is_read_are_unknown(translator: Translator) -> None:
    short = replace(translator, max_source_length=2)
    with pytest.warns(LongTextWarning, match="only the first 2 are read"):
        (found,) = short.predict(["a Tom b Mara"], prefixes=["Tom Mara"], width=2)
    assert found.pieces[:2] == ["Tom", "<unk>"]


def test_what_was_copied_is_told(translator: Translator) -> None:
    (seen,) = translator.look(TEXTS[:1], kinds=("cross", "copy"), width=1)
    (shown,) = translator.predict(TEXTS[:1], attention=True, width=1)
    for one, other in zip(seen.answer.copied, shown.copied, strict=True):
        assert one == pytest.approx(other, abs=1e-4)
    weight_TS = seen.map("copy").weight_LHTS[0, 0]
    pieces = [*seen.answer.pieces, "</s>"][: len(seen.answer.copied)]
    for piece, weight_S, one in zip(pieces, weight_TS, seen.answer.copied, strict=True):
        assert one.place == int(weight_S.argmax())
        assert 0 <= one.gate <= 1
        if piece in ("Mara", "17"):
            assert one.share == pytest.approx(1, abs=1e-3)  # there is no other way to write it
    assert any("<- word" in note and "Mara" in note for note in seen.notes)
    assert json.loads(json.dumps(seen.plain()))["answer"]["copied"][0].keys() == {"gate", "share", "place", "weight"}


def test_look_and_predict_say_it_in_the_terminal(run: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("a Mara b\n", encoding="utf-8")
    looked = RUNNER.invoke(app, ["look", str(run), "a Mara b", "--kind", "copy", "--draw", str(tmp_path / "look.html")])
    assert looked.exit_code == 0, looked.output
    assert "copied:" in looked.output
    assert (tmp_path / "look.html").stat().st_size > 0
    found = RUNNER.invoke(app, ["predict", str(run), "--input", str(text), "--attention", "--json"])
    assert found.exit_code == 0, found.output
    assert "copied" in json.loads(found.output)
    through = RUNNER.invoke(app, ["look", str(run), "a Mara b", "--kind", "copy", "--view", "rollout"])
    assert isinstance(through.exception, UserError)
    assert "what was copied is shown by one layer" in str(through.exception)


def test_formats_that_know_no_copies_say_so(run: Path, tmp_path: Path) -> None:
    for name in ("ctranslate2", "huggingface", "onnx"):
        pytest.importorskip({"huggingface": "transformers"}.get(name, name))
        found = RUNNER.invoke(app, ["export", str(run), name, str(tmp_path / name)])
        assert isinstance(found.exception, UserError)
        assert "can't say model.copies: true" in str(found.exception)
        assert not (tmp_path / name).exists()


def test_trust_is_refused_where_a_copied_word_can_be_taken_out(translator: Translator) -> None:
    with pytest.raises(UserError, match="a word that is copied can't be written any more"):
        translator.trust_test()


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("tokenizer.shared=false", "tokenizer.shared: false"),
        ("training.consistency=1", "training.consistency"),
        ("training.shard=true", "training.shard"),
        ("training.batches=packed", "points at the rows of padded ones"),
        ("model.copies=false", "no effect with copies: false"),
    ],
)
def test_what_goes_with_no_copies_is_refused_in_one_line(override: str, said: str, tmp_path: Path) -> None:
    config = write_copies(tmp_path, random.Random(1), 30)
    found = RUNNER.invoke(app, ["train", str(config), "model.coverage=true", override, "--run", str(tmp_path / "run")])
    assert isinstance(found.exception, UserError), found.output
    assert said in str(found.exception)
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_it_learns_to_copy_words_that_no_training_text_has(tmp_path: Path) -> None:
    """Without copies no unknown word can come out at all: the baseline is 0."""
    config = write_copies(tmp_path, random.Random(1), 400)
    train(config, folder=tmp_path / "run", quiet=True)
    found = load_run(tmp_path / "run")
    lines = [draw(random.Random(seed)) for seed in range(1000, 1040)]
    written = [one.text for one in found.predict([source for source, _ in lines], width=1)]
    assert sum(text == target for text, (_, target) in zip(written, lines, strict=True)) >= 36


def draw(dice: random.Random) -> tuple[str, str]:
    """Draw a sentence with a name that comes nowhere else, and what is asked of it."""
    name = "".join(dice.choice("abcdefghiklmnoprstu") for _ in range(7))
    before = [dice.choice(("well", "so", "now")) for _ in range(dice.randint(0, 3))]
    return " ".join([*before, "my", "name", "is", name, "and", "that", "is", "all"]), f"hello {name}"


def write_copies(folder: Path, dice: random.Random, count: int) -> Path:
    for name, size in (("train", count), ("valid", 20)):
        lines = ["\t".join(draw(dice)) for _ in range(size)]
        (folder / f"{name}.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    content: dict[str, object] = {
        "data": {"train": {"source": str(folder / "train.tsv")}, "valid": {"source": str(folder / "valid.tsv")}},
        "tokenizer": {"kind": "words", "vocabulary_size": 20},
        "model": {**MODELS["transformer"], "width": 32},
        "training": {
            "max_steps": 150,
            "tokens_per_batch": 512,
            "learning_rate": 0.01,
            "warmup_steps": 20,
            "label_smoothing": 0,
            "validate_every": 150,
        },
    }
    (config := folder / "copies.yaml").write_text(json.dumps(content), encoding="utf-8")
    return config
