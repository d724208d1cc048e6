"""`saccade look --trust`: from a run and its texts to a panel, for models that write and that judge."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import hand_made
from runs import make_run
from saccade.cli import app
from saccade.data.labels.labelled import Text
from saccade.data.text.tokenizer import END
from saccade.errors import UserError
from saccade.inspection.insight import Head
from saccade.inspection.trust.evidence import NO_WORD, TrustCase
from saccade.layers.pooling import MeanPooling
from saccade.runs.load import load_run
from saccade.tasks.base import Predictor, Result, Traits
from saccade.tasks.trust import make_cases, trust

Asks = Callable[..., Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "tiny", "decoding.max_length=5")


@pytest.fixture
def asks(run: Path) -> Asks:
    def ask(*arguments: object) -> Any:
        return CliRunner().invoke(app, ["look", str(run), "--trust", *map(str, arguments)])

    return ask


def test_a_text_as_json(asks: Asks) -> None:
    found = asks("a b c d", "--json")
    assert found.exit_code == 0, found.output
    panel = json.loads(found.stdout)
    assert (panel["texts"], panel["words"]) == (1, 4)
    assert set(panel["tau"]["steps"]) == {"attention", "uniform", "random", "floor", "gradient", "heads"}
    assert panel["text"]["words"] == ["a", "b", "c", "d"]
    assert len(panel["text"]["erasure"]) == panel["steps"]
    assert panel["verdict"]["trust"] in ("much", "some", "none")
    assert asks("a b c d", "--json").stdout == found.stdout


def test_a_file_with_its_targets(asks: Asks, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a b c\n\nd e f g\nh\n", "utf-8")
    (tmp_path / "out").write_text("b\n\nh h\na\n", "utf-8")
    found = asks("--input", tmp_path / "in", "--target", tmp_path / "out", "--json")
    panel = json.loads(found.stdout)
    assert (panel["texts"], panel["words"], panel["steps"]) == (2, 7, 5)  # of one word there is no order
    shown = asks("--input", tmp_path / "in", "--draw", tmp_path / "panel.svg")
    assert shown.exit_code == 0, shown.output
    assert "Kendall's tau" in shown.stdout
    assert (tmp_path / "panel.svg").exists()
    (tmp_path / "out").write_text("b\n", "utf-8")
    short = asks("--input", tmp_path / "in", "--target", tmp_path / "out")
    assert "targets: there must be one for each text, but the targets end after 1" in str(short.exception)


def test_a_layer_and_a_head(asks: Asks) -> None:
    text, steps = ("a b c d", "--target", "b a", "--json"), 3
    heads = [json.loads(asks(*text, "--layer", layer, "--head", head).stdout) for layer in (0, 1) for head in (0, 1)]
    mean = json.loads(asks(*text, "--layer", 0).stdout)
    for step in range(steps):
        first, second, found = (one["text"]["attention"][step] for one in (heads[0], heads[1], mean))
        assert found == pytest.approx([(a + b) / 2 for a, b in zip(first, second, strict=True)], abs=1e-6)
    for number, one in enumerate(heads):
        expected = one["tau"]["steps"]["heads"][number // 2][number % 2]
        assert one["tau"]["steps"]["attention"]["erasure"] == pytest.approx(expected, abs=1e-6)
    assert "layer: 2 given; allowed: 0 to 1" in str(asks(*text, "--layer", 2).exception)


def test_what_is_shown_is_what_is_tested(run: Path) -> None:
    """The head that aligns best, with its shift: a word is aligned by the step that reads it."""
    import dataclasses

    predictor = load_run(run)
    aligning = dataclasses.replace(predictor, aligning=Head(layer=0, head=1, shift=1))
    (seen,) = aligning.look(["a b c d"], targets=["b a"])
    panel = trust(aligning, ["a b c d"], targets=["b a"])
    assert panel.alone is not None
    expected = seen.aligning.of(seen.map("cross").weight_LHTS)[:, :4]
    assert panel.alone.weight_TW.flatten().tolist() == pytest.approx(expected.flatten().tolist(), abs=1e-6)


def test_outputs_are_those_that_the_run_writes(run: Path) -> None:
    predictor = load_run(run)
    texts = ["a b c", "d e", "", "h g f e d"]
    found = list(make_cases(predictor.trust_test(), texts, None))
    written = predictor.predict([text for text in texts if text])
    for case, text, one in zip(found, filter(None, texts), written, strict=True):
        ids = predictor.source.encode(text)
        answer = [predictor.target.encode(piece)[0] for piece in one.pieces] + [END] * one.ended
        assert case == TrustCase(text.split(), [*ids, END], [*range(len(ids)), NO_WORD], answer)


def test_a_classifier_explains_its_label_or_the_one_that_is_given() -> None:
    judge = hand_made.classifier(hand_made.bag(sharpness=20.0))
    texts: list[str | Text] = ["the cat sat on a happy mat", Text("a happy cat on the mat", dialogue="1")]
    panel = trust(judge, texts)
    assert panel.verdict.trust == "much"
    assert not panel.has_steps
    doubted = trust(judge, texts, targets=["no", "no"])
    assert doubted.curves["attention"][0] < -4 < panel.curves["attention"][0]
    assert doubted.cost("attention") < 0 < panel.cost("attention")  # "happy" speaks against "no"
    with pytest.raises(UserError, match="targets: the label 'perhaps' given; allowed: no, yes"):
        trust(judge, texts, targets=["perhaps", "no"])
    with pytest.raises(UserError, match="pools by mean, which learns no weights"):
        trust(hand_made.classifier(hand_made.bag(sharpness=1.0, pooling=MeanPooling(3))), texts)


def test_texts_without_a_word_are_passed_over() -> None:
    judge = hand_made.classifier(hand_made.bag(sharpness=20.0))
    texts = ["", "the happy mat", "  ", "\u2581", "a happy cat"]  # SentencePiece's sign for a space is one
    assert trust(judge, texts).num_texts == 2
    with pytest.raises(UserError, match="no text has two words or more"):
        trust(judge, ["\u2581", ""])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--trust: give either texts, or a file"),
        (("a b", "--input", "in"), "--trust: give either texts, or a file"),
        (("a b", "--kind", "cross"), "--kind: given with --trust, which has no use for it"),
        (("a b", "--pieces"), "--pieces: given with --trust, which has no use for it"),
        (("a b", "--erase", "hide"), "erase: 'hide' given; allowed: delete, unknown"),
        (("a b", "--draw", "panel.gif"), "panel.gif: a panel ends in"),
        (("a",), "no text has two words or more"),
    ],
)
def test_mistakes(asks: Asks, arguments: tuple[str, ...], said: str) -> None:
    found = asks(*arguments)
    assert isinstance(found.exception, UserError)
    assert said in str(found.exception)


def test_its_options_are_its_own(run: Path) -> None:
    found = CliRunner().invoke(app, ["look", str(run), "a b", "--erase", "delete"])
    assert "--erase: given without --trust" in str(found.exception)


class NoAttention(Predictor):
    """A model of a task that has no test of trust."""

    traits = Traits("none")

    def stream(self, inputs: Iterable[Any], /) -> Iterator[Result]:
        raise NotImplementedError


def test_a_model_without_attention_or_words_is_refused(tmp_path: Path) -> None:
    model = {"kind": "rnn", "attention": "none", "width": 8, "embedding_width": 8}
    plain = load_run(make_run(tmp_path / "plain", model=model))
    with pytest.raises(UserError, match="this model has no attention"):
        trust(plain, ["a b"])
    with pytest.raises(UserError, match="allowed: text to text, classifiers"):
        trust(NoAttention(), ["a b"])
