"""What the page must show of an insight, worked out again in numpy from the JSON of /v1/look."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Insight = dict[str, Any]
Weights = NDArray[np.float64]


def shown(insight: Insight, kind: str, view: str = "mean", layer: int = -1, head: int = 0) -> Weights:
    """[T, S] by pieces."""
    if view in ("rollout", "flow"):
        return np.array(insight["views"][view]["weights"])
    heads = np.array(insight["attention"][kind]["weights"])[layer]
    if view == "aligning":  # each word by the step that reads it, the next one
        chosen = heads[insight["aligning"]["head"]]
        return np.concatenate([chosen[1:], chosen[-1:]])
    return {"mean": heads.mean(0), "maximum": heads.max(0), "weights": heads[head]}[view]


def by_words(insight: Insight, kind: str, weights: Weights) -> Weights:
    """Keys summed, queries averaged."""
    sides = [insight["sides"][insight["attention"][kind][end]]["word_of_piece"] for end in ("queries", "keys")]
    rows, columns = (np.eye(max(words) + 1)[words] for words in sides)
    return (rows.T @ weights @ columns) / rows.sum(0)[:, None]


def read(insight: Insight, word: int) -> Weights:
    """What an output's word read, by the words of the source: by the head that aligns, or the last layer's mean."""
    view = "aligning" if insight["aligning"] else "mean"
    return by_words(insight, "cross", shown(insight, "cross", view))[word]


def confidence(insight: Insight) -> list[float]:
    """The probability of each word: of all its pieces."""
    words = np.eye(len(insight["sides"]["output"]["words"]))[insight["sides"]["output"]["word_of_piece"]]
    found: list[float] = np.exp(insight["answer"]["log_probabilities"] @ words).tolist()
    return found
