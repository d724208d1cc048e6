"""The classifier: padding, batch-mates and what follows change nothing; what was said before does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from saccade.data.labels.labelled import Text
from saccade.data.labels.windows import EncodedTexts, encode_texts
from saccade.layers.dialogue import AttentionContext, Context, RecurrentContext
from saccade.layers.pooling import AttentionPooling, LastPooling, MaxPooling, MeanPooling, Pooling, StructuredPooling
from saccade.models.classifier import ClassifierDropouts, TextClassifier
from saccade.models.text_encoder import BagEncoder, RecurrentTextEncoder, TextEncoder, TransformerTextEncoder
from saccade.models.transformer import BlockSizes
from saccade.models.transformer import Dropouts as BlockDropouts

ENCODERS: dict[str, Callable[[], TextEncoder]] = {
    "bag": lambda: BagEncoder(6),
    "recurrent": lambda: RecurrentTextEncoder(6, 10, cell="lstm"),
    "transformer": lambda: TransformerTextEncoder(6, BlockSizes(10, 2, 11, dropouts=BlockDropouts(0.0))),
}
POOLINGS: dict[str, Callable[[int], Pooling]] = {
    "mean": MeanPooling,
    "last": LastPooling,
    "max": MaxPooling,
    "attention": AttentionPooling,
    "structured": lambda width: StructuredPooling(width, num_hops=3, hidden_width=7),
}


def network(encoder: str = "recurrent", pooling: str = "attention", context: str = "") -> TextClassifier:
    torch.manual_seed(1)
    reads = ENCODERS[encoder]()
    pools = POOLINGS[pooling](reads.width)
    contexts: dict[str, Context | None] = {
        "": None,
        "gru": RecurrentContext(pools.width, 7),
        "attention": AttentionContext(pools.width, longest=3),
    }
    whole = TextClassifier(
        vocabulary=13, embedding_width=6, num_labels=5, encoder=reads, pooling=pools, context=contexts[context]
    )
    return whole.double().eval()


def dialogue(words: list[str], *, speakers: str = "ABABA", context: int = 2) -> EncodedTexts:
    texts = [Text(text, "", "1", speaker) for text, speaker in zip(words, speakers, strict=False)]
    return encode_texts(texts, lambda text: [ord(sign) - ord("a") + 4 for sign in text], [], context=context)


WORDS = ["abc", "d", "ef", "ghiab", "a"]


@pytest.mark.parametrize("pooling", list(POOLINGS))
@pytest.mark.parametrize("encoder", list(ENCODERS))
def test_padding_and_batch_mates_change_nothing(encoder: str, pooling: str) -> None:
    model = network(encoder, pooling)
    texts = dialogue(WORDS, context=0)
    whole = model(texts.batch(texts.runs()))
    assert whole.logits_BV.shape == (5, 5)
    for row, run in enumerate(texts.runs()):
        alone = model(texts.batch([run]))
        torch.testing.assert_close(alone.logits_BV[0], whole.logits_BV[row])


@pytest.mark.parametrize("context", ["gru", "attention"])
def test_what_was_said_before_counts_and_what_follows_does_not(context: str) -> None:
    model = network(context=context)
    texts = dialogue(WORDS)
    whole = model(texts.batch(texts.runs())).logits_BV
    for row in range(5):
        for changed in range(5):
            other = dialogue([*WORDS[:changed], "ihg", *WORDS[changed + 1 :]])
            same = torch.allclose(model(other.batch(other.runs())).logits_BV[row], whole[row])
            assert same is not (row - 2 <= changed <= row), (row, changed)
    for row in range(5):  # and however the dialogue is cut
        torch.testing.assert_close(model(texts.batch([range(row, row + 1)])).logits_BV[0], whole[row])


@pytest.mark.parametrize("context", ["gru", "attention"])
def test_who_spoke_counts(context: str) -> None:
    model = network(context=context)
    with torch.no_grad():
        assert model.speaker is not None
        model.speaker.weight.normal_()
    whole, other, swapped = (
        model(texts.batch([range(2, 3)])).logits_BV
        for texts in (dialogue(WORDS), dialogue(WORDS, speakers="AAABB"), dialogue(WORDS, speakers="BABAB"))
    )
    assert not torch.allclose(whole, other)
    torch.testing.assert_close(whole, swapped)  # not who they are: whether they are the same


def test_a_hop_has_its_weights_and_its_penalty() -> None:
    texts = dialogue(WORDS, context=0)
    judged = network(pooling="structured")(texts.batch(texts.runs()))
    assert judged.weight_BTS is not None
    assert judged.weight_BTS.shape == (5, 3, 5)
    assert judged.penalty_B is not None
    assert judged.penalty_B.shape == (5,)


def test_dropouts_are_drawn_by_torch_and_only_in_training() -> None:
    model = network()
    model.dropouts = ClassifierDropouts(0.3, 0.3, 0.3)
    texts = dialogue(WORDS, context=0)
    batch = texts.batch(texts.runs())
    assert torch.equal(model(batch).logits_BV, model(batch).logits_BV)
    model.train()
    torch.manual_seed(1)
    first, second = model(batch).logits_BV, model(batch).logits_BV
    torch.manual_seed(1)
    assert torch.equal(model(batch).logits_BV, first)
    assert not torch.equal(first, second)


def test_dropped_words_are_unknown_ones() -> None:
    model = network().train()
    model.dropouts = ClassifierDropouts(words=0.999999)
    ids_US, length_U = torch.tensor([[4, 5, 6]]), torch.tensor([3])
    unknown = model.read(ids_US, length_U).vector_BD
    model.eval()
    torch.testing.assert_close(unknown, model.read(torch.full_like(ids_US, 3), length_U).vector_BD)
