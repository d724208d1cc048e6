"""The sections of an answer config."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from saccade.config import base
from saccade.config.base import (
    Columns,
    Grow,
    NormalizerName,
    OldShare,
    OrAuto,
    Place,
    Positive,
    RunSection,
    ScoreName,
    Section,
    Share,
)
from saccade.config.fields import FileFields, check_location
from saccade.data.labels.labelled import Spelling
from saccade.data.stories import StoryColumns


class StoryColumnNames(Columns):
    """The columns of a file: names from its header or JSON keys, or positions from 0 where there is no header."""

    story: Place = Field(default="story", description="The sentences: a text, or in JSONL a list of them.")
    question: Place = "question"
    answer: Place = "answer"
    facts: Place | None = Field(
        default="facts", description="The numbers, from 0, of the sentences that tell the answer, for scores; optional."
    )
    kind: Place | None = Field(default="kind", description="The kind of question, for scores; optional.")


class StoryFiles(FileFields):
    """Files of stories, .jsonl, .tsv or .csv, and what they hold."""

    columns: StoryColumnNames = StoryColumnNames()

    @property
    def places(self) -> StoryColumns:
        """The columns, as reading takes them."""
        return StoryColumns(**self.columns.model_dump())


class AnswerData(StoryFiles):
    """The section that says where stories come from, and how they are read."""

    old_share: OldShare = 0.0
    old: OrAuto[StoryFiles] = Field(
        default="auto", description="Where old questions come from. auto: what the run of from has learned from."
    )
    lowercase: bool = True
    split_punctuation: bool = Field(default=True, description="Every sign outside a word is a word.")
    max_sentences: Positive = Field(
        default=50, description="Of a longer story only the last so many sentences are read, and it is counted."
    )
    max_length: Positive = Field(default=64, description="A longer sentence is cut to so many words, and counted.")

    @property
    def spelling(self) -> Spelling:
        """Return the changes to texts before they are numbered."""
        return Spelling(self.lowercase, self.split_punctuation)


class AnswerVocabulary(Section):
    """The section that says how texts become ids."""

    vocabulary_size: Annotated[int, Field(gt=4, lt=2**31)] = Field(
        default=20_000, description="How many words there are, at most; others are <unk>."
    )
    grow: Grow = 0


class AnswerModel(Section):
    """The memory network, and how often it reads the story."""

    width: Positive = Field(default=64, multiple_of=2, description="Of the vectors of words, sentences and the state.")
    num_hops: Annotated[int, Field(ge=1, le=32)] = Field(default=3, description="How often it reads the story.")
    story: Literal["bag", "recurrent"] = Field(
        default="recurrent",
        description="bag: each sentence is read by itself. recurrent: a GRU first reads the sentences from both ends, "
        "so that each knows what was told around it.",
    )
    tying: Literal["adjacent", "layerwise"] = Field(
        default="adjacent",
        description="adjacent: what a hop returns is what the next one looks for. layerwise: all hops are alike, as in "
        "an RNN.",
    )
    score: ScoreName = Field(default="dot", description="How a hop asks a sentence.")
    normalizer: NormalizerName = "softmax"
    dropout: Share = Field(default=0.0, description="Of the sentences' vectors.")

    @field_validator("score")
    @classmethod
    def _check(cls, score: str) -> str:
        if score == "mean":
            raise ValueError("mean asks nothing; allowed: every other score")
        return score


class AnswerTraining(base.TrainingSection):
    """The section that says how it learns."""

    batch_size: Positive = Field(default=32, description="Questions in a batch.")
    swap: tuple[tuple[str, ...], ...] = Field(
        default=(),
        description="Groups of words that could stand in each other's place, as names of people: those of a group "
        "change places by chance, in a story, its question and its answer alike, whenever it is read. It makes small "
        "sets go further.",
    )

    @field_validator("swap")
    @classmethod
    def _check(cls, groups: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        words = [word for group in groups for word in group]
        if few := [group for group in groups if len(group) < 2]:
            raise ValueError(f"a group of {len(few[0])} given; allowed: groups of two words or more")
        if twice := [word for word in words if words.count(word) > 1]:
            raise ValueError(f"{twice[0]!r} given twice; allowed: each word once, in one group")
        return groups


class AnswerConfig(RunSection):
    """A whole run, one YAML file."""

    task: Literal["answer"]
    data: AnswerData
    tokenizer: AnswerVocabulary = AnswerVocabulary()
    model: AnswerModel = AnswerModel()
    training: AnswerTraining = AnswerTraining()

    def model_post_init(self, _context: object, /) -> None:
        check_location(self.model.score, "data.max_sentences", self.data.max_sentences)
