"""What a server says of each of its models; found by letting it answer once, which also warms it up."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from saccade.serving.libretranslate.languages import name_of
from saccade.serving.models import ServedRun
from saccade.serving.work import KINDS


class Description(NamedTuple):
    """A model in words: its task and languages, its labels, and the attention that it has."""

    run: ServedRun
    layers: dict[str, int]
    heads: dict[str, int]
    picture: dict[str, int] | None

    def plain(self) -> dict[str, Any]:
        """For /v1/models."""
        run, predictor = self.run, self.run.predictor
        labels = {"classify": "labels", "glimpse": "names"}.get(run.task)
        pair = None if run.pair is None else {side: _language(code) for side, code in run.pair._asdict().items()}
        return {
            "name": run.name,
            "task": run.task,
            "languages": pair,
            "labels": list(getattr(predictor, labels)) if labels else None,
            "beam": predictor.options.width if run.task in ("translate", "caption") else None,
            "kinds": list(self.layers),
            "layers": self.layers,
            "heads": self.heads,
            "picture": self.picture,
            "examples": list(run.examples),
        }


def describe(run: ServedRun) -> Description:
    """One answer, and what it shows of the model."""
    picture = _picture(run)
    size = picture and (picture["channels"], picture["rows"], picture["columns"])
    given: Any = np.zeros(size, np.uint8) if size else "a"
    kinds = {"kinds": KINDS[run.task]} if run.task in KINDS else {}
    (found,) = run.predictor.look([given], **kinds)
    shapes = {kind: seen.weight_LHTS.shape for kind, seen in found.maps.items()}
    layers, heads = ({kind: shape[axis] for kind, shape in shapes.items()} for axis in (0, 1))
    return Description(run, layers, heads, picture)


def _picture(run: ServedRun) -> dict[str, int] | None:
    if run.task == "caption":
        return {"channels": 3, "rows": run.predictor.reader.side, "columns": run.predictor.reader.side}
    if run.task == "glimpse":
        rows, columns = run.predictor.shape
        patch = run.predictor.network.sensor.size
        return {"channels": run.predictor.channels, "rows": rows, "columns": columns, "patch": patch}
    return None


def _language(code: str) -> dict[str, str]:
    return {"code": code, "name": name_of(code)}
