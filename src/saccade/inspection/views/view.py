"""Views derived from recorded weights: pooled over heads, rolled out through the layers, or by norms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from saccade.errors import UserError
from saccade.inspection.insight import Head, Insight, Map
from saccade.inspection.views import flow
from saccade.inspection.views.rollout import decoder_rollout, rollout

VIEWS = ("weights", "mean", "maximum", "rollout", "flow", "norms")
THROUGH_LAYERS = ("rollout", "flow")
FIRST = ("cross", "copy", "pooling", "encoder", "decoder")  # the kind that is shown if none is chosen


class ViewChoice(NamedTuple):
    """The part of an insight to show: a view of a kind of attention, of one layer and head where it has them.

    Without layer and head, `weights` are those of the head that aligns, where it is known; without a layer the last
    one's, without a head the mean of all. `norms` are the shares of ||a_ts f(x_s)|| (Kobayashi 2020, section 3): what
    each key added; a large weight on a vector of almost no length counts for little.
    """

    name: str = "weights"
    kind: str | None = None
    layer: int | None = None
    head: int | None = None

    def check(self) -> None:
        """Refuse an option that has no effect."""
        if self.name not in VIEWS:
            raise UserError(f"view: {self.name!r} given; allowed: {', '.join(VIEWS)}")
        if self.head is not None and self.name not in ("weights", "norms"):
            raise UserError(f"head: {self.head} given, but {self.name} is of all heads; allowed with: weights, norms")
        if self.layer is not None and self.name in THROUGH_LAYERS:
            raise UserError(f"layer: {self.layer} given, but {self.name} goes through all layers")

    def of(self, insight: Insight) -> Map:
        """Return the map with one layer and one head, [1, 1, T, S]."""
        self.check()
        kind = kind_of(insight, self.kind)
        weight_TS = _through(insight, kind, self.name) if self.name in THROUGH_LAYERS else self._pool(insight, kind)
        return insight.maps[kind]._replace(weight_LHTS=weight_TS[None, None], norm_LHTS=None)

    def _pool(self, insight: Insight, kind: str) -> Tensor:
        found = insight.maps[kind]
        _check_place(self, found.weight_LHTS)
        layer = -1 if self.layer is None else self.layer
        if self.name == "maximum":
            return found.weight_LHTS[layer].amax(0)
        if self.name == "norms":
            if found.norm_LHTS is None:
                raise UserError(
                    "view: norms given, but they were not recorded; a run of ours has them with look(..., norms=True)"
                )
            return Head(layer, self.head).of(to_shares(found.norm_LHTS))
        is_any = self.name == "weights" and self.layer is None and self.head is None
        default = insight.aligning if is_any and kind == "cross" else None
        return (default or Head(layer, self.head)).of(found.weight_LHTS)


def kind_of(insight: Insight, kind: str | None = None) -> str:
    """Return a kind of attention that the insight has; None: the first of FIRST."""
    insight.map(kind)
    return kind or next(name for name in FIRST if name in insight.maps)


def with_views(insight: Insight, names: Sequence[str], kind: str | None = None) -> Insight:
    """Add rollout or flow to an insight; it must have been recorded with every kind of attention."""
    return replace(insight, views={**insight.views, **{name: ViewChoice(name, kind).of(insight) for name in names}})


def to_shares(norm_TS: Tensor) -> Tensor:
    """Divide each row by its sum; a row of zeros stays one."""
    total_T1 = norm_TS.sum(-1, keepdim=True)
    return norm_TS / total_T1.where(total_T1 > 0, 1)


def is_through(insight: Insight, kind: str) -> bool:
    """Tell whether there is attention in all layers from a kind's queries to its keys, as in a Transformer."""
    return kind != "copy" and all(other in insight.maps for other in _kinds_below(insight, kind))


def _kinds_below(insight: Insight, kind: str) -> tuple[str, ...]:
    """Return the kinds that a kind goes through; a text that reads itself needs no other."""
    found = insight.maps.get(kind)
    if found is not None and found.queries == found.keys:
        return (kind,)
    return ("encoder", "decoder", "cross") if kind in ("cross", "decoder") else ("encoder", kind)


def _through(insight: Insight, kind: str, name: str) -> Tensor:
    """Follow the weights through the layers, from a kind's queries at the top to its keys at the bottom."""
    if kind == "copy":
        raise UserError(f"view: {name} given, but what was copied is shown by one layer; allowed: weights, kind: cross")
    if not is_through(insight, kind):
        missing = next(other for other in _kinds_below(insight, kind) if other not in insight.maps)
        raise UserError(f"view: {name} given, but this model's {missing} has no attention; a Transformer's has")
    weights = {other: insight.maps[other].weight_LHTS for other in _kinds_below(insight, kind)}
    return _roll_out(weights, kind) if name == "rollout" else to_shares(_flow(weights, kind))


def _roll_out(weights: dict[str, Tensor], kind: str) -> Tensor:
    if list(weights) == [kind]:
        return rollout(weights[kind])
    source_SS = rollout(weights["encoder"])
    if kind == "pooling":
        return weights["pooling"][-1].mean(0) @ source_SS
    read_TT, source_TS = decoder_rollout(weights["decoder"], weights["cross"], source_SS)
    return source_TS if kind == "cross" else read_TT


def _flow(weights: dict[str, Tensor], kind: str) -> Tensor:
    if list(weights) == [kind]:
        return flow.encoder(weights[kind])
    if kind == "pooling":
        return flow.pooling(weights["pooling"][-1], weights["encoder"])
    return flow.decoder(weights["decoder"], weights["cross"], weights["encoder"], to=kind)


def _check_place(view: ViewChoice, weight_LHTS: Tensor) -> None:
    for name, value, count in zip(("layer", "head"), (view.layer, view.head), weight_LHTS.shape[:2], strict=True):
        if value is not None and not -count <= value < count:
            raise UserError(f"{name}: {value} given; allowed: 0 to {count - 1}, or -1 for the last")
