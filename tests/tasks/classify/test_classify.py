"""Texts to labels: the loss by hand, the same predictions however they are asked for, and key terms."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from saccade.cli import app
from saccade.cli import predict as predict_command
from saccade.data.labels.labelled import LabelColumns, Spelling, Text
from saccade.data.labels.windows import encode_texts
from saccade.data.text.tokenizer import Tokenizer, train_tokenizer
from saccade.errors import UserError
from saccade.layers.dialogue import RecurrentContext
from saccade.layers.pooling import AttentionPooling, LastPooling, Pooling, StructuredPooling
from saccade.models.classifier import ClassifierDropouts, TextClassifier
from saccade.models.text_encoder import RecurrentTextEncoder
from saccade.tasks.classify.loss import Objective, class_weights, classify_loss, negative_log_likelihood
from saccade.tasks.classify.predictor import Classifier, measure
from saccade.tasks.classify.result import KeyTerm, rank_terms
from saccade.tasks.classify.words import number_words
from saccade.tasks.texts import LongTextWarning

SENTENCES = ["The cat sat , on the mat .", "A dog barked at the cat !", "Mice run .", "Nothing moved at all ."]
LABELS = ["no", "perhaps", "yes"]


def predictor(
    kind: str = "words", pooling: Callable[[int], Pooling] = AttentionPooling, *, context: int = 0
) -> Classifier:
    torch.manual_seed(1)
    spelling = Spelling(lowercase=True)
    texts = [spelling(text) for text in SENTENCES] * 20
    tokenizer: Tokenizer = train_tokenizer(kind, texts, 290)
    encoder, pools = RecurrentTextEncoder(7, 10), pooling(10)
    network = TextClassifier(
        vocabulary=tokenizer.size,
        embedding_width=7,
        num_labels=3,
        encoder=encoder,
        pooling=pools,
        context=RecurrentContext(pools.width, 5) if context else None,
    )
    torch.nn.init.normal_(network.embedding.weight)
    return Classifier(network.eval(), tokenizer, LABELS, spelling, LabelColumns(), context, texts_per_batch=3)


def test_the_loss_by_hand() -> None:
    model = predictor()
    with torch.no_grad():
        model.network.output.weight.zero_()
        model.network.output.bias.copy_(torch.tensor([0.5, 0.25, 0.25]).log())
    texts = encode_texts([Text("cat", "no"), Text("dog", "yes")], model.encode, LABELS)
    batch = texts.batch(texts.runs())
    loss, shown = classify_loss(model.network, batch)
    assert loss.item() == pytest.approx(math.log(2) + math.log(4))
    weighted, same = classify_loss(model.network, batch, Objective(torch.tensor([3.0, 1.0, 0.5])))
    assert weighted.item() == pytest.approx(3 * math.log(2) + 0.5 * math.log(4))
    assert shown.item() == same.item() == pytest.approx(loss.item())
    smoothed, _ = classify_loss(model.network, batch, Objective(smoothing=0.3))
    mean = (math.log(2) + 2 * math.log(4)) / 3
    assert smoothed.item() == pytest.approx(0.7 * loss.item() + 0.3 * 2 * mean)


def test_the_penalty_is_added() -> None:
    model = predictor(pooling=lambda width: StructuredPooling(width, num_hops=3, hidden_width=5))
    texts = encode_texts([Text("cat", "no")], model.encode, LABELS)
    batch = texts.batch(texts.runs())
    plain, with_penalty = (
        classify_loss(model.network, batch, Objective(penalty=share))[0].item() for share in (0.0, 0.5)
    )
    assert with_penalty - plain == pytest.approx(3.0)  # one word: six overlaps of 1, half of each


def test_two_passes_that_disagree_are_minded() -> None:
    model = predictor()
    texts = encode_texts([Text("cat", "no")], model.encode, LABELS)
    batch = texts.batch(texts.runs())
    plain, alike = (classify_loss(model.network, batch, Objective(consistency=share))[0].item() for share in (0.0, 3.0))
    assert alike == pytest.approx(plain)  # without dropout both passes are the same
    model.network.train()
    model.network.dropouts = ClassifierDropouts(vectors=0.5)
    torch.manual_seed(1)
    loss, shown = classify_loss(model.network, batch, Objective(consistency=3.0))
    torch.manual_seed(1)
    first, second = (model.network(batch).logits_BV[0].log_softmax(-1) for _ in range(2))
    apart = ((first.exp() - second.exp()) * (first - second)).sum() / 2
    assert shown.item() == pytest.approx(-(first[0] + second[0]).item() / 2)
    assert loss.item() == pytest.approx(shown.item() + 1.5 * apart.item())
    assert apart.item() > 0


def test_class_weights() -> None:
    texts = [Text("", label) for label in ("no", "no", "no", "yes")]
    assert class_weights(None, texts, ["no", "yes"]) is None
    balanced = class_weights("balanced", texts, ["no", "yes"])
    assert balanced is not None
    assert balanced.tolist() == pytest.approx([4 / 6, 4 / 2])
    given = class_weights({"yes": 5.0}, texts, ["no", "yes"])
    assert given is not None
    assert given.tolist() == [1.0, 5.0]
    with pytest.raises(UserError, match=r"training.class_weights: 'maybe' given; allowed: no, yes"):
        class_weights({"maybe": 1.0}, texts, ["no", "yes"])


def test_measures() -> None:
    model = predictor()
    texts = [Text(text, one.label) for text, one in zip(SENTENCES, model.predict(SENTENCES), strict=True)]
    encoded = encode_texts([*texts, Text("cat", "never seen")], model.encode, LABELS)
    found = measure(model.network, encoded, LABELS, texts_per_batch=2)
    assert found["valid_accuracy"] == pytest.approx(80.0)
    chosen = [one.probability for one in model.predict(SENTENCES)]
    assert found["valid_loss"] == pytest.approx(-sum(map(math.log, chosen)) / 4, rel=1e-5)


@pytest.mark.parametrize("kind", ["words", "characters", "unigram", "bpe"])
def test_the_weights_of_pieces_are_summed_into_words(kind: str) -> None:
    model = predictor(kind)
    for text in SENTENCES:
        (one,) = model.predict([text], attention=True)
        assert one.words == text.split()
        assert one.attention is not None
        assert one.attention.shape == (1, len(text.split()))
        assert sum(one.weights) == pytest.approx(1.0, rel=1e-5)
        words = number_words(text.split(), model.spelling, model.tokenizer)
        pieces = [model.encode(word) for word in text.split()]
        assert len(words) == len(model.encode(text))
        if kind != "characters":
            assert [index for piece in pieces for index in piece] == model.encode(text)


def test_probabilities() -> None:
    (one,) = predictor().predict(["The cat"])
    assert list(one.probabilities) == LABELS
    assert sum(one.probabilities.values()) == pytest.approx(1.0)
    assert one.probability == one.probabilities[one.label] == max(one.probabilities.values())
    assert one.words is None
    assert one.line() == f"{one.label}\t{one.probability:.3f}"
    assert set(one.plain()) == {"label", "probability", "probabilities"}


def test_a_blank_text_and_one_that_is_cut() -> None:
    with pytest.warns(LongTextWarning, match=r"1 of 2 texts have more than 2 tokens; the rest of them is not read"):
        blank, cut = replace(predictor(), max_length=2).predict(["", "The cat sat"], attention=True, key_terms=3)
    assert blank.words == []
    assert blank.key_terms == []
    assert "cut" not in blank.plain()
    assert cut.plain()["cut"] == "text"
    assert cut.words == ["The", "cat"]
    assert sum(cut.weights) == pytest.approx(1.0)


@pytest.mark.parametrize("context", [0, 2])
@pytest.mark.parametrize("window", [1, 2, 3, 100])
def test_windows_and_batches_change_nothing(context: int, window: int) -> None:
    model = predictor(context=context)
    texts = [
        Text(SENTENCES[row % 4], "", dialogue, speaker)
        for row, (dialogue, speaker) in enumerate(zip("11111222", "ABABBBAB", strict=True))
    ]
    whole = replace(model, texts_per_batch=100).predict(texts)
    parts = list(model.stream(iter(texts), window=window))
    assert [one.probability for one in parts] == pytest.approx([one.probability for one in whole], rel=1e-5)
    alone = model.predict([texts[2].text])[0].probability
    assert (alone == pytest.approx(whole[2].probability, rel=1e-5)) is (context == 0)


def test_key_terms() -> None:
    found = rank_terms(["The", "cat", ",", "the", "mat"], [0.25, 0.25, 0.25, 0.125, 0.125])
    assert found == [KeyTerm("The", 0.375), KeyTerm("cat", 0.25), KeyTerm("mat", 0.125)]
    model = predictor()
    terms = model.key_terms(SENTENCES[0], 2)
    (one,) = model.predict([SENTENCES[0]], attention=True)
    assert terms == rank_terms(one.words or [], one.weights)[:2]
    (shown,) = model.predict([SENTENCES[0]], key_terms=2)
    assert shown.line().endswith(f"\t{terms[0].word}, {terms[1].word}")
    assert shown.plain()["key_terms"][0]["word"] == terms[0].word


def test_what_has_no_weights_says_so() -> None:
    model = predictor(pooling=LastPooling)
    with pytest.raises(UserError, match="attention: this model pools by its last state"):
        model.key_terms("The cat")
    with pytest.raises(UserError, match="key_terms: -1 given; it must be 0 or more"):
        model.predict(["The cat"], key_terms=-1)
    with pytest.raises(UserError, match="a picture shows the weights"):
        predictor().predict(["The cat"])[0].draw(Path("a.png"))


def test_a_picture(tmp_path: Path) -> None:
    pooling = lambda width: StructuredPooling(width, num_hops=2, hidden_width=5)  # noqa: E731
    (one,) = predictor(pooling=pooling).predict(["The cat sat"], attention=True)
    one.draw(tmp_path / "weights.svg")
    assert (tmp_path / "weights.svg").read_text().startswith("<?xml")
    with pytest.raises(UserError, match="a picture ends in"):
        one.draw(tmp_path / "weights.txt")


def test_files_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = replace(predictor(), columns=LabelColumns(1, 0))
    table, plain = tmp_path / "a.tsv", tmp_path / "a.txt"
    table.write_text("The cat\nMice\tno\n")
    plain.write_text("The cat\n\nMice run\n")
    assert list(model.read(table)) == [Text("The cat"), Text("Mice", "no")]
    table.write_text("The cat\tyes\nMice\tno\n")
    assert list(model.read_targets(table)) == ["yes", "no"]
    assert [text.text for text in model.read(plain)] == ["The cat", "", "Mice run"]
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"A\tHello.\nB\tHi.\n")))
    assert list(replace(model, context=2).read(None)) == [Text("Hello.", "", "0", "A"), Text("Hi.", "", "0", "B")]


def test_a_file_to_learn_from_is_read_without_its_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("no The cat\n\nyes Mice run\n")
    with pytest.warns(UserWarning, match=r"a\.txt: each line begins with a label, as in training; it is not read"):
        assert list(predictor().read(path)) == [Text("The cat"), Text("Mice run")]
    monkeypatch.setattr(predict_command, "load_run", lambda *_, **__: predictor())
    done = CliRunner().invoke(app, ["predict", "run", "--input", str(path)])
    assert done.stderr == f"saccade: {path}: each line begins with a label, as in training; it is not read as text\n"
    assert len(done.stdout.splitlines()) == 2
    path.write_text("no The cat\nMice run\n")
    assert [text.text for text in predictor().read(path)] == ["no The cat", "Mice run"]


def test_several_labels_at_once(tmp_path: Path) -> None:
    model = replace(predictor(), columns=LabelColumns(separator=","))
    one, *_ = model.predict(SENTENCES, threshold=0.0)
    assert sorted(one.labels or []) == LABELS
    encoded = encode_texts([Text(SENTENCES[0])], model.encode, LABELS)
    logits = model.network(encoded.batch(encoded.runs())).logits_BV[0]
    assert one.probabilities == pytest.approx(dict(zip(LABELS, logits.sigmoid().tolist(), strict=True)))
    assert one.labels == sorted(LABELS, key=lambda label: -one.probabilities[label])
    threshold = one.probabilities[one.labels[1]]
    (two,) = model.predict(SENTENCES[:1], threshold=threshold)
    assert two.labels == one.labels[:2]
    assert two.label == ",".join(one.labels[:2])
    assert two.line() == f"{two.label}\t" + ",".join(f"{one.probabilities[label]:.3f}" for label in two.labels)
    assert two.plain()["labels"] == two.labels
    (none,) = model.predict(SENTENCES[:1], threshold=1.0)
    assert (none.labels, none.line()) == ([], "\t")
    (tmp_path / "a.txt").write_text(f"{two.label} {SENTENCES[0]}\n")
    scores = model.evaluate([tmp_path / "a.txt"], threshold=threshold).scores
    assert (scores["micro_f1"], scores["accuracy"]) == (100.0, 100.0)
    with pytest.raises(UserError, match="trust: this model gives several labels at once"):
        model.trust_test()
    with pytest.raises(UserError, match="threshold: given, but this model gives one label to each text"):
        predictor().predict(SENTENCES, threshold=0.5)
    with pytest.raises(UserError, match="threshold: 2 given; it must be 0 to 1"):
        model.predict(SENTENCES, threshold=2)


def test_the_loss_of_several_labels_by_hand() -> None:
    logits_BV, label_BV = torch.tensor([[0.0, 2.0], [-1.0, 0.0]]), torch.tensor([[1, 1], [0, 1]])
    expected = 2 * math.log(2) + math.log(1 + math.exp(-2)) + math.log(1 + math.exp(-1))
    assert float(negative_log_likelihood(logits_BV, label_BV)) == pytest.approx(expected)
    weighted = float(negative_log_likelihood(logits_BV, label_BV, torch.tensor([3.0, 0.0])))
    assert weighted == pytest.approx(3 * (math.log(2) + math.log(1 + math.exp(-1))))


def test_evaluation(tmp_path: Path) -> None:
    model, path = predictor(), tmp_path / "a.txt"
    found = model.predict(SENTENCES)
    lines = [f"{one.label} {text}" for one, text in zip(found, SENTENCES, strict=True)]
    path.write_text("\n".join([*lines, "never The cat"]))
    evaluation = model.evaluate([path])
    assert evaluation.scores["accuracy"] == 80.0
    assert evaluation.scores["num_texts"] == 5
    assert evaluation.lines[0].startswith("5 texts: accuracy 80.00, macro F1 ")
    assert evaluation.lines[1] == "Labels that the model never saw, which count as wrong: never"
    assert any("never" in line for line in evaluation.lines[2:])
    assert evaluation.draw is not None
    evaluation.draw(tmp_path / "confusion.svg")
    assert (tmp_path / "confusion.svg").exists()


def test_in_the_terminal() -> None:
    (one,) = predictor().predict(["The cat"], attention=True)
    for is_terminal, shown in ((True, "The cat"), (False, f"The:{one.weights[0]:.2f} cat:{one.weights[1]:.2f}")):
        console = Console(record=True, force_terminal=is_terminal, file=io.StringIO())
        one.show(console)
        assert console.export_text().strip() == shown


def test_an_ensemble_is_the_mean_of_its_runs() -> None:
    one, other = predictor(), predictor(pooling=lambda width: StructuredPooling(width, num_hops=2, hidden_width=4))
    with torch.no_grad():
        other.network.output.weight.mul_(-3)
    both = Classifier.ensemble([("one", one), ("other", other)])
    told = [model.predict(SENTENCES, attention=True) for model in (both, one, other)]
    for mean, first, second in zip(*told, strict=True):
        for label in LABELS:
            expected = (first.probabilities[label] + second.probabilities[label]) / 2
            assert mean.probabilities[label] == pytest.approx(expected, rel=1e-5)
        np.testing.assert_allclose(mean.weights, np.mean([first.weights, second.weights], 0), rtol=1e-5)
    for call in (lambda: both.look(SENTENCES), both.portable, both.trust_test):
        with pytest.raises(UserError, match="given with an ensemble; allowed: one run"):
            call()


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"labels": ["no", "yes", "perhaps"]}, "labels"),
        ({"spelling": Spelling()}, r"data.lowercase, data.split_punctuation"),
        ({"max_length": 9}, r"data.context, data.max_length, data.max_sentences"),
    ],
)
def test_an_ensemble_reads_alike(changed: dict[str, Any], what: str) -> None:
    with pytest.raises(UserError, match=f"other: its {what} differ from those of one"):
        Classifier.ensemble([("one", predictor()), ("other", replace(predictor(), **changed))])
