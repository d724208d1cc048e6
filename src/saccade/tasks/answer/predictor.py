"""Questions to answers: a trained memory network in use, and how well it does."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch

from saccade.data.labels.labelled import Spelling
from saccade.data.stories import EncodedStories, Story, StoryColumns, parse_story, read_stories
from saccade.data.text.tables import has_columns
from saccade.data.text.tokenizer import Tokenizer
from saccade.inspection.insight import Insight, Map, TextSide
from saccade.inspection.record import recording
from saccade.models.memory_network import MemoryNetwork, MemoryOutput
from saccade.tasks.answer.result import AnswerCounts, StoryAnswer, hop_names
from saccade.tasks.base import Evaluation, Predictor, Traits, Watch, pass_on, several
from saccade.tasks.texts import LongTextWarning

WINDOW = 1024  # stories that are read before the first is answered
NUM_TOLD = 5  # answers whose probabilities are told


@final
@dataclass(frozen=True)
class StoryReader(Predictor):
    """A trained model that answers questions about stories, as `saccade.load` returns it.

    Inputs are `Story`s, or texts whose last sentence is the question.
    """

    network: MemoryNetwork
    tokenizer: Tokenizer
    answers: list[str]
    spelling: Spelling
    columns: StoryColumns
    max_sentences: int
    max_length: int
    batch_size: int = 256

    @property
    def traits(self) -> Traits:
        return Traits(
            "answer",
            kinds=("pooling",),
            predict_options=("attention",),
            look_options=("kinds", "norms"),
            evidence={"attention": True},
            answers="label",
            texts="anything",
        )

    def predict(self, inputs: Iterable[str | Story], /, *, attention: bool = False) -> list[StoryAnswer]:
        """Return an answer for each story."""
        return list(self.stream(inputs, attention=attention))

    def stream(self, inputs: Iterable[str | Story], /, *, attention: bool = False) -> Iterator[StoryAnswer]:
        """Answer stories in order; with `attention`, an answer shows what each hop read."""
        stories = (parse_story(given) if isinstance(given, str) else given for given in several(inputs))
        while window := list(itertools.islice(stories, WINDOW)):
            yield from self._answer(window, attention)

    def encode(self, stories: Sequence[Story]) -> EncodedStories:
        sizes = {"max_sentences": self.max_sentences, "max_length": self.max_length}
        return EncodedStories(stories, self.tokenizer, self.spelling, self.answers, **sizes)

    @torch.no_grad()
    def read_all(self, encoded: EncodedStories) -> Iterator[tuple[Sequence[int], MemoryOutput, torch.Tensor]]:
        """Read stories in batches: their numbers, what the network says, and the true answers."""
        device = next(self.network.parameters()).device
        for start in range(0, len(encoded), self.batch_size):
            rows = range(start, min(start + self.batch_size, len(encoded)))
            batch = encoded.batch(rows).to(device)
            yield rows, self.network(batch), batch.answer_B

    def _answer(self, stories: list[Story], shows_hops: bool) -> Iterator[StoryAnswer]:
        encoded = self.encode(stories)
        if encoded.num_cut:
            limits = f"{self.max_sentences} sentences or {self.max_length} words in one"
            said = f"{encoded.num_cut:,} of {len(stories):,} stories have more than {limits}; the rest is not read"
            warnings.warn(f"{said} (data.max_sentences, data.max_length)", LongTextWarning, stacklevel=2)
        for rows, found, _ in self.read_all(encoded):
            probability_BV = found.logits_BV.float().softmax(-1).cpu()
            for index, row in enumerate(rows):
                sentences = stories[row].sentences[-self.max_sentences :]
                weight_TS = found.weight_BTS[index, :, : len(sentences)].float().cpu().flip(-1)
                best = probability_BV[index].topk(min(NUM_TOLD, len(self.answers)))
                shares = dict(
                    zip((self.answers[one] for one in best.indices.tolist()), best.values.tolist(), strict=True)
                )
                answer = next(iter(shares))
                yield StoryAnswer(answer, shares[answer], shares, sentences, weight_TS, shows_hops)

    @torch.no_grad()
    def look(
        self, inputs: Iterable[str | Story], /, *, kinds: Collection[str] = ("pooling",), norms: bool = False
    ) -> list[Insight]:
        """Return what each hop read of each story."""
        stories = [parse_story(given) if isinstance(given, str) else given for given in several(inputs)]
        return [self._look(story, kinds, norms) for story in stories]

    def _look(self, story: Story, kinds: Collection[str], norms: bool) -> Insight:
        (answer,) = self._answer([story], True)
        text = "\n".join((*answer.sentences, story.question))
        names = hop_names(len(self.network.hops))
        sides = {"source": TextSide.of(text, answer.sentences), "hops": TextSide.of("", names)}
        with recording(self.network, kinds=kinds, norms=norms) as record:
            self.network(self.encode([story]).batch([0]).to(next(self.network.parameters()).device))
        count = len(answer.sentences)
        maps = {}
        for kind in record.kinds:  # the hops are recorded as layers, and shown as queries of one
            norm = record.norms(kind)[:, 0, 0, 0, :count].flip(-1).float().cpu()[None, None] if norms else None
            weights = record.weights(kind)[:, 0, 0, 0, :count].flip(-1).float().cpu()[None, None]
            maps[kind] = Map("hops", "source", weights, norm)
        return Insight(self.traits.task, answer, sides, maps, draws_itself=True)

    def read(self, source: Path | None) -> Iterator[Any]:
        """Read the inputs of a file: with columns as in training, its answers not needed; else a text a line."""
        if source is not None and has_columns(source):
            return read_stories([source], self.columns, needs_answer=False)
        return super().read(source)

    def evaluate(self, paths: Sequence[Path], /, *, watch: Watch = pass_on) -> Evaluation:
        """Score files of stories: the share of right answers, by kind of question too, and of facts that hops found."""
        stories = list(read_stories(paths, self.columns))
        counts = AnswerCounts.of(stories, list(watch(self.stream(stories), len(stories))))
        said = f"{len(stories):,} questions: {counts.accuracy:.2f}% answered right"
        unknown = sorted({story.answer for story in stories} - set(self.answers))
        never = (
            [f"Answers that the model never saw, which count as wrong: {', '.join(unknown[:10])}"] if unknown else []
        )
        return Evaluation({"num_questions": len(stories), **counts.scores()}, [said, *counts.lines(), *never])
