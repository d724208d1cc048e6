"""The test of trust on models of Hugging Face: its figures, computed once more by other means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import saccade
from saccade.errors import UserError
from saccade.huggingface.model import HuggingFaceModel
from saccade.inspection.trust.counterfactual import make_uniform_weights, replace_weights
from saccade.inspection.trust.evidence import NO_WORD, examine
from tiny_models import make

CASES = {
    "BertForMaskedLM": ("the old [MASK] sleeps in a [MASK]", "cat house"),
    "BertForSequenceClassification": ("the old cat sleeps", "bad"),
    "GPT2LMHeadModel": ("the old cat sleeps", "in the house"),
    "GPT2ForSequenceClassification": ("the old cat sleeps", "LABEL_1"),
    "T5ForConditionalGeneration": ("the old cat sleeps", "a house ."),
}


def prepare(kind: str) -> tuple[HuggingFaceModel, Any]:
    model, tokenizer = make(kind, **({"pad_token_id": 0} if kind.startswith("GPT2") else {}))
    given = HuggingFaceModel(model, tokenizer)
    (case,) = given.trust_test().cases([CASES[kind]])
    return given, case


def tensors(case: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.tensor([case.source]), torch.tensor([len(case.source)]), torch.tensor([case.answer])


def zero_queries(model: Any, kind: str) -> None:
    """Make all scores of the tested attentions equal."""
    for name, module in model.named_modules():
        if kind.startswith("T5") and name.endswith("EncDecAttention"):
            module.q.weight.data.zero_()
        elif kind.startswith("Bert") and name.endswith("self.query"):
            module.weight.data.zero_()
            module.bias.data.zero_()
        elif kind.startswith("GPT2") and name.endswith("c_attn"):
            module.weight.data[:, : module.weight.shape[0]] = 0
            module.bias.data[: module.weight.shape[0]] = 0


@pytest.mark.parametrize("kind", CASES)
def test_uniform_weights_are_those_of_equal_scores(kind: str) -> None:
    given, case = prepare(kind)
    with torch.no_grad():
        own = given.subject.logits(*tensors(case))
        with replace_weights(given.subject.attention, make_uniform_weights):
            uniform = given.subject.logits(*tensors(case))
        again = given.subject.logits(*tensors(case))
        zero_queries(given.model, kind)
        equal = given.subject.logits(*tensors(case))
    torch.testing.assert_close(uniform, equal, rtol=0, atol=1e-5)
    torch.testing.assert_close(own, again)
    assert (own - uniform).abs().max() > 0.01


@pytest.mark.parametrize("kind", CASES)
def test_erasing_is_reading_without_a_word(kind: str) -> None:
    given, case = prepare(kind)
    (found,) = examine(given.subject, [case])
    text, answer = CASES[kind]
    words = text.split()
    assert found.words == [word for word in words if word != "[MASK]"]
    whole = saccade.look(given.model, text, tokenizer=given.tokenizer, target=answer).answer.log_probabilities
    for at, word in enumerate(found.words[1:], 1):
        shorter = " ".join(other for other in words if other != word)
        told = saccade.look(given.model, shorter, tokenizer=given.tokenizer, target=answer).answer.log_probabilities
        expected = torch.tensor(whole) - torch.tensor(told)
        torch.testing.assert_close(found.erasure_TW[:, at], expected, rtol=0, atol=1e-4)


def embed(given: HuggingFaceModel) -> Callable[[Tensor], Tensor]:
    reader = given.model.get_encoder() if given.model.config.is_encoder_decoder else given.model
    return reader.get_input_embeddings()


@pytest.mark.parametrize("kind", CASES)
def test_gradients_are_the_slopes_of_log_p(kind: str) -> None:
    """Scaling the vectors of one word by 1 ± h changes log p by its gradient x input."""
    given, case = prepare(kind)
    given.model.double()
    (found,) = examine(given.subject, [case])
    embedding: Any = embed(given)
    at, h = 1, 1e-3
    told = []
    is_word_S = torch.tensor([number == at for number in case.word_of_piece])
    for factor in (1 + h, 1 - h):
        calls: list[int] = []

        def scale(_: Any, __: Any, vectors: Tensor, factor: float = factor, calls: list[int] = calls) -> Tensor:
            calls.append(1)
            if len(calls) > 1:
                return vectors
            scaled = vectors.clone()
            scaled[:, : len(is_word_S)][:, is_word_S] *= factor
            return scaled

        handle = embedding.register_forward_hook(scale)
        with torch.no_grad():
            logits = given.subject.logits(*tensors(case)).log_softmax(-1)
        handle.remove()
        told.append(logits[0].gather(1, torch.tensor(case.answer)[:, None])[:, 0])
    # T5 computes its norms in float32, whatever the rest is
    slope_T = ((told[0] - told[1]) / (2 * h)).float()
    torch.testing.assert_close(
        found.gradient_TW[:, at].float(), slope_T, rtol=1e-2, atol=1e-4
    )  # some norms are computed in float32


@pytest.mark.parametrize("kind", CASES)
def test_company_changes_nothing(kind: str) -> None:
    given, case = prepare(kind)
    text, _ = CASES[kind]
    (other,) = given.trust_test().cases([(f"a dog sees {text} and her", CASES[kind][1])])
    both = list(examine(given.subject, [case, other]))
    (alone,) = examine(given.subject, [case])
    torch.testing.assert_close(both[0].weight_TW, alone.weight_TW, rtol=0, atol=1e-5)
    torch.testing.assert_close(both[0].erasure_TW, alone.erasure_TW, rtol=0, atol=1e-4)
    torch.testing.assert_close(both[0].gradient_TW, alone.gradient_TW, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", CASES)
def test_weights_are_the_rows_that_tell_the_answer(kind: str) -> None:
    given, case = prepare(kind)
    text, answer = CASES[kind]
    seen = saccade.look(given.model, text, tokenizer=given.tokenizer, target=answer)
    weight_NLHTS = given.subject.weights(*tensors(case))
    length = len(case.source)
    rows = {
        "BertForMaskedLM": [3, 7],
        "BertForSequenceClassification": [0],
        "GPT2LMHeadModel": [length - 1, length, length + 1],
        "GPT2ForSequenceClassification": [length - 1],
        "T5ForConditionalGeneration": list(range(len(case.answer))),
    }[kind]
    expected = seen.map().weight_LHTS[:, :, rows, :length]
    torch.testing.assert_close(weight_NLHTS[0], expected, rtol=0, atol=1e-5)


def test_special_pieces_are_no_words() -> None:
    _, case = prepare("BertForMaskedLM")
    special = [at for at, number in enumerate(case.word_of_piece) if number == NO_WORD]
    assert special == [0, 3, 7, 8]


@pytest.mark.parametrize("kind", CASES)
def test_there_is_a_verdict(kind: str) -> None:
    model, tokenizer = make(kind, **({"pad_token_id": 0} if kind.startswith("GPT2") else {}))
    how: Any = {"generate": {"max_new_tokens": 3}} if kind.startswith("T5") else {}
    panel = saccade.trust(model, [CASES[kind][0], CASES[kind][0] + " a dog"], tokenizer=tokenizer, **how)
    assert panel.num_texts == 2
    assert panel.verdict.trust in ("none", "some", "much")
    assert panel.verdict.sentence.endswith(".")


def test_mistakes_are_told() -> None:
    model, tokenizer = make("BertForMaskedLM")
    for texts, how, message in (
        (["a dog"], {}, "text: 'a dog' has no gap; write [MASK] where one is"),
        ("a [MASK] dog", {}, "texts: one text given; it takes a list of texts"),
        (["a [MASK] dog"], {"layer": 2}, "layer: 2 given; allowed: 0 to 1"),
        (["a [MASK] dog"], {"targets": []}, "targets: there must be one for each text"),
    ):
        with pytest.raises(UserError) as caught:
            saccade.trust(model, texts, tokenizer=tokenizer, **how)
        assert message in str(caught.value)
    plain, same = make("BertModel")
    with pytest.raises(UserError, match="trust: BertModel has no head that gives probabilities"):
        saccade.trust(plain, ["a dog"], tokenizer=same)


def test_a_piece_for_the_unknown_is_the_tokenizers_own() -> None:
    model, tokenizer = make("BertForMaskedLM")
    text = "the old [MASK] sleeps"
    panel = saccade.trust(model, [text], tokenizer=tokenizer, targets=["cat"], erase="unknown")
    told = [
        saccade.look(model, one, tokenizer=tokenizer, target="cat").answer.log_probabilities[0]
        for one in (text, "the [UNK] [MASK] sleeps")
    ]
    assert panel.alone is not None
    assert float(panel.alone.erasure_TW[0, 1]) == pytest.approx(told[0] - told[1], abs=1e-5)
    tokenizer.unk_token = None
    with pytest.raises(UserError, match="erase: unknown given, but this model knows no piece of that kind"):
        saccade.trust(model, [text], tokenizer=tokenizer, erase="unknown")
