"""A run's report.html: its curves, its scores, and what it writes and looks at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from saccade.config import build
from saccade.config import load as config_file
from saccade.config.schema import Run
from saccade.data.corpus import Pair
from saccade.inspection import report
from saccade.tasks import translate
from saccade.tasks.translate import Translator

NUM_SAMPLES = 6


class Examined(NamedTuple):
    """A model's outputs for a set, and their scores."""

    name: str
    pairs: list[Pair]
    scores: translate.Scores
    by_length: list[translate.LengthScores]


def examined(config: Run, translator: Translator) -> Examined:
    """The scores of a model on its test set, or on the validation set where there is none."""
    name = "test" if config.data.test else "valid"
    pairs = [pair for pair in build.corpus(config.data.test or config.data.valid).pairs() if all(pair)]
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    outputs = [found.text for found in translator.predict(sources)]
    tokenize = config.training.bleu_tokenize
    scores = translate.evaluate(outputs, references, tokenize=tokenize)
    return Examined(name, pairs, scores, translate.by_length(sources, outputs, references, tokenize=tokenize))


def write(folder: Path) -> Path:
    """Write the report of a trained run, on its best model."""
    config, path = config_file.load(folder / "config.yaml"), folder / "report.html"
    translator = build.load_run(folder)
    found = examined(config, translator)
    has_attention = getattr(config.model, "attention", "") != "none"
    log = rows(folder / "log.jsonl")
    report.write(
        path,
        title=folder.name,
        config=config.model_dump(),
        versions=json.loads((folder / "versions.json").read_text("utf-8")),
        log=log,
        samples=[_sample(translator, pair, has_attention=has_attention) for pair in _spread(found.pairs)],
        scores={found.name: {**found.scores._asdict(), "num_pairs": len(found.pairs)}},
        by_length=[(part.label, part.num_pairs, part.bleu) for part in found.by_length],
        seconds=sum(row.get("seconds") or 0.0 for row in log) or None,
    )
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    """The lines of a log."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def _spread(pairs: list[Pair]) -> list[Pair]:
    """A few pairs of different lengths, from short to long."""
    ranked = sorted(pairs, key=lambda pair: len(pair.source.split()))
    count = min(NUM_SAMPLES, len(ranked))
    return [ranked[(2 * rank + 1) * len(ranked) // (2 * count)] for rank in range(count)]


def _sample(translator: Translator, pair: Pair, *, has_attention: bool) -> report.Sample:
    (found,) = translator.predict([pair.source], attention=has_attention)
    weights = None if found.attention is None else found.attention.tolist()
    return report.Sample(
        pair.source, found.text, pair.target, found.score, found.source_pieces or (), found.pieces, weights
    )
