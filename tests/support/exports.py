"""Small models that are exported, untrained, and what to compare them on."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from saccade.data.batches import decoder_input, pad_sources
from saccade.data.labels.labelled import LabelColumns, Spelling, Text
from saccade.data.pictures.captions import CaptionReader, CaptionSource
from saccade.data.tags.columns import TaggedSentence
from saccade.data.tags.lexicon import Lexicon
from saccade.data.text.corpus import Pair
from saccade.data.text.tokenizer import PAD, SPECIAL, ListedPieces, SentencePiece, Tokenizer, Vocabulary
from saccade.decoding import BeamOptions, Hypothesis
from saccade.layers.clip_encoder import ClipEncoder
from saccade.layers.crf import LinearChain
from saccade.layers.image_encoder import FeatureEncoder, ImageEncoder
from saccade.models.captioner import Captioner
from saccade.models.classifier import TextClassifier
from saccade.models.seq2seq import RecurrentSizes, Seq2Seq
from saccade.models.seq2seq_attention import AttentionOptions
from saccade.models.tagger import FeatureSizes, OtherPlaces, TagNetwork, WordFeatures
from saccade.models.text_encoder import BagEncoder, RecurrentTextEncoder, TextEncoder, TransformerTextEncoder
from saccade.models.transformer import BlockSizes, Transformer
from saccade.tasks.base import Portable, ScoredSet
from saccade.tasks.caption.predictor import CaptionWriter
from saccade.tasks.classify.predictor import Classifier
from saccade.tasks.tag.predictor import Tagger

SOURCE, TARGET = Vocabulary([*SPECIAL, *"abcdefghijk"], "words"), Vocabulary([*SPECIAL, *"klmnopq"], "words")
PHRASE = "der alte Hund und die kleine Katze schlafen im Haus , aber der Baum steht allein ."
LETTERS = "abcdefghijk"
WORDS = Vocabulary([*SPECIAL, *LETTERS], "words")
LABELS = ["fine", "poor", "dull"]
EMBEDDED = 10
CAPTIONS = Vocabulary([*SPECIAL, *"abcdefg"], "words")
SIZES = {"width": 24, "num_heads": 3, "hidden_width": 20}


def transformer(
    *, tied: str = "two", vocabularies: tuple[Tokenizer, Tokenizer] = (SOURCE, TARGET), **sizes: Any
) -> Transformer:
    """Build a Transformer whose parameters are all random, biases and norms too."""
    source, target = vocabularies
    network = Transformer(
        source=source.size,
        target_vocabulary=target.size,
        sizes=BlockSizes(**{**SIZES, **sizes}),
        num_encoder_layers=2,
        num_decoder_layers=2,
        share_embeddings=tied == "three",
        share_output=tied != "none",
        max_length=64,
    )
    for parameter in network.parameters():
        if parameter.dim() == 1 or parameter.std() == 0:
            nn.init.normal_(parameter, mean=float(parameter.flatten()[0].detach()), std=0.3)
    return network.eval()


def recurrent(attention: str = "bahdanau", *, cell: str = "gru", layers: int = 1, **more: Any) -> Seq2Seq:
    """Build an RNN whose parameters are all random."""
    options = AttentionOptions(**more.pop("options", {}))
    network = Seq2Seq(
        source=SOURCE.size,
        target_vocabulary=TARGET.size,
        sizes=RecurrentSizes(14, 10, layers, cell),
        attention=attention,
        attention_options=options,
        **more,
    )
    shaken: Seq2Seq = shake(network)
    return shaken


@cache
def pieces(kind: str = "unigram") -> SentencePiece:
    """Train a tokenizer on a few words."""
    texts = [" ".join(random.Random(seed).choices(PHRASE.split(), k=6)) for seed in range(60)]
    return SentencePiece.train(
        kind,
        texts if kind == "unigram" else [text.upper() for text in texts],
        {"unigram": 290, "bpe": 294}[kind],
        seed=1,
    )


def listed() -> ListedPieces:
    """Make pieces in another order, as imported models have them, with a token that begins every text."""
    own = pieces()
    symbols = own.pieces(range(own.size))
    return ListedPieces(own.model, [*SPECIAL, ">>fr<<", *reversed(symbols[len(SPECIAL) :])], first=[">>fr<<"])


def phrases(count: int, *, shout: bool = False) -> ScoredSet:
    """Draw pairs of such words, and one with letters that only bytes spell; `shout`: targets for the other kind."""
    texts = [
        "naïve 😀 Ça",
        *(" ".join(random.Random(100 + seed).choices(PHRASE.split(), k=1 + seed)) for seed in range(count)),
    ]
    pairs = [Pair(*both) for both in itertools.pairwise(texts)]
    return ScoredSet("phrases", [Pair(one, other.upper() if shout else other) for one, other in pairs])


def portable(network: nn.Module, source: Any = SOURCE, target: Any = TARGET, **more: Any) -> Portable:
    options = more.pop("options", BeamOptions())
    return Portable(network, source, target, options, 50, more.pop("score", score), **more)


def score(outputs: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Stand in for BLEU: the share of outputs that are right."""
    return {"bleu": 100 * sum(map(str.__eq__, outputs, references)) / len(references)}


def random_pairs(
    count: int, vocabularies: tuple[Vocabulary, Vocabulary] = (SOURCE, TARGET), longest: int = 12
) -> ScoredSet:
    """Draw pairs of many lengths."""
    draw = random.Random(1)
    sides = [
        [" ".join(draw.choices(one.symbols[len(SPECIAL) :], k=draw.randint(1, longest))) for _ in range(count)]
        for one in vocabularies
    ]
    return ScoredSet("random", [Pair(*both) for both in zip(*sides, strict=True)])


def shake(network: nn.Module) -> Any:
    """Make all parameters random, zeros too."""
    for parameter in network.parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter, std=0.4)
    return network.eval()


def encoder(kind: str, input_width: int = EMBEDDED, **more: Any) -> TextEncoder:
    if kind == "bag":
        return BagEncoder(input_width)
    if kind == "transformer":
        named = more.pop("named", "encoder")
        sizes = BlockSizes(**{**SIZES, **more})
        return TransformerTextEncoder(input_width, sizes, num_layers=2, max_length=64, kind=named)
    return RecurrentTextEncoder(input_width, 14, cell=kind, **more)


def texts(count: int = 37) -> list[Text]:
    """Draw texts of many lengths, in dialogues; one is blank, one has unknown words."""
    draw = random.Random(2)
    drawn = [" ".join(draw.choices(LETTERS, k=draw.randint(1, 13))) for _ in range(count)]
    return [
        Text(text, draw.choice(LABELS), str(row // 5), draw.choice(["", "A", "B"]))
        for row, text in enumerate(["", "z z a", *drawn])
    ]


def documents(count: int = 23) -> list[Text]:
    """Draw documents of several sentences, a line each, some of them long; one is blank."""
    draw = random.Random(5)
    drawn = [
        "\n".join(" ".join(draw.choices(LETTERS, k=draw.randint(1, 13))) for _ in range(draw.randint(1, 6)))
        for _ in range(count)
    ]
    return [Text(text, draw.choice(LABELS)) for text in ["", *drawn]]


def classifier(read: TextEncoder, pooling: Any, before: Any = None, document: Any = None, **more: Any) -> Classifier:
    network = TextClassifier(
        vocabulary=WORDS.size,
        embedding_width=EMBEDDED,
        num_labels=len(LABELS),
        encoder=read,
        pooling=pooling,
        context=before,
        document=document,
    )
    columns = LabelColumns(separator=more.pop("separator", None))
    return Classifier(shake(network), WORDS, LABELS, Spelling(), columns, **more)


def sentences(count: int = 29, features: int = 0) -> list[TaggedSentence]:
    """Draw sentences with words that come again, in documents."""
    draw = random.Random(3)
    words = ["Anna", "bee", "c4", "DD", "e-f", "Gg", "anna", "x" * 50, "ü"]
    made = []
    for row in range(count):
        chosen = draw.choices(words, k=draw.randint(1, 11))
        tags = [draw.choice(["B-A", "O", "B-C"]) for _ in chosen]
        columns = tuple(tuple(draw.choices("NVP", k=len(chosen))) for _ in range(features))
        made.append(TaggedSentence(tuple(chosen), tuple(tags), row // 4, row, columns))
    return made


def tagger(kind: str = "lstm", *, features: int = 0, documents: bool = False, **more: Any) -> Tagger:
    lexicon = Lexicon.learn(sentences(features=features), ["O", "B-A", "I-A", "B-C", "I-C"], spelling="bio")
    widths = FeatureSizes(6, more.pop("character", 8), more.pop("shape", 5), 4 * features)
    read = WordFeatures(
        widths,
        num_words=lexicon.words.size,
        num_characters=lexicon.characters.size,
        num_shapes=lexicon.shapes.size,
        num_features=[one.size for one in lexicon.features],
        reader=more.pop("reader", "cnn"),
    )
    chain = LinearChain(5, allowed=more.pop("allowed", None), is_learned=more.pop("is_learned", True))
    first, second = encoder(kind, read.width, **more), None
    if documents:
        second = encoder(kind, 2 * first.width, **more, **({"named": None} if kind == "transformer" else {}))
    network = TagNetwork(
        features=read,
        encoder=first,
        chain=chain,
        places=OtherPlaces(first.width, num_heads=2) if documents else None,
        second=second,
    )
    return Tagger(shake(network), lexicon)


def captioner(*, kind: str = "picture", **more: Any) -> CaptionWriter:
    """Make a captioner of a picture, a clip or features."""
    sizes = RecurrentSizes(12, 10, more.pop("layers", 1), more.pop("cell", "lstm"))
    reads: dict[str, Any] = {
        "picture": ImageEncoder(12, rows=8, columns=12),
        "clip": ClipEncoder(12, frames=5, rows=8, columns=12),
        "features": FeatureEncoder(12, rows=2, columns=3, channels=5),
    }
    options = AttentionOptions(more.pop("score", "additive"), more.pop("normalizer", "softmax"))
    network = shake(Captioner(reads[kind], vocabulary=CAPTIONS.size, sizes=sizes, attention_options=options, **more))
    if kind == "features":
        network.encoder.mean_C.normal_()
        network.encoder.deviation_C.uniform_(0.5, 2)
    reader = CaptionReader(side=None if kind == "features" else 8, frames=5 if kind == "clip" else None)
    return CaptionWriter(network, CAPTIONS, BeamOptions(max_length=11), reader)


def pictures(kind: str = "picture") -> list[Any]:
    """Make pictures, clips or features, with captions."""
    draw = np.random.default_rng(4)
    makes: dict[str, Callable[[int], Any]] = {
        "picture": lambda row: draw.integers(0, 256, (3, 8, 12), np.uint8),
        "clip": lambda row: draw.integers(0, 256, (1 + row % 5, 3, 8, 12), np.uint8),
        "features": lambda row: draw.normal(size=(6, 5)).astype(np.float32),
    }
    return [(CaptionSource(str(row), makes[kind](row)), ["a b c", "d e"][: 1 + row % 2]) for row in range(17)]


def draw_sources(count: int, longest: int, draw: random.Random) -> list[list[int]]:
    return [[draw.randint(4, 14) for _ in range(draw.randint(1, longest))] for _ in range(count)]


def backwards() -> Portable:
    """Train a model to write its source backwards, but not well."""
    torch.manual_seed(1)
    draw = random.Random(3)
    network = transformer().train()
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(200):
        given = draw_sources(16, 8, draw)
        wanted = [[4 + number % 7 for number in reversed(ids)] for ids in given]
        vectors = network(*pad_sources(given), decoder_input(wanted))
        loss = torch.nn.functional.cross_entropy(network.logits(vectors).mT, pad_sources(wanted)[0], ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return portable(network.eval())


def check_same(ours: list[list[Hypothesis]], theirs: list[list[Hypothesis]]) -> None:
    assert [[one.ids for one in best] for best in theirs] == [[one.ids for one in best] for best in ours]
    assert [[(one.ended, one.cut) for one in best] for best in theirs] == [
        [(one.ended, one.cut) for one in best] for best in ours
    ]
    for best, others in zip(ours, theirs, strict=True):
        for one, other in zip(best, others, strict=True):
            assert other.score == pytest.approx(one.score, abs=1e-4)
            assert other.log_probabilities == pytest.approx(one.log_probabilities, abs=1e-4)
