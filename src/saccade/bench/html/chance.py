"""A model that writes words by chance, some of them markup, and reads words by chance: no model may break HTML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any, final

import torch

from saccade.inspection.insight import Insight, Map, TextSide
from saccade.tasks import TASKS
from saccade.tasks.base import Predictor, Traits
from saccade.tasks.translate.result import TranslationResult

TASK = next(name for name, task in TASKS.items() if task.route.languages is not None)
WORDS = str.split("x y. le chat, <z> a&b &lt; <img src=x onerror=alert(1)> --> </script> ]]> <!-- \" ' </p> é")
END = "</s>"


@final
class ChanceTranslator(Predictor):
    """Translates each text into up to five words that depend on the text alone."""

    traits = Traits(TASK, texts="sentences", beam=1)

    def stream(self, inputs: Iterable[str], /) -> Iterator[TranslationResult]:
        return (_answer(text) for text in inputs)

    def predict_best(self, inputs: Iterable[str], /, **decoding: Any) -> Sequence[Sequence[TranslationResult]]:
        """Return the same output as often as it is asked for."""
        return [[_answer(text)] * decoding.get("num_best", 1) for text in inputs]

    def look(self, inputs: Iterable[str], /, *, targets: Sequence[str] = (), **options: Any) -> list[Insight]:
        del options
        texts = list(inputs)
        outputs = targets or [_answer(text).text for text in texts]
        return [_read(text, output) for text, output in zip(texts, outputs, strict=True)]


def _answer(text: str) -> TranslationResult:
    chance = Random(text)
    words = chance.choices(WORDS, k=chance.choice([0, 1, 2, 3, 5]))
    return TranslationResult(" ".join(words), 0.0, words, [0.0] * len(words))


def _read(text: str, target: str) -> Insight:
    sides = {name: TextSide.of(one, [*one.split(), END]) for name, one in (("source", text), ("output", target))}
    generator = torch.Generator().manual_seed(Random(text).randrange(2**31))
    size = (1, 1, len(sides["output"].words), len(sides["source"].words))
    cross = Map("output", "source", torch.rand(size, generator=generator))
    return Insight(TASK, _answer(text), sides, {"cross": cross})
