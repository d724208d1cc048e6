"""Validation of what writes text: by real decoding, and by the loss of the references."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn

from saccade.data.batches import Pad, PairBatch, collate_pairs, pad_sources
from saccade.data.grouping import group_by_length
from saccade.data.sound.recordings import Recordings, pad_frames
from saccade.data.store import EncodePair, Limits, Measure, encode_sides
from saccade.data.text.corpus import Pair
from saccade.data.text.tokenizer import Tokenizer
from saccade.errors import UserError
from saccade.tasks.cuts import CutCounts
from saccade.tasks.texts import read_long_texts
from saccade.tasks.translate.predictor import Translator
from saccade.tasks.translate.scoring.metrics import BESIDE, LOWER_IS_BETTER, measure

TOKENS = 4096
BatchLoss = Callable[[nn.Module, PairBatch], tuple[Tensor, Tensor]]


class Sources(NamedTuple):
    """A reader of held-out pairs: to ids, how long the sources are, and from many of these to a batch."""

    encode: EncodePair
    length: Measure
    pad: Pad

    @classmethod
    def of_text(cls, translator: Translator) -> Sources:
        return cls(translator.encode_pair, len, pad_sources)

    @classmethod
    def of_sound(cls, recordings: Recordings, target: Tokenizer) -> Sources:
        encode = encode_sides(recordings.encode, target.encode)
        return cls(encode, recordings.length, lambda rows: pad_frames([*map(recordings.load, rows)]))


@final
class Validator:
    """Greedy outputs for held-out sources, scored, and the loss of the references."""

    def __init__(
        self, pairs: Sequence[Pair], translator: Translator, sources: Sources, loss: BatchLoss, *, limits: Limits
    ) -> None:
        self.pairs, self.translator = [pair for pair in pairs if pair.source and pair.target], translator
        self.pad, self.loss = sources.pad, loss
        encoded = [sources.encode(pair) for pair in self.pairs]
        cut = [
            [ids[: one.most] if one.is_cut else ids for ids, one in zip(pair, limits, strict=True)] for pair in encoded
        ]
        sized = [((sources.length(source), len(target)), source, target) for source, target in cut]
        most = tuple(limit.most for limit in limits)
        usable = [one for one in sized if one[0][0] <= most[0] and one[0][1] <= most[1]]
        if not usable:
            raise UserError("data.valid: every pair is longer than data.max_length")
        self.num_without_loss = len(sized) - len(usable)
        widths = [(max(lengths) + 1,) for lengths, _, _ in usable]
        batches = group_by_length(widths, max(TOKENS, *max(widths)))
        self.runs = [[usable[row] for row in rows] for rows in batches]

    @read_long_texts()
    @torch.no_grad()
    def measure(self) -> dict[str, float]:
        """Compute scores and the loss; "score" is the chosen one, higher is better."""
        cuts = CutCounts()
        written = self.translator.predict([pair.source for pair in self.pairs], width=1)
        outputs = [found.text for found in cuts.watch(written)]
        references, (metric, tokenize) = [pair.target for pair in self.pairs], self.translator.judgement
        loss = self._loss()
        names = [metric, *BESIDE[metric]]
        scores = measure([name for name in names if name != "loss"], outputs, references, tokenize=tokenize)
        found = {f"valid_{name}": {**scores, "loss": loss}[name] for name in dict.fromkeys([*names, "loss"])}
        score = found[f"valid_{metric}"] * (-1 if metric in LOWER_IS_BETTER else 1)
        return {"score": score, **found, "valid_perplexity": math.exp(min(50.0, loss)), **cuts.figures()}

    def _loss(self) -> float:
        model = self.translator.model
        device = next(model.parameters()).device
        losses = [(float(self.loss(model, batch.to(device))[1]), batch.num_items) for batch in self._batches()]
        return sum(loss for loss, _ in losses) / sum(count for _, count in losses)

    def _batches(self) -> Iterator[PairBatch]:
        for run in self.runs:
            sources, targets = ([np.asarray(one[side], np.int32) for one in run] for side in (1, 2))
            yield collate_pairs(sources, targets, self.pad)
