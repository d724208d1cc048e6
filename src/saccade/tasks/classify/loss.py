"""The loss of a classifier, with weights of classes, label smoothing and a penalty on hops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.data.labels.labelled import Text, split_labels
from saccade.data.labels.windows import NO_LABEL, TextBatch
from saccade.errors import UserError
from saccade.models.classifier import ClassifierOutput, TextClassifier
from saccade.training.losses import disagreement


class Objective(NamedTuple):
    """Loss settings: class weights [V], label smoothing, hop penalty (Lin 2017), R-Drop weight (Wu 2021)."""

    weight_V: Tensor | None = None
    smoothing: float = 0.0
    penalty: float = 0.0
    consistency: float = 0.0


PLAIN = Objective()


def classify_loss(network: TextClassifier, batch: TextBatch, objective: Objective = PLAIN) -> tuple[Tensor, Tensor]:
    """Return sum_b w_y (-log p(y)) + penalty * ||A Aᵀ - I||², smoothed; and the plain sum_b -log p(y), for the log.

    With `consistency`, every text is read twice under other dropout, and so much of the two answers' disagreement is
    added to the mean of their losses (Wu 2021, equation 2).
    """
    passes = [network(batch) for _ in range(2 if objective.consistency else 1)]
    losses = [_loss(judged, batch.label_B, objective) for judged in passes]
    likelihoods = [negative_log_likelihood(judged.logits_BV, batch.label_B) for judged in passes]
    loss = torch.stack(losses).mean()
    if objective.consistency:
        logits_2BV = torch.stack([judged.logits_BV for judged in passes])
        identity_VV = torch.eye(logits_2BV.shape[-1], device=logits_2BV.device)
        loss = loss + objective.consistency / 2 * disagreement(logits_2BV, identity_VV)
    return loss, torch.stack(likelihoods).mean()


def _loss(judged: ClassifierOutput, label_B: Tensor, objective: Objective) -> Tensor:
    weight_V = None if objective.weight_V is None else objective.weight_V.to(label_B.device)
    loss = negative_log_likelihood(judged.logits_BV, label_B, weight_V, objective.smoothing)
    return loss + objective.penalty * judged.penalty_B.sum() if judged.penalty_B is not None else loss


def negative_log_likelihood(
    logits_BV: Tensor, label_B: Tensor, weight_V: Tensor | None = None, smoothing: float = 0.0
) -> Tensor:
    """Sum -log p(y) over texts; of several labels at once [B, V], -log p of having or not having each, summed too."""
    if label_B.dim() == 2:
        target_BV = label_B.to(logits_BV.dtype)
        return F.binary_cross_entropy_with_logits(logits_BV, target_BV, weight_V, reduction="sum")
    return F.cross_entropy(
        logits_BV, label_B, weight_V, reduction="sum", label_smoothing=smoothing, ignore_index=NO_LABEL
    )


def class_weights(
    given: dict[str, float] | str | None, texts: Iterable[Text], labels: Sequence[str], separator: str | None = None
) -> Tensor | None:
    """Return the weight of each label: as given (others 1), or balanced: N / (V n_label), whose mean is 1."""
    if given is None:
        return None
    if isinstance(given, str):
        counts = Counter(label for text in texts for label in split_labels(text.label, separator))
        return torch.tensor([counts.total() / (len(labels) * counts[label]) for label in labels])
    for label in given:
        if label not in labels:
            raise UserError(f"training.class_weights: {label!r} given; allowed: {', '.join(labels)}")
    return torch.tensor([float(given.get(label, 1.0)) for label in labels])
