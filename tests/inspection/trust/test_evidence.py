"""Attention put to the test: models whose words' worth is known, gradients against differences, erasing by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import hand_made
from saccade.data.text.tokenizer import END, UNKNOWN
from saccade.errors import UserError
from saccade.inspection.insight import Head
from saccade.inspection.trust import evidence as faithfulness
from saccade.inspection.trust.evidence import (
    NO_WORD,
    SHARES,
    AnswerChange,
    Evidence,
    TrustCase,
    compute_gradients,
    examine,
)
from saccade.inspection.trust.subjects import ClassifierSubject, Subject, WriterSubject
from saccade.inspection.trust.verdict import LEAST_MOVE, MUCH, MUCH_REACH, SOME, SOME_REACH, TrustFigures, compare_words
from saccade.layers.pooling import AttentionPooling, LastPooling, StructuredPooling
from saccade.models.classifier import TextClassifier
from saccade.models.seq2seq import RecurrentSizes, Seq2Seq
from saccade.models.seq2seq_attention import AttentionOptions
from saccade.models.text_encoder import RecurrentTextEncoder, TransformerTextEncoder
from saccade.models.transformer import BlockSizes, Transformer

SIZES = BlockSizes(width=6, num_heads=2, hidden_width=7)
RECURRENT = RecurrentSizes(width=6, embedding_width=5)
CASES = [
    TrustCase(["a", "bb", "c"], [4, 5, 6, 7, END], [0, 1, 1, 2, NO_WORD], [8, 9, 4, 5, END]),
    TrustCase(["d", "e"], [8, 9, END], [0, 1, NO_WORD], [6, END]),
    TrustCase(["f", "g", "h", "i"], [9, 4, 5, 6, END], [0, 1, 2, 3, NO_WORD], [7, 7, END]),
]


def transformer(**options: bool) -> WriterSubject:
    return WriterSubject(
        Transformer(
            source=11, target_vocabulary=11, sizes=SIZES, num_encoder_layers=1, num_decoder_layers=2, **options
        ).eval()
    )


def recurrent(attention: str, **look: str) -> WriterSubject:
    sizes, looks = RECURRENT, AttentionOptions(**look)  # type: ignore[arg-type]
    model = Seq2Seq(source=11, target_vocabulary=13, sizes=sizes, attention=attention, attention_options=looks)
    return WriterSubject(model.eval())


def judge(pooling: AttentionPooling | StructuredPooling | None = None, *, of_blocks: bool = False) -> ClassifierSubject:
    encoder = TransformerTextEncoder(5, SIZES, num_layers=1) if of_blocks else RecurrentTextEncoder(5, 6)
    network = TextClassifier(
        vocabulary=11, embedding_width=5, num_labels=3, encoder=encoder, pooling=pooling or AttentionPooling(6)
    )
    nn.init.normal_(network.embedding.weight)
    return ClassifierSubject(network.eval())


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "transformer": transformer,
    "one table for both sides": lambda: transformer(share_embeddings=True),
    "bahdanau": lambda: recurrent("bahdanau"),
    "luong": lambda: recurrent("luong", score="general"),
    "local": lambda: recurrent("luong", score="dot", scope="local_p"),
    "classifier": judge,
    "structured": lambda: judge(StructuredPooling(6, num_hops=2, hidden_width=3)),
    "classifier of blocks": lambda: judge(of_blocks=True),
}


def cases_of(subject: Subject) -> list[TrustCase]:
    """The same texts; a classifier reads no </s> and answers with a label."""
    if isinstance(subject, WriterSubject):
        return CASES
    return [TrustCase(one.words, one.source[:-1], one.word_of_piece[:-1], [label]) for label, one in enumerate(CASES)]


@torch.no_grad()
def told(subject: Subject, source: list[int], answer: list[int]) -> Tensor:
    """log p of each step, of one text alone."""
    given = torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([answer])
    return subject.logits(*given)[0].log_softmax(-1)[range(len(answer)), answer]


def module_of(subject: Subject) -> nn.Module:
    return subject._module  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_gradient_is_that_of_differences(name: str) -> None:
    """x · d log p / dx is the slope of log p as a word's vectors are stretched."""
    subject = SUBJECTS[name]()
    model, slight = module_of(subject).double(), 1e-6
    embedding = model.source if isinstance(subject, WriterSubject) else model.embedding
    for case, found_TW in zip(cases_of(subject), compute_gradients(subject, cases_of(subject)), strict=True):
        for word in range(len(case.words)):
            factor_S = 1.0 + slight * torch.tensor([number == word for number in case.word_of_piece]).double()
            ends = [_stretched(subject, embedding, case, factor_S if up else 2 - factor_S) for up in (True, False)]
            slope_T = (ends[0] - ends[1]) / (2 * slight)
            torch.testing.assert_close(found_TW[:, word].double(), slope_T, atol=2e-6, rtol=1e-4)


def _stretched(subject: Subject, embedding: object, case: TrustCase, factor_S: Tensor) -> Tensor:
    assert isinstance(embedding, nn.Module)
    calls: list[int] = []

    def stretch(_module: nn.Module, _args: object, found: Tensor) -> Tensor:
        calls.append(1)
        return found * factor_S[:, None] if len(calls) == 1 else found  # the source is read first

    handle = embedding.register_forward_hook(stretch)
    try:
        return told(subject, case.source, case.answer)
    finally:
        handle.remove()


@pytest.mark.parametrize("name", SUBJECTS)
def test_erasing_is_reading_without_the_word_and_batches_change_nothing(name: str) -> None:
    subject = SUBJECTS[name]()
    cases = cases_of(subject)
    together = list(examine(subject, cases))
    for case, found in zip(cases, together, strict=True):
        for word in range(len(case.words)):
            rest = [piece for piece, number in zip(case.source, case.word_of_piece, strict=True) if number != word]
            fall_T = told(subject, case.source, case.answer) - told(subject, rest, case.answer)
            torch.testing.assert_close(found.erasure_TW[:, word], fall_T, atol=1e-5, rtol=1e-4)
        (alone,) = examine(subject, [case])
        for part in ("weight_LHTW", "gradient_TW", "erasure_TW"):
            torch.testing.assert_close(getattr(alone, part), getattr(found, part), atol=1e-5, rtol=1e-4)
        assert alone.moved["uniform"] == pytest.approx(found.moved["uniform"], abs=1e-5)
        assert found.curves["attention"][0] == pytest.approx(
            float(told(subject, case.source, case.answer).mean()), abs=1e-5
        )


def test_weights_are_those_of_the_model_summed_into_words() -> None:
    subject, case = transformer(), CASES[0]
    (found,) = examine(subject, [case], Head(layer=0, head=1))
    given = torch.tensor([case.source]), torch.tensor([5]), torch.tensor([case.answer])
    weight_LHTS = subject.weights(*given)[0]
    assert found.weight_LHTW.shape == (2, 2, 5, 3)
    torch.testing.assert_close(found.weight_LHTW[..., 1], weight_LHTS[..., 1] + weight_LHTS[..., 2])
    torch.testing.assert_close(found.weight_TW, found.weight_LHTW[0, 1])
    assert found.share_W.tolist() == pytest.approx([0.2, 0.4, 0.2])
    with pytest.raises(UserError, match="head: 2 given; allowed: 0 to 1"):
        list(examine(subject, [case], Head(layer=0, head=2)))


def test_a_model_that_reads_one_word_is_read_by_its_attention() -> None:
    """Weights, gradient and erasing all name "happy", and the first word that goes takes the answer with it."""
    subject = ClassifierSubject(hand_made.bag(sharpness=20.0))
    texts = ["the cat sat on a happy mat", "happy the mat", "a cat on the happy", "on a mat sat the happy cat"]
    panel = TrustFigures.of(examine(subject, map(hand_made.case, texts)))
    assert panel.steps.attention == pytest.approx({"gradient": 1.0, "erasure": 1.0})
    assert panel.steps.gradient == pytest.approx(1.0)
    assert panel.reach == pytest.approx(1.0)
    start, end = math.log(1 / (1 + math.exp(-4))), math.log(0.5)
    falls = [[start if round(share * len(text.split())) == 0 else end for text in texts] for share in SHARES]
    expected = [sum(at) / len(texts) for at in falls]
    for order in ("attention", "gradient", "erasure"):
        assert panel.curves[order] == pytest.approx(expected, abs=1e-4), order
    assert all(end - 1e-4 <= at <= start + 1e-4 for at in panel.curves["random"])
    assert panel.cost("attention") > 1.3 * panel.cost("random") > 0.1
    assert panel.verdict.trust == "much"
    assert panel.verdict.sentence.startswith("Attention here tells much the same as erasing words: tau 1.00 against")


def test_uniform_attention_explains_nothing() -> None:
    texts = ["the cat sat on a happy mat", "happy the mat"]
    panel = TrustFigures.of(examine(ClassifierSubject(hand_made.bag(sharpness=0.0)), map(hand_made.case, texts)))
    assert panel.steps.attention == {"gradient": 0.0, "erasure": 0.0}
    assert panel.moved["uniform"] == pytest.approx(AnswerChange(0.0, 0.0, 1.0), abs=1e-6)
    assert panel.verdict.trust == "none"
    assert panel.verdict.sentence.startswith("Don't read this model's attention as an explanation: uniform weights")


def test_where_all_words_weigh_the_same_their_order_is_chances() -> None:
    """The first word is the one that matters; nothing says that it goes first."""
    cases = [hand_made.case("happy the cat sat on a mat")] * 60
    panel = TrustFigures.of(examine(ClassifierSubject(hand_made.bag(sharpness=0.0)), cases))
    assert panel.cost("attention") == pytest.approx(panel.cost("random"), rel=0.15)
    assert panel.cost("erasure") > 1.4 * panel.cost("attention")


def test_a_writer_with_uniform_attention_too() -> None:
    subject = transformer()
    for attention in subject.attention:
        for parameter in attention.query.parameters():  # type: ignore[union-attr]
            nn.init.zeros_(parameter)
    panel = TrustFigures.of(examine(subject, CASES))
    assert panel.moved["uniform"].distance == pytest.approx(0.0, abs=1e-6)
    assert panel.verdict.trust == "none"


def test_attention_that_looks_elsewhere_is_not_believed() -> None:
    """The query flees from the one word that matters."""
    texts = ["the cat sat on a happy mat", "happy the mat", "a cat on the happy"]
    panel = TrustFigures.of(examine(ClassifierSubject(hand_made.bag(sharpness=-3.0)), map(hand_made.case, texts)))
    assert panel.steps.attention["erasure"] == pytest.approx(-1.0)
    assert panel.reach < 0
    assert panel.moved["uniform"].distance > LEAST_MOVE
    assert "no better than chance or uniform weights do: tau -1.00" in panel.verdict.sentence


def test_how_far_the_answer_moves_by_hand() -> None:
    """Weighed alike, v is a seventh of "happy"."""
    case = hand_made.case("the cat sat on a happy mat")
    (found,) = examine(ClassifierSubject(hand_made.bag(sharpness=20.0)), [case])
    own, other = (1 / (1 + math.exp(-4 * share)) for share in (1.0, 1 / 7))
    expected = AnswerChange(own - other, math.log(other / own), 1.0)
    assert found.moved["uniform"] == pytest.approx(expected, abs=1e-5)
    assert found.moved["permuted"].distance > 0.9 * (own - 0.5) * 2 / 5  # most of the draws put it on another word


def test_unknown_words_stay_in_their_places() -> None:
    case = hand_made.case("the cat sat on a happy mat")
    network = hand_made.bag(sharpness=20.0)
    with torch.no_grad():
        network.embedding.weight[UNKNOWN, 0] = -1.0  # so that an unknown word says no, if it is looked at
    (deleted,) = examine(ClassifierSubject(network), [case])
    (unknown,) = examine(ClassifierSubject(network), [case], erase="unknown")
    assert deleted.erasure_TW[0, 5] == pytest.approx(math.log(1 / (1 + math.exp(-4))) - math.log(0.5), abs=1e-4)
    rest = math.log(1 / (1 + math.exp(4 * math.exp(-20) / (6 + math.exp(-20)))))
    assert unknown.erasure_TW[0, 5] == pytest.approx(math.log(1 / (1 + math.exp(-4))) - rest, abs=1e-4)
    assert unknown.curves["random"][-1] == pytest.approx(math.log(1 / (1 + math.exp(4))), abs=1e-4)
    with pytest.raises(UserError, match="erase: 'hide' given; allowed: delete, unknown"):
        list(examine(ClassifierSubject(network), [case], erase="hide"))


def test_one_seed_one_answer_and_large_sets_go_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faithfulness, "CHUNK", 2)
    monkeypatch.setattr(faithfulness, "MOST_TOKENS", 20)
    subject = transformer()
    first, again, other = (list(examine(subject, CASES * 3, seed=seed)) for seed in (1, 1, 2))
    assert [one.curves for one in first] == [one.curves for one in again]
    assert [one.moved for one in first] == [one.moved for one in again]
    assert [one.moved["random"] for one in first] != [one.moved["random"] for one in other]
    assert [one.words for one in first] == [case.words for case in CASES * 3]


def test_nothing_stays_on_the_model() -> None:
    for make in SUBJECTS.values():
        subject = make()
        model = module_of(subject)
        before = {name: id(module) for name, module in model.named_modules()}
        values = {name: value.clone() for name, value in model.state_dict().items()}
        list(examine(subject, cases_of(subject)))
        assert {name: id(module) for name, module in model.named_modules()} == before
        assert all(torch.equal(value, values[name]) for name, value in model.state_dict().items())
        assert all(parameter.grad is None for parameter in model.parameters())
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_kendall_is_scipys() -> None:
    from scipy.stats import kendalltau

    first, second = torch.randint(0, 6, (40, 7)).float(), torch.randint(0, 4, (40, 7)).float()
    found = (compare_words(first) * compare_words(second)).sum(-1)
    for row, tau in enumerate(found.tolist()):
        expected = float(kendalltau(first[row].numpy(), second[row].numpy()).statistic)
        assert tau == pytest.approx(0.0 if math.isnan(expected) else expected, abs=1e-6)
    assert float((compare_words(torch.ones(1, 5)) * compare_words(torch.rand(1, 5))).sum()) == 0.0
    by_rounding = torch.tensor([[1.0, 1e-7, 0.0, 2e-7]])
    assert float(
        (compare_words(by_rounding) * compare_words(torch.tensor([[5.0, 0.0, 0.0, 0.0]]))).sum()
    ) == pytest.approx(1.0)


def test_chance_is_measured_not_assumed() -> None:
    """Of one text with five words, a twentieth of all rankings has tau above some 0.6; of many texts, hardly any."""
    panels = [
        TrustFigures.of(
            examine(ClassifierSubject(hand_made.bag(sharpness=20.0)), [hand_made.case("the cat sat on happy")] * count)
        )
        for count in (1, 40)
    ]
    one, many = (panel.steps.floor["erasure"] for panel in panels)
    assert one > 0.5 > 0.15 > many > 0
    assert abs(panels[1].steps.random["erasure"]) < 0.05
    assert panels[0].alone is not None
    assert panels[1].alone is None


def evidence() -> Evidence:
    return next(
        examine(ClassifierSubject(hand_made.bag(sharpness=20.0)), [hand_made.case("the cat sat on a happy mat")])
    )


@pytest.mark.parametrize(
    ("tau", "reach", "moved", "trust"),
    [
        (MUCH, MUCH_REACH, LEAST_MOVE, "much"),
        (MUCH - 0.01, MUCH_REACH, LEAST_MOVE, "some"),
        (MUCH, MUCH_REACH - 0.01, LEAST_MOVE, "some"),
        (SOME, SOME_REACH, LEAST_MOVE, "some"),
        (SOME - 0.01, 1.0, 0.9, "none"),
        (1.0, SOME_REACH - 0.01, 0.9, "none"),
        (1.0, 1.0, LEAST_MOVE - 0.01, "none"),
    ],
)
def test_the_thresholds(tau: float, reach: float, moved: float, trust: str) -> None:
    panel = TrustFigures.of([evidence()])
    bars = {"gradient": 0.0, "erasure": 0.1}
    steps = replace(panel.steps, attention={"gradient": 0.0, "erasure": tau}, floor=bars, uniform=bars)
    curves = {"attention": [0.0, -reach], "gradient": [0.0, 0.0], "erasure": [0.0, -1.0], "random": [0.0, 0.0]}
    changed = replace(panel, steps=steps, curves=curves, moved={"uniform": AnswerChange(moved, 0.0, 1.0)})
    assert changed.verdict.trust == trust
    below = replace(changed, steps=replace(steps, floor={"gradient": 0.0, "erasure": tau}))
    assert below.verdict.trust == "none"


def test_weights_that_count_pieces_are_not_attention() -> None:
    """A long word is most of a text: uniform weights rank it first, and so tell as much as this attention."""
    panel = TrustFigures.of([evidence()])
    counting = replace(panel, steps=replace(panel.steps, uniform={"gradient": 1.0, "erasure": 1.0}))
    assert panel.verdict.trust == "much"
    assert counting.verdict.trust == "none"


def test_what_can_not_be_tested_says_so() -> None:
    with pytest.raises(UserError, match="no text has two words or more"):
        TrustFigures.of(examine(ClassifierSubject(hand_made.bag(sharpness=1.0)), [hand_made.case("happy")]))
    with pytest.raises(UserError, match="pools by last, which learns no weights; allowed: attention, structured"):
        ClassifierSubject(hand_made.bag(sharpness=1.0, pooling=LastPooling(3)))
    with pytest.raises(UserError, match="this model has no attention"):
        recurrent("none")
    with pytest.raises(UserError, match="this model doesn't read words"):
        WriterSubject(nn.Linear(2, 3))
