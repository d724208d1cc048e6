"""Is attention an explanation? Its agreement with erasing words, and other weights, by model and task."""

from __future__ import annotations

import random
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.data.text.tokenizer import PAD
from saccade.datasets.made.reviews import LABELS, draw_review
from saccade.inspection.trust.evidence import TrustCase, examine
from saccade.inspection.trust.subjects import ClassifierSubject
from saccade.inspection.trust.verdict import TrustFigures
from saccade.lab.experiment import Check, Experiment, Measurements, Panel
from saccade.lab.fit import fit
from saccade.layers.pooling import AttentionPooling
from saccade.models.classifier import TextClassifier
from saccade.models.text_encoder import BagEncoder, RecurrentTextEncoder

WIDTH, BATCH, RATE, CLIP = 32, 64, 0.005, 1.0
STEPS, FULL_STEPS = 400, 4000
TRAIN, TESTED = 4000, 100
FIRST_WORD = 4  # ids below are padding, <s>, </s> and <unk>
NOISE, KEYS, SENTENCE = 60, 4, 20  # words that say nothing, words that say the label, words of a sentence
TASKS, MODELS = ("one word", "reviews"), ("words alone", "GRU")


class LabelledIds(NamedTuple):
    """A text as ids, and its label."""

    ids: list[int]
    label: int


class TextTask(NamedTuple):
    """Texts to learn from and to test on, and the numbers of words and labels."""

    train: list[LabelledIds]
    test: list[LabelledIds]
    num_words: int
    num_labels: int


def measure(seed: int, is_full: bool) -> Measurements:
    """Train every model on every task, and ask how far its attention explains its answers."""
    tasks = {"one word": draw_sentences(seed), "reviews": draw_reviews(seed)}
    found = {
        (task, model): trust(*train(tasks[task], model, seed, FULL_STEPS if is_full else STEPS), tasks[task])
        for task in TASKS
        for model in MODELS
    }
    numbers = dict[str, float]()
    for task in TASKS:
        alone, mixed = (found[task, model] for model in MODELS)
        numbers |= {
            f"{task}, alone, tau": alone.tau,
            f"{task}, GRU, tau": mixed.tau,
            f"{task}, tau lost": alone.tau - mixed.tau,
            f"{task}, GRU, same": mixed.same,
            f"{task}, same gained": mixed.same - alone.same,
        }
    numbers["right"] = min(found[task, "GRU"].right for task in TASKS)
    taus = {task: [(number, found[task, model].tau) for number, model in enumerate(MODELS)] for task in TASKS}
    same = {task: [(number, found[task, model].same) for number, model in enumerate(MODELS)] for task in TASKS}
    return Measurements({"tau": taus, "same": same}, numbers)


def draw_sentences(seed: int) -> TextTask:
    """Draw sentences of noise with one word among them that says the label."""
    dice = random.Random(seed)

    def draw() -> LabelledIds:
        ids = [dice.randrange(FIRST_WORD + KEYS, FIRST_WORD + KEYS + NOISE) for _ in range(SENTENCE)]
        label = dice.randrange(KEYS)
        ids[dice.randrange(SENTENCE)] = FIRST_WORD + label
        return LabelledIds(ids, label)

    texts = [draw() for _ in range(TRAIN + TESTED)]
    return TextTask(texts[:TRAIN], texts[TRAIN:], FIRST_WORD + KEYS + NOISE, KEYS)


def draw_reviews(seed: int) -> TextTask:
    """Draw the reviews that `saccade data reviews` makes, with denials: "not clean" is no praise."""
    dice = random.Random(seed)
    drawn = [draw_review(dice) for _ in range(TRAIN + TESTED)]
    words = sorted({word for _, text in drawn for word in text.split()})
    ids = {word: number for number, word in enumerate(words, FIRST_WORD)}
    texts = [LabelledIds([ids[word] for word in text.split()], LABELS.index(label)) for label, text in drawn]
    return TextTask(texts[:TRAIN], texts[TRAIN:], FIRST_WORD + len(words), len(LABELS))


class ExplanationFigures(NamedTuple):
    """Tau between attention and erasing, how often permuted weights give the same answer, and right answers."""

    tau: float
    same: float
    right: float


def train(task: TextTask, model: str, seed: int, num_steps: int) -> tuple[TextClassifier, float]:
    """Train a classifier with attention pooling; return it, and its share of right answers."""
    torch.manual_seed(seed)
    encoder = BagEncoder(WIDTH) if model == "words alone" else RecurrentTextEncoder(WIDTH, WIDTH)
    network = TextClassifier(
        vocabulary=task.num_words,
        embedding_width=WIDTH,
        num_labels=task.num_labels,
        encoder=encoder,
        pooling=AttentionPooling(encoder.width),
    )

    def logits(texts: list[LabelledIds]) -> tuple[Tensor, Tensor]:
        length_U = torch.tensor([len(text.ids) for text in texts])
        longest = int(length_U.max())
        ids_US = torch.tensor([text.ids + [PAD] * (longest - len(text.ids)) for text in texts])
        vectors_UD = network.read(ids_US, length_U).vector_BD
        return network.output(vectors_UD), torch.tensor([text.label for text in texts])

    def draw_loss() -> Tensor:
        return F.cross_entropy(*logits([task.train[row] for row in torch.randint(len(task.train), (BATCH,)).tolist()]))

    fit(network.parameters(), draw_loss, num_steps=num_steps, rate=RATE, most_norm=CLIP, falls=True)
    network.eval()
    with torch.no_grad():
        logit_UV, label_U = logits(task.test)
    return network, float((logit_UV.argmax(-1) == label_U).float().mean())


def trust(network: TextClassifier, right: float, task: TextTask) -> ExplanationFigures:
    """Test the attention of a classifier as `saccade look --trust` does, on texts with their right labels."""
    cases = [
        TrustCase([str(word) for word in text.ids], text.ids, list(range(len(text.ids))), [text.label])
        for text in task.test
    ]
    found = TrustFigures.of(examine(ClassifierSubject(network), cases))
    return ExplanationFigures(found.steps.attention["erasure"], found.moved["permuted"].same, right)


EXPLANATION = Experiment(
    name="explanation",
    question="Is attention an explanation?",
    claim="Where words have been mixed before they are weighed, by a recurrent encoder, attention agrees only weakly "
    "with what happens when words are erased, and other weights give the same answer; where words stay alone, it is "
    "closer to an explanation. It depends on the task.",
    source="Jain & Wallace 2019, sections 4.1 and 4.2; Wiegreffe & Pinter 2019, section 3",
    setup="Classifiers with additive attention pooling over embeddings (words alone) or a GRU in both directions, "
    f"width {WIDTH}, {STEPS} steps (--full: {FULL_STEPS}). Task 1: one of {SENTENCE} words says the label. Task 2: "
    f"made reviews, whose praise may be denied. On {TESTED} held-out texts: Kendall's tau between a word's weight and "
    "the change of log p when it is left out, and how often the answer stays when the weights are permuted.",
    prediction="In reviews the GRU's tau is below 0.4, and at least 0.1 below that of words alone; its answer stays "
    "for at least 70% of permuted weights, and for at least 0.1 more than that of words alone. With one word, tau says "
    "little, as all other words do nothing, and words alone lose their answer when weights are permuted: the GRU "
    "keeps its answer at least 0.2 more often.",
    checks=(
        Check("right", "the GRUs have learned their tasks: right answers of the worse", least=0.8),
        Check("reviews, GRU, tau", "reviews: over a GRU attention agrees weakly with erasing, tau", most=0.5),
        Check("reviews, tau lost", "reviews: over words alone tau is larger, by", least=0.05),
        Check("reviews, GRU, same", "reviews: over a GRU permuted weights give the same answer, share", least=0.6),
        Check("reviews, same gained", "reviews: more often than over words alone, by", least=0.05),
        Check("one word, GRU, tau", "one word: over a GRU attention agrees weakly with erasing, tau", most=0.5),
        Check(
            "one word, same gained", "one word: permuted weights give the same answer over a GRU more often, by", 0.1
        ),
    ),
    panels={
        "tau": Panel("Agreement with erasing", "0: words alone, 1: GRU", "Kendall's tau"),
        "same": Panel("Same answer under permuted weights", "0: words alone, 1: GRU", "share"),
    },
    measure=measure,
    minutes="three minutes",
)
