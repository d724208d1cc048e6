"""The memory network beside its equations, spelled out for one story."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from saccade.data.stories import StoryBatch
from saccade.models.memory_network import MemoryNetwork

WIDTH, WORDS, ANSWERS = 10, 17, 3


def network(tying: str = "adjacent", **more: object) -> MemoryNetwork:
    torch.manual_seed(3)
    sizes = {"vocabulary": WORDS, "num_answers": ANSWERS, "width": WIDTH, "num_hops": 2, "max_sentences": 7}
    found = MemoryNetwork(**sizes, tying=tying, **more)  # type: ignore[arg-type]
    for parameter in found.parameters():
        torch.nn.init.normal_(parameter)
    with torch.no_grad():
        found.embedding.weight[0] = 0
    return found.double().eval()


def batch(*stories: list[list[int]], question: list[int], width: int = 4) -> StoryBatch:
    """Stories in the order in which they are told, all with one question."""
    rows = [*(sentence for story in stories for sentence in story), question]
    ids_UW = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    longest = max(map(len, stories))
    sentence_BS, at = torch.zeros(len(stories), longest, dtype=torch.long), 0
    for index, story in enumerate(stories):
        sentence_BS[index, : len(story)] = torch.arange(at, at + len(story)).flip(0)
        at += len(story)
    lengths = torch.tensor([len(story) for story in stories])
    return StoryBatch(ids_UW, sentence_BS, lengths, torch.full_like(lengths, at), torch.zeros_like(lengths))


def sentence_vector(table_VD: Tensor, words: list[int]) -> Tensor:
    """sum_j l_j x_j with l_kj = (1 - j/J) - (k/d)(1 - 2j/J) (Sukhbaatar 2015, section 4.1)."""
    count, width = len(words), table_VD.shape[1]
    total = torch.zeros(width, dtype=table_VD.dtype)
    for j, word in enumerate(words, 1):
        for k in range(1, width + 1):
            total[k - 1] += ((1 - j / count) - k / width * (1 - 2 * j / count)) * table_VD[word, k - 1]
    return total


@pytest.mark.parametrize("tying", ["adjacent", "layerwise"])
def test_hops_are_those_of_the_paper(tying: str) -> None:
    told, question = [[5, 6, 7], [8, 9], [10, 5, 11, 6]], [12, 5]
    model = network(tying)
    found = model(batch(told, question=question))
    tables, ages = model.embedding.weight.chunk(model.num_tables, 1), model.age.weight.chunk(model.num_tables, 1)
    state, weights = sentence_vector(tables[0], question), []
    for hop in range(2):
        first = hop if tying == "adjacent" else 0
        keys, values = (
            torch.stack([sentence_vector(tables[at], words) + ages[at][age] for age, words in enumerate(told[::-1])])
            for at in (first, first + 1)
        )
        weight = torch.softmax(keys @ state, 0)
        state = weight @ values + (state if model.state is None else model.state.weight @ state)
        weights.append(weight)
    torch.testing.assert_close(found.weight_BTS[0], torch.stack(weights))
    torch.testing.assert_close(found.logits_BV[0], model.output.weight @ state)


def test_a_recurrent_reader_joins_what_was_told_around_a_sentence() -> None:
    """tables(x + GRU(x)), from both ends, in the place of the embeddings."""
    told, question = [[5, 6, 7], [8, 9], [10, 5, 11, 6]], [12, 5]
    model = network(story="recurrent")
    found = model(batch(told, question=question))
    assert model.reader is not None
    assert model.tables is not None
    vectors = [sentence_vector(model.embedding.weight, words) for words in told[::-1]]
    x_SD = torch.stack(vectors) + model.age.weight[:3]
    around_BSD, _ = model.reader(x_SD[None], torch.tensor([3]))
    tables = (x_SD + around_BSD[0]) @ model.tables.weight.mT
    state = sentence_vector(model.embedding.weight, question)
    for keys, values in itertools.pairwise(tables.chunk(3, -1)):
        state = state + torch.softmax(keys @ state, 0) @ values
    torch.testing.assert_close(found.logits_BV[0], model.output.weight @ state)


@pytest.mark.parametrize("story", ["bag", "recurrent"])
def test_a_story_is_read_alike_beside_a_longer_one(story: str) -> None:
    short, long = [[5, 6], [7, 8, 9]], [[5], [6], [7], [8], [9, 10]]
    model = network(story=story)
    together = model(batch(short, long, question=[12, 5]))
    alone = model(batch(short, question=[12, 5]))
    torch.testing.assert_close(together.logits_BV[:1], alone.logits_BV)
    assert together.weight_BTS[0, :, 2:].abs().max() == 0


@pytest.mark.parametrize("story", ["bag", "recurrent"])
def test_without_a_story_the_question_alone_answers(story: str) -> None:
    found = network(story=story)(batch([], question=[12, 5])._replace(sentence_BS=torch.zeros(1, 1, dtype=torch.long)))
    assert found.logits_BV.isfinite().all()
    assert found.weight_BTS.abs().max() == 0


@pytest.mark.parametrize("score", ["scaled_dot", "general", "additive", "cosine", "location"])
@pytest.mark.parametrize("normalizer", ["softmax", "entmax15", "hard"])
def test_every_score_and_normalizer_learns(score: str, normalizer: str) -> None:
    model = network(score=score, normalizer=normalizer).train()
    model(batch([[5, 6], [7, 8, 9], [10]], question=[12, 5])).logits_BV.sum().backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)
