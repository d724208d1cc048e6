"""Words that change places in training: in stories and answers alike, and only those of a group."""

from __future__ import annotations

import pytest
import torch

from saccade.data.labels.labelled import Spelling
from saccade.data.stories import NO_ANSWER, EncodedStories, Story, StoryBatch
from saccade.data.text.tokenizer import Tokenizer, train_tokenizer
from saccade.errors import UserError
from saccade.tasks.answer.swaps import Swaps

SPELLING = Spelling(lowercase=True, split_punctuation=True)
PLACES = ("kitchen", "garden", "cellar", "hallway", "attic")
PEOPLE = ("Mary", "John", "Ruth")
STORIES = [
    Story((f"{person} went to the {place} .",), f"Where is {person} ?", place) for place in PLACES for person in PEOPLE
]
WORDS: Tokenizer = train_tokenizer(
    "words", [SPELLING(text) for story in STORIES for text in (*story.sentences, story.question)], 50
)


def batch(answers: tuple[str, ...] = PLACES) -> StoryBatch:
    encoded = EncodedStories(STORIES, WORDS, SPELLING, answers, max_sentences=5, max_length=9)
    return encoded.batch(range(len(STORIES)))


def texts(found: StoryBatch, rows: torch.Tensor) -> list[list[str]]:
    return [WORDS.pieces([one for one in ids if one]) for ids in found.ids_UW[rows].tolist()]


def test_a_story_its_question_and_its_answer_change_alike() -> None:
    torch.manual_seed(3)
    swaps, seen = Swaps([PLACES, PEOPLE], WORDS, SPELLING, PLACES), set[tuple[str, ...]]()
    for _ in range(20):
        found = swaps(batch())
        told, asked = texts(found, found.sentence_BS[:, 0]), texts(found, found.question_B)
        answers = [PLACES[index] for index in found.answer_B.tolist()]
        assert [words[4] for words in told] == answers
        assert [words[0] for words in told] == [words[2] for words in asked]
        assert all(words[1:4] == ["went", "to", "the"] for words in told)
        seen |= {tuple(answers), tuple(words[0] for words in told)}
        assert len({tuple(ids) for ids in found.ids_UW.tolist()}) == len(found.ids_UW)
    assert len(seen) == 40  # drawn anew each time, for each story by itself


def test_an_answer_that_is_not_known_stays_so() -> None:
    swaps = Swaps([PEOPLE], WORDS, SPELLING, PLACES[:3])
    answers = swaps(batch(PLACES[:3])).answer_B.tolist()
    assert answers == [0] * 3 + [1] * 3 + [2] * 3 + [NO_ANSWER] * 6


@pytest.mark.parametrize(
    ("groups", "answers", "message"),
    [
        ([("Mary", "Nobody")], PLACES, "'nobody' given; allowed: single words of the stories"),
        ([("Mary", "Ruth went")], PLACES, "'ruth went' given; allowed: single words"),
        (
            [PLACES],
            PLACES[:4],
            "'kitchen' is an answer and 'attic' is not; allowed: groups whose words are all",
        ),
        ([PEOPLE], ("the kitchen", "Mary and Ruth"), "given, but it is a part of the answer 'mary and ruth'"),
    ],
)
def test_groups_that_can_not_change_places(
    groups: list[tuple[str, ...]], answers: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UserError, match=r"training\.swap") as refused:
        Swaps(groups, WORDS, SPELLING, answers)
    assert message in str(refused.value)
