"""Scores of captions: BLEU and exact matches, and the attention that lies where and when it should."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import sacrebleu
import torch
from numpy.typing import NDArray

from saccade.data.pictures import shapes
from saccade.data.pictures.captions import CaptionRows, CaptionSet
from saccade.data.text.tokenizer import Tokenizer
from saccade.errors import UserError
from saccade.inspection.record import cross_weights
from saccade.models.captioner import Captioner


def score(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Compute corpus BLEU-1 to 4 of words split at spaces, with any number of references; and how many are one of them.

    As sacreBLEU counts with tokenize none and no smoothing: BP exp(1/n sum_k log p_k), the nearest reference's length.
    """
    if len(outputs) != len(references):
        raise UserError(f"references: {len(references):,} given for {len(outputs):,} outputs; there must be as many")
    streams = [list(stream) for stream in itertools.zip_longest(*references)]  # None where there are fewer
    bleu = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True).corpus_score(outputs, streams)
    kept = bleu.bp * np.exp(np.cumsum(np.log(np.maximum(bleu.precisions, 1e-300))) / np.arange(1, 5))
    found = {f"bleu{order}": float(percent) for order, percent in enumerate(kept, 1)}
    exact = sum(output in those for output, those in zip(outputs, references, strict=True))
    return {**found, "exact": 100 * exact / max(1, len(outputs))}


@torch.no_grad()
def noun_attention(model: Captioner, tokenizer: Tokenizer, told: CaptionSet, batch_size: int = 128) -> NDArray[Any]:
    """Return the share of each noun's weight in cells that its thing touches, [N, 2]: read with the true sentence."""
    assert told.mask_N2YX is not None
    shape, device = model.encoder.shape, model.baseline.device
    lines, found = CaptionRows(told, tokenizer, places=math.prod(shape)), []
    for rows in np.split(np.arange(len(told)), range(batch_size, len(told), batch_size)):
        batch = lines.load(rows).to(device)
        weight_BTS = cross_weights(model, batch.source, batch.places_B, batch.read_BT)[:, 0, 0].float().cpu().numpy()
        for thing in range(2):
            cell_BS = shapes.touched_cells(told.mask_N2YX[rows, thing], *shape)
            steps = [shapes.noun_steps(told.captions[row][0].split())[thing] for row in rows]
            found.append((weight_BTS[np.arange(len(rows)), steps] * cell_BS).sum(-1))
    return np.concatenate([np.stack(pair, 1) for pair in zip(found[::2], found[1::2], strict=True)])


@torch.no_grad()
def span_attention(model: Captioner, tokenizer: Tokenizer, told: CaptionSet, batch_size: int = 128) -> NDArray[Any]:
    """Return the share of each such word's weight in the frames where it happens: read with the first true sentence."""
    assert told.spans is not None
    cells, device, found = math.prod(model.encoder.shape), model.baseline.device, list[float]()
    first = replace(told, captions=[captions[:1] for captions in told.captions])
    lines = CaptionRows(first, tokenizer, places=cells)
    for rows in np.split(np.arange(len(told)), range(batch_size, len(told), batch_size)):
        batch = lines.load(rows).to(device)
        weight_BTS = cross_weights(model, batch.source, batch.places_B, batch.read_BT)[:, 0, 0].float().cpu().numpy()
        weight_BTF = weight_BTS.reshape(*weight_BTS.shape[:2], -1, cells).sum(-1)
        for weight_TF, row in zip(weight_BTF, rows, strict=True):
            found += [float(weight_TF[span.word, span.first : span.last + 1].sum()) for span in told.spans[row]]
    return np.array(found)


def list_lines(scores: dict[str, float | int]) -> list[str]:
    """Write the scores for people."""
    bleu = "  ".join(f"BLEU-{order} {scores[f'bleu{order}']:.2f}" for order in (1, 2, 3, 4))
    lines = [f"{bleu}  ({scores['num_pictures']:,} pictures)", f"exactly right {scores['exact']:.2f}%"]
    if "noun_attention" in scores:
        lines.append(f"attention of nouns on what they name {scores['noun_attention']:.2f}%")
    if "span_attention" in scores:
        lines.append(f"attention of words in the frames in which they happen {scores['span_attention']:.2f}%")
    return lines
