"""Stories with questions: how files and texts are read, what is refused, and how they become batches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from saccade.data.labels.labelled import Spelling
from saccade.data.stories import NO_ANSWER, EncodedStories, Story, StoryColumns, parse_story, read_stories
from saccade.data.text.tokenizer import train_tokenizer
from saccade.errors import UserError

TOLD = ("Ann took the milk.", "Bob slept.", "Ann went out.")
ROW = {"story": list(TOLD), "question": "Where is Ann?", "answer": "out", "facts": [2], "kind": "one"}
STORY = Story(TOLD, "Where is Ann?", "out", (2,), "one")


def read(path: Path, text: str, columns: StoryColumns | None = None, *, needs_answer: bool = True) -> list[Story]:
    path.write_text(text, encoding="utf-8")
    return list(read_stories([path], columns or StoryColumns(), needs_answer=needs_answer))


def test_every_format_tells_the_same_story(tmp_path: Path) -> None:
    text = " ".join(TOLD)
    table = "story\tquestion\tanswer\tfacts\tkind\n" + f"{text}\tWhere is Ann?\tout\t2\tone\n"
    assert read(tmp_path / "a.jsonl", json.dumps(ROW)) == [STORY]
    assert read(tmp_path / "b.jsonl", json.dumps({**ROW, "story": text})) == [STORY]
    assert read(tmp_path / "c.tsv", table) == [STORY]
    assert read(tmp_path / "d.csv", table.replace("\t", ",")) == [STORY]
    named = StoryColumns(story="context", answer="target", facts=None, kind=None)
    other = {"context": list(TOLD), "question": "Where is Ann?", "target": "out", "facts": "no numbers"}
    assert read(tmp_path / "e.jsonl", json.dumps(other), named) == [Story(TOLD, "Where is Ann?", "out")]
    assert parse_story(f"{text} Where is Ann?") == STORY._replace(answer="", facts=(), kind="")


def test_answers_may_be_missing_where_they_are_asked_for(tmp_path: Path) -> None:
    text = json.dumps({name: ROW[name] for name in ("story", "question")})
    assert read(tmp_path / "a.jsonl", text, needs_answer=False) == [Story(TOLD, "Where is Ann?")]
    with pytest.raises(UserError, match=r"a\.jsonl:1: there is no key 'answer'"):
        read(tmp_path / "a.jsonl", text)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"answer": " "}, "2: the answer is empty"),
        ({"question": ""}, "2: the question is empty"),
        ({"story": []}, "2: the story is empty"),
        ({"story": ["a", 3]}, "2: 'story' is .*a list must hold sentences, or their numbers"),
        ({"facts": [3]}, "2: the fact '3' given; a fact must be the number of a sentence, 0 to 2"),
        ({"facts": "first"}, "2: the fact 'first' given"),
        ({"question": {"text": "Where?"}}, "2: 'question' is .*it must be a string"),
    ],
)
def test_mistakes_name_the_line(changed: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        read(tmp_path / "a.jsonl", f"{json.dumps(ROW)}\n{json.dumps({**ROW, **changed})}\n")


def test_files_of_no_stories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="it is empty; there must be at least one story"):
        read(tmp_path / "a.jsonl", "\n")
    with pytest.raises(UserError, match=r"stories are read from \.jsonl, \.tsv or \.csv"):
        read(tmp_path / "a.txt", "Ann slept.")


def encode(stories: list[Story], **limits: int) -> EncodedStories:
    words = [text for story in stories for text in (*story.sentences, story.question)]
    tokenizer = train_tokenizer("words", [Spelling(split_punctuation=True)(text) for text in words], 100)
    sizes = {"max_sentences": 7, "max_length": 11, **limits}
    return EncodedStories(stories, tokenizer, Spelling(split_punctuation=True), ["out", "in"], **sizes)


def test_a_batch_holds_each_sentence_once_and_the_last_of_a_story_first() -> None:
    other = Story((TOLD[1], TOLD[0]), "Where is Ann?", "nowhere")
    encoded = encode([STORY, other])
    batch = encoded.batch([0, 1])
    assert batch.ids_UW.shape == (4, 5)  # three sentences and a question, in all
    assert batch.length_B.tolist() == [3, 2]
    assert batch.answer_B.tolist() == [0, NO_ANSWER]
    rows = batch.ids_UW[batch.sentence_BS]
    assert rows[0, 0].equal(batch.ids_UW[batch.sentence_BS[0, 0]])
    assert rows[0, 1].equal(rows[1, 1])  # Bob slept: before the last in the one, the first of two in the other
    assert rows[0, 2].equal(rows[1, 0])
    assert batch.question_B[0] == batch.question_B[1]
    assert encoded.num_cut == 0


def test_what_is_cut_is_counted() -> None:
    assert encode([STORY], max_sentences=2).num_cut == 1
    assert encode([STORY], max_sentences=2).batch([0]).length_B.tolist() == [2]
    assert encode([STORY, STORY], max_length=3).num_cut == 2
    assert encode([STORY], max_length=3).batch([0]).ids_UW.shape[1] == 3
    assert encode([STORY], max_sentences=3, max_length=5).num_cut == 0
