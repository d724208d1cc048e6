"""Describe the models of a server. Each answers once for that, which also warms it up."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from saccade.data.text.languages import name_of
from saccade.inspection.insight import Insight
from saccade.inspection.views.view import THROUGH_LAYERS, is_through
from saccade.serving.models import ServedRun
from saccade.tasks import TASKS

SAMPLE_FRAMES = 16  # of the silence that a model hears first


class Description(NamedTuple):
    """A model in words: its task and languages, its labels, and the attention that it has."""

    run: ServedRun
    layers: dict[str, int]
    heads: dict[str, int]
    views: list[str]

    def plain(self) -> dict[str, Any]:
        """Return the JSON of /v1/models."""
        run, traits = self.run, self.run.predictor.traits
        pair = None if run.pair is None else {side: _language(code) for side, code in run.pair._asdict().items()}
        return {
            "name": run.name,
            "task": run.task,
            "title": "Sound to text" if run.hears else TASKS[run.task].route.title,
            "reads": traits.reads,
            "answers": traits.answers,
            "streams": traits.streams,
            "languages": pair,
            "texts": run.texts,
            "labels": None if traits.labels is None else list(traits.labels),
            "columns": None if traits.columns is None else list(traits.columns),
            "beam": traits.beam,
            "kinds": list(self.layers),
            "layers": self.layers,
            "heads": self.heads,
            "views": self.views,
            "norms": "norms" in traits.look_options,
            "picture": None if traits.picture is None else traits.picture.plain(),
            "examples": list(run.examples),
        }


def describe(run: ServedRun) -> Description:
    """Describe a model by one answer."""
    found = _look_once(run)
    shapes = {kind: seen.weight_LHTS.shape for kind, seen in found.maps.items()}
    layers, heads = ({kind: shape[axis] for kind, shape in shapes.items()} for axis in (0, 1))
    return Description(run, layers, heads, _views(run, found))


def _look_once(run: ServedRun) -> Insight:
    traits = run.predictor.traits
    given: Any = traits.sample
    if (size := traits.picture) is not None:
        frames = () if size.frames is None else (1,)
        given = np.zeros((*frames, size.channels, size.rows, size.columns), np.uint8)
    if traits.sound is not None:
        given = np.zeros((SAMPLE_FRAMES, traits.sound.num_mels), np.float16)
    kinds = {"kinds": traits.kinds} if "kinds" in traits.look_options else {}
    (found,) = run.predictor.look([given], **kinds)
    return found


def _views(run: ServedRun, found: Insight) -> list[str]:
    """Return the views through all layers, if each layer has attention."""
    traits = run.predictor.traits
    has_all = bool(traits.kinds) and "kinds" in traits.look_options and set(traits.kinds) <= set(found.maps)
    return list(THROUGH_LAYERS) if has_all and is_through(found, traits.kinds[0]) else []


def _language(code: str) -> dict[str, str]:
    return {"code": code, "name": name_of(code)}
