"""`saccade bench look`: compares prediction with and without recording every layer and head."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, final

import torch
from rich.table import Table

from saccade.bench.measure import medians_side_by_side
from saccade.data.text.tokenizer import SPECIAL, Vocabulary
from saccade.decoding import BeamOptions
from saccade.inspection.record import KINDS
from saccade.lab.phrasebook import grammar
from saccade.tasks.translate.networks import Size, TransformerModel, transformer
from saccade.tasks.translate.predictor import Translator

VOCABULARY = 8000
BEAMS = (1, 5)


@final
@dataclass(frozen=True)
class LookRow:
    """Seconds for all sentences with one beam width, without and with the weights of every head."""

    beam: int
    plain_seconds: float
    recorded_seconds: float

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}

    @property
    def ratio(self) -> float:
        """The time with recording divided by the time without."""
        return self.recorded_seconds / self.plain_seconds


def run(*, device: torch.device, size: Size = "base", sentences: int = 100) -> list[LookRow]:
    """Time prediction with and without recording; the model is untrained and writes as many words as it reads."""
    (pairs,) = grammar.split(sentences, seed=1)
    texts, translator = [pair.source for pair in pairs], _build_untrained(size, device)
    rows = []
    for beam in BEAMS:
        seconds = medians_side_by_side(
            {
                "plain": lambda beam=beam: translator.predict(texts, width=beam),  # type: ignore[misc]
                "recorded": lambda beam=beam: translator.look(texts, kinds=KINDS, width=beam),  # type: ignore[misc]
            },
            device,
        )
        rows.append(LookRow(beam, seconds["plain"], seconds["recorded"]))
    return rows


def _build_untrained(size: Size, device: torch.device) -> Translator:
    torch.manual_seed(1)
    (pairs,) = grammar.split(20_000, seed=2)
    words = sorted({word for pair in pairs for text in pair for word in text.split()})
    tokenizer = Vocabulary([*SPECIAL, *words, *map(str, range(VOCABULARY))][:VOCABULARY], "words")
    common = {"source": VOCABULARY, "target_vocabulary": VOCABULARY, "share_embeddings": True, "share_output": True}
    model = transformer(TransformerModel(kind="transformer", size=size), common, 1024).to(device).eval()
    options = BeamOptions(max_length_factor=1.0, max_length=20, max_rounds=0)
    return Translator(model, tokenizer, tokenizer, options)


def table(rows: list[LookRow]) -> Table:
    """Build a table of the seconds and their ratios."""
    found = Table(header_style="bold", box=None, pad_edge=False)
    for heading in ("beam", "predict", "look, all heads", "ratio"):
        found.add_column(heading, justify="right")
    for row in rows:
        found.add_row(str(row.beam), f"{row.plain_seconds:.2f} s", f"{row.recorded_seconds:.2f} s", f"{row.ratio:.2f}")
    return found
