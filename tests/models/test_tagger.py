"""The tagger's network: padding and batch-mates change nothing, documents do, rare words are sometimes unknown."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from saccade.data.tags.columns import TaggedSentence
from saccade.data.tags.lexicon import Lexicon
from saccade.data.text.tokenizer import UNKNOWN
from saccade.layers.crf import LinearChain
from saccade.models.tagger import FeatureSizes, OtherPlaces, TagNetwork, WordFeatures
from saccade.models.text_encoder import RecurrentTextEncoder, TextEncoder, TransformerTextEncoder
from saccade.models.transformer import BlockSizes, Dropouts

FIRST = [TaggedSentence(("Blue", "cats", "saw", "Blue")), TaggedSentence(("the", "BLUE", "dog", "and", "cats"))]
SECOND = [TaggedSentence(("a", "cat", "slept")), TaggedSentence(("cats", "and", "dogs", "slept", "a", "lot", "here"))]
LEXICON = Lexicon.learn([*FIRST, *SECOND], ["O", "B-X", "I-X"], spelling="bio", min_count=1)
SIZES = FeatureSizes(7, 4, 3)


def features(share: Tensor | None = None, sizes: FeatureSizes = SIZES) -> WordFeatures:
    return WordFeatures(
        sizes,
        num_words=LEXICON.words.size,
        num_characters=LEXICON.characters.size,
        num_shapes=LEXICON.shapes.size,
        unknown_share=share,
    )


def encoder(kind: str, input_width: int) -> TextEncoder:
    if kind == "recurrent":
        return RecurrentTextEncoder(input_width, 10, cell="lstm", num_layers=2)
    return TransformerTextEncoder(input_width, BlockSizes(10, 5, 13, dropouts=Dropouts(0.0)))


def network(kind: str = "recurrent", *, reads_documents: bool = True) -> TagNetwork:
    places = OtherPlaces(10, num_heads=5) if reads_documents else None
    second = encoder(kind, 20) if reads_documents else None
    own = features()
    made = TagNetwork(
        features=own, encoder=encoder(kind, own.width), chain=LinearChain(3), places=places, second=second
    )
    return made.double().eval()


@pytest.mark.parametrize("kind", ["recurrent", "transformer"])
@pytest.mark.parametrize("reads_documents", [False, True])
def test_padding_and_batch_mates_change_nothing(kind: str, reads_documents: bool) -> None:
    made = network(kind, reads_documents=reads_documents)
    together = made(LEXICON.tokens([FIRST, SECOND]))
    assert together.shape == (4, 7, 3)
    for rows, document in ((slice(0, 2), FIRST), (slice(2, 4), SECOND)):
        alone = made(LEXICON.tokens([document]))
        for row, sentence in enumerate(document):
            steps = len(sentence.words)
            torch.testing.assert_close(together[rows][row, :steps], alone[row, :steps])


def test_a_document_is_read_where_its_words_come_again() -> None:
    """`cats` stands in both sentences of FIRST, so the second is read in the first's light; in SECOND none does."""
    made = network()
    for document, is_touched in ((FIRST, True), (SECOND[:1] + FIRST[:1], False)):
        joined, apart = made(LEXICON.tokens([document])), made(LEXICON.tokens([[one] for one in document]))
        assert torch.allclose(joined, apart) != is_touched
    plain = network(reads_documents=False)
    tokens = LEXICON.tokens([FIRST]), LEXICON.tokens([[one] for one in FIRST])
    assert torch.allclose(plain(tokens[0]), plain(tokens[1]))


def test_other_places_by_hand() -> None:
    """Heads that copy: a token sees the mean of its word's other places, and not itself."""
    layer = OtherPlaces(2, num_heads=1)
    with torch.no_grad():
        for projection in (layer.attention.query, layer.attention.key):
            projection.weight.zero_()
        for projection in (layer.attention.value, layer.attention.output):
            projection.weight.copy_(torch.eye(2))
    x_BTD = torch.arange(12.0).view(2, 3, 2)
    found = layer(x_BTD, torch.tensor([[0, 2, 4], [1, 5, 0]]), torch.tensor([3, 2]))
    flat = x_BTD.view(6, 2)
    wanted = torch.stack(
        [(flat[2] + flat[4]) / 2, flat[5], (flat[0] + flat[4]) / 2, torch.zeros(2), (flat[0] + flat[2]) / 2, flat[1]]
    )
    torch.testing.assert_close(found.view(6, 2), wanted)


def test_rare_words_are_unknown_in_training_only() -> None:
    share_V = torch.zeros(LEXICON.words.size)
    share_V[LEXICON.words.encode("cats")[0]] = 1.0
    made, tokens = features(share_V), LEXICON.tokens([FIRST])
    unknown = tokens._replace(
        word_BT=tokens.word_BT.masked_fill(tokens.word_BT == LEXICON.words.encode("cats")[0], UNKNOWN)
    )
    assert torch.equal(made.train()(tokens), made.eval()(unknown))
    assert not torch.equal(made.eval()(tokens), made.eval()(unknown))


def test_a_width_of_0_leaves_a_feature_out() -> None:
    made = features(sizes=FeatureSizes(7, 0, 0))
    assert made(LEXICON.tokens([FIRST])).shape == (2, 5, 7)
    assert made.characters is None
    assert made.shape is None


def test_everything_learns() -> None:
    made = network().train()
    tokens = LEXICON.tokens([FIRST])
    made.chain.log_probability(made(tokens), tokens.word_BT % 3, tokens.length_B).sum().backward()
    for name, parameter in made.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name
