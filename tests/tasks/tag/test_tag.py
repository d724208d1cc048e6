"""The tagger as it is used: sentences in every form, files in and out, scores as conlleval prints them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from saccade.data.tags import tagged
from saccade.data.tags.columns import TaggedSentence
from saccade.data.tags.lexicon import Lexicon
from saccade.data.tags.spans import Span, allowed_pairs, detect_scheme
from saccade.errors import UserError
from saccade.layers.crf import LinearChain
from saccade.models.tagger import FeatureSizes, OtherPlaces, TagNetwork, WordFeatures
from saccade.models.text_encoder import RecurrentTextEncoder
from saccade.tasks.tag import predictor
from saccade.tasks.tag.loss import collate, tag_loss
from saccade.tasks.tag.predictor import Input, Tagger, TagResult, evaluation

TAGS = ["O", "B-LOC", "I-LOC", "E-LOC", "S-LOC"]
TEXT = [TaggedSentence(("Anna", "lives", "in", "New", "York")), TaggedSentence(("New", "York", "is", "large"))]


def tagger(*, is_plain: bool = False) -> Tagger:
    torch.manual_seed(3)
    lexicon = Lexicon.learn(
        TEXT, ["N", "V", "O"] if is_plain else TAGS, spelling=None if is_plain else "bioes", min_count=1
    )
    allowed = None if is_plain else allowed_pairs(TAGS, "bioes")
    features = WordFeatures(
        FeatureSizes(5, 3, 2),
        num_words=lexicon.words.size,
        num_characters=lexicon.characters.size,
        num_shapes=lexicon.shapes.size,
    )
    network = TagNetwork(
        features=features,
        encoder=RecurrentTextEncoder(10, 6, cell="lstm"),
        chain=LinearChain(len(lexicon.tags), allowed=allowed),
        places=OtherPlaces(6, num_heads=2),
        second=RecurrentTextEncoder(12, 6, cell="lstm"),
    )
    torch.nn.init.normal_(network.output.weight, std=9.0)
    return Tagger(network.eval(), lexicon)


def test_texts_words_and_sentences_are_tagged_alike() -> None:
    made = tagger()
    forms: list[Input] = ["Anna lives in  New York", ["Anna", "lives", "in", "New", "York"], TEXT[0]]
    one, two, three = made.predict(forms)
    assert one.words == TEXT[0].words
    assert one.tags == two.tags == three.tags
    assert len(set(one.tags)) > 1
    assert one.log_probability == pytest.approx(three.log_probability, abs=1e-4)
    assert all(part[0] in "OBI" for part in one.tags)  # shown as BIO


def test_blank_texts_stay_blank_and_empty_words_are_refused() -> None:
    found = tagger().predict(["", "New York", "  "])
    assert [one.words for one in found] == [(), ("New", "York"), ()]
    assert tagger().predict([""]) == [TagResult((), (), 0.0)]
    assert tagger().predict([]) == []
    with pytest.raises(UserError, match="sentence 2: a word is empty"):
        tagger().predict([["a"], ["b", " "]])


def test_streaming_in_small_windows_is_predicting(monkeypatch: pytest.MonkeyPatch) -> None:
    made, texts = tagger(), [f"{'large ' * (n % 7)}New York {n}" for n in range(23)]
    wanted = made.predict(texts)
    monkeypatch.setattr(predictor, "TOKENS_PER_BATCH", 16)
    for one, other in zip(made.stream(texts, window=5), wanted, strict=True):
        assert one[:2] == other[:2]
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)


def test_a_window_is_answered_before_the_next_is_read() -> None:
    read = list[str]()
    texts = (read.append(text) or text for text in ["a", "b", "c"])  # type: ignore[func-returns-value]
    found = tagger().stream(texts, window=1)
    assert next(found).words == ("a",)
    assert read == ["a", "b"]  # b ends the document of a


def test_documents_are_read_together_and_long_ones_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    made = tagger()
    alone = [one.log_probability for one in made.predict([TEXT[0], TEXT[1]._replace(document=1)])]
    together = [one.log_probability for one in made.predict(TEXT)]
    assert together != pytest.approx(alone, abs=1e-4)
    monkeypatch.setattr(tagged, "LONGEST_DOCUMENT", 1)
    assert [one.log_probability for one in made.predict(TEXT)] == pytest.approx(alone, abs=1e-4)


def test_probabilities_and_their_picture(tmp_path: Path) -> None:
    (found,) = tagger().predict(["Anna lives in New York"], probabilities=True)
    assert found.probability_TV is not None
    assert found.probability_TV.shape == (5, 5)
    torch.testing.assert_close(found.probability_TV.sum(1), torch.ones(5))
    found.draw(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert list(found.plain()["probabilities"][0]) == TAGS
    with pytest.raises(UserError, match="probabilities: not asked for"):
        tagger().predict(["a"])[0].draw(tmp_path / "b.png")


def test_results_as_lines_and_for_programs() -> None:
    found = TagResult(("in", "New", "York"), ("O", "B-LOC", "I-LOC"), -0.5)
    assert found.line() == "in\tO\nNew\tB-LOC\nYork\tI-LOC\n"
    assert found.spans == [Span("LOC", 1, 2)]
    plain = json.loads(json.dumps(found.plain()))
    assert plain["spans"] == [{"kind": "LOC", "first": 1, "last": 2, "text": "New York"}]
    assert plain["tags"] == ["O", "B-LOC", "I-LOC"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("New\tO\nYork\tB-LOC\n\na\tO\n", [(("New", "York"), 0), (("a",), 1)]),
        ("\n-DOCSTART- O\n\na O\n\nb O\n\n-DOCSTART- O\n\nc O\n", [(("a",), 0), (("b",), 0), (("c",), 1)]),
        ("New NNP S-LOC\n", [(("New",), 0)]),
        ("\nNew York\nis large\n\nit is\n", [(("New", "York"), 1), (("is", "large"), 1), (("it", "is"), 2)]),
        ("\n \n", []),
    ],
)
def test_files_of_columns_or_of_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, wanted: list[tuple[tuple[str, ...], int]]
) -> None:
    (tmp_path / "a.txt").write_text(text, "utf-8")
    made = tagger()
    assert [(one.words, one.document) for one in made.read(tmp_path / "a.txt")] == wanted
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
    assert [(one.words, one.document) for one in made.read(None)] == wanted


def test_evaluation_as_conlleval_prints_it() -> None:
    gold = [["B-LOC", "I-LOC", "O", "B-PER"], ["O"]]
    found = evaluation(gold, [["B-LOC", "I-LOC", "O", "O"], ["B-LOC"]], has_spans=True)
    assert found.lines == [
        "processed 5 tokens with 2 phrases; found: 2 phrases; correct: 1.",
        "accuracy:  60.00%; precision:  50.00%; recall:  50.00%; FB1:  50.00",
        "              LOC: precision:  50.00%; recall: 100.00%; FB1:  66.67  2",
        "              PER: precision:   0.00%; recall:   0.00%; FB1:   0.00  0",
    ]
    assert found.scores["f1"] == 50.0
    other = [["B-LOC", "E-LOC", "O", "S-PER"], ["O"]]  # the same, spelled otherwise
    assert evaluation(other, [["B-LOC", "I-LOC", "O", "O"], ["B-LOC"]], has_spans=True) == found
    assert found.scores["f1_LOC"] == pytest.approx(200 / 3)
    plain = evaluation([["N", "V"]], [["N", "N"]], has_spans=False)
    assert plain[:2] == ({"accuracy": 50.0, "num_sentences": 1, "num_tokens": 2}, ["2 tokens; accuracy:  50.00%"])


def test_evaluating_a_file(tmp_path: Path) -> None:
    made = tagger()
    found = made.predict(TEXT)
    (tmp_path / "a.txt").write_text("-DOCSTART- O\n\n" + "\n".join(one.line() for one in found), "utf-8")
    scores = made.evaluate([tmp_path / "a.txt"]).scores
    assert scores["accuracy"] == 100.0
    assert (scores["num_sentences"], scores["num_tokens"]) == (2, 9)
    with pytest.raises(UserError, match="no file at"):
        made.evaluate([tmp_path / "b.txt"])


def test_tags_without_spans_are_shown_as_they_are() -> None:
    made = tagger(is_plain=True)
    (found,) = made.predict(["Anna lives"])
    assert set(found.tags) <= {"N", "V", "O"}


def test_the_loss_is_minus_the_log_probability_of_the_tags() -> None:
    made = tagger()
    document = [one._replace(tags=("O",) * len(one.words)) for one in TEXT]
    batch = collate(made.lexicon, [document])
    loss, shown = tag_loss(made.network, batch)
    assert batch.num_items == 9
    assert float(shown) == float(loss.detach())
    tokens, chain = batch.tokens, made.network.chain
    wanted = chain.log_probability(made.network(tokens), torch.zeros(2, 5, dtype=torch.long), tokens.length_B)
    torch.testing.assert_close(loss, -wanted.sum())
    assert float(loss.detach()) > 0


def test_a_misspelled_tag_among_spans_is_no_part_of_speech() -> None:
    assert detect_scheme([("B-X", "I-X", "O"), ("X-BAR", "O")]) == "bio"
    assert detect_scheme([("DT", "NN"), ("O", "NN")]) is None
