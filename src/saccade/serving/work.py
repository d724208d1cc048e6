"""What a model's thread does with the items of a batch: one function for each thing that may be asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from saccade.errors import UserError
from saccade.inspection.insight import Insight, Map
from saccade.inspection.views.view import with_views
from saccade.serving.http.answers import encoded
from saccade.serving.settings import MOST_FLOW, MOST_NUMBERS
from saccade.serving.v1.word_links import AlignedWords, aligned_words
from saccade.tasks.base import Predictor

Chosen = tuple[int, ...] | None


def answer(predictor: Predictor, inputs: list[Any], **options: Any) -> list[list[dict[str, Any]]]:
    """Answer each input with its best results, as programs read them."""
    return [[one.plain() for one in best] for best in predictor.predict_best(inputs, **options)]


def translate(translator: Predictor, texts: list[str], **decoding: Any) -> Sequence[Any]:
    """Return the best outputs for each text."""
    return translator.predict_best(texts, **decoding)


def align(translator: Predictor, texts: list[str], **decoding: Any) -> list[Insight]:
    """For each text its best outputs, and what the first of them read."""
    return translator.look(texts, **decoding)


def read(translator: Predictor, pairs: list[tuple[str, str]]) -> list[AlignedWords]:
    """For each text and its translation, which words stand for which."""
    sources, outputs = zip(*pairs, strict=True)
    return [aligned_words(found) for found in translator.look(sources, targets=outputs)]


def look(
    predictor: Predictor, inputs: list[Any], *, layers: Chosen = None, heads: Chosen = None, **options: Any
) -> list[bytes]:
    """What the model saw, as JSON: it may be long, and is written here so that nobody else waits for it."""
    if "targets" in options:
        options["targets"] = [options["targets"]] * len(inputs)
    return [encoded(_chosen(found, layers, heads)) for found in _looked(predictor, inputs, **options)]


def _looked(predictor: Predictor, inputs: list[Any], *, views: tuple[str, ...] = (), **options: Any) -> list[Insight]:
    """Views go through all layers, so every kind is recorded for them; shown are those that were asked for."""
    if not views:
        return predictor.look(inputs, **options)
    asked, all_kinds = options.pop("kinds", None), predictor.traits.kinds
    first = all_kinds[0]
    seen = predictor.look(inputs, kinds=all_kinds, **options)
    for one in seen if "flow" in views else ():
        _check_flow(one)
    seen = [with_views(one, views, first) for one in seen]
    kinds = asked or (first,)
    return [replace(one, maps={kind: one.maps[kind] for kind in one.maps if kind in kinds}) for one in seen]


def _check_flow(seen: Insight) -> None:
    """Flow is found for each pair of pieces: everybody else would wait for a long text."""
    size = max((found.weight_LHTS[0, 0].numel() for found in seen.maps.values()), default=0)
    if size > MOST_FLOW:
        raise UserError(f"views: flow of {size:,} pairs of pieces asked for; allowed: {MOST_FLOW:,}")


def _chosen(found: Insight, layers: Chosen, heads: Chosen) -> dict[str, Any]:
    """The JSON of an insight, with these layers and heads only."""
    maps = {kind: _part(kind, seen, layers, heads) for kind, seen in found.maps.items()}
    numbers = sum(
        each.numel() for seen in maps.values() for each in (seen.weight_LHTS, seen.norm_LHTS) if each is not None
    )
    if numbers > MOST_NUMBERS:
        raise UserError(f"weights: {numbers:,} numbers asked for; allowed: {MOST_NUMBERS:,} (choose layers or heads)")
    shown = replace(found, maps=maps).plain()
    for kind in shown["attention"].values():
        kind |= {name: list(given) for name, given in (("layers", layers), ("heads", heads)) if given is not None}
    return shown


def _part(kind: str, seen: Map, layers: Chosen, heads: Chosen) -> Map:
    for axis, (name, given) in enumerate((("layers", layers), ("heads", heads))):
        if given is None:
            continue
        count = seen.weight_LHTS.shape[axis]
        if wrong := [index for index in given if not 0 <= index < count]:
            raise UserError(f"{name}: {wrong[0]} given; allowed for {kind}: 0 to {count - 1}")
        seen = seen._replace(
            weight_LHTS=seen.weight_LHTS.transpose(0, axis)[list(given)].transpose(0, axis),
            norm_LHTS=None
            if seen.norm_LHTS is None
            else seen.norm_LHTS.transpose(0, axis)[list(given)].transpose(0, axis),
        )
    return seen
