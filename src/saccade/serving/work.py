"""The calls that a model's thread makes with the items of a batch, one function for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from saccade.decoding import OPTION_NAMES
from saccade.decoding.slices import pause
from saccade.errors import UserError
from saccade.inspection.draw.caption import encode_picture
from saccade.inspection.insight import Insight, Map
from saccade.inspection.views.view import with_views
from saccade.serving.batcher import measure
from saccade.serving.http.responses import encode_json
from saccade.serving.settings import MAX_FLOW_PAIRS, MAX_WEIGHTS
from saccade.serving.v1.word_links import AlignedWords, align_words
from saccade.serving.waiting import SLOW_COST, ModelCall
from saccade.tasks.base import Predictor

Indices = tuple[int, ...] | None
SLICE_SIZE = 50_000  # characters of a source, times those of its output
CHARACTER_PAIRS_A_STEP = 256  # of two texts that are read together
PAIRS_A_STEP = 16  # of pieces, whose weights in all layers and heads take as long to write as a step of a search


def estimate_cost(predictor: Predictor, call: ModelCall, given: Any) -> int:
    """Estimate what answering an item costs: the steps of its search, or its size where there is no search."""
    options = dict(call.options)
    if "flow" in options.get("views", ()):
        return SLOW_COST
    if isinstance(given, tuple):
        return measure(given) + math.prod(map(len, given)) // CHARACTER_PAIRS_A_STEP
    texts = (given, options.get("targets", "")) if call.call is look and isinstance(given, str) else ()
    num_pairs = max(map(predictor.num_pieces, texts), default=0) ** 2
    only_reads = "targets" in options
    decoding = {name: options[name] for name in OPTION_NAMES if name in options}
    steps = None if only_reads else predictor.num_steps(given, **decoding)
    return (measure(given) if steps is None else steps) + num_pairs // PAIRS_A_STEP


def answer(predictor: Predictor, inputs: list[Any], **options: Any) -> list[list[dict[str, Any]]]:
    """Answer each input with its best results, as programs read them."""
    return [[one.plain() for one in best] for best in predictor.predict_best(inputs, **options)]


def follow(
    predictor: Predictor, inputs: list[Any], *, tell: Callable[[str], None], **options: Any
) -> list[dict[str, Any]]:
    """Answer one input, and tell the parts of its answer as soon as they are written."""
    (given,) = inputs
    return [predictor.follow(given, tell, **options).plain()]


def translate(translator: Predictor, texts: list[str], **decoding: Any) -> Sequence[Any]:
    """Return the best outputs for each text."""
    return translator.predict_best(texts, **decoding)


def align(translator: Predictor, texts: list[str], **decoding: Any) -> list[Insight]:
    """Return an insight for each text: its best outputs, and what the first of them read."""
    return translator.look(texts, **decoding)


def align_pairs(translator: Predictor, pairs: list[tuple[str, str]]) -> list[AlignedWords]:
    """Align the words of each text with those of its translation."""
    found: list[AlignedWords] = []
    for part in _slices(pairs):
        pause()
        sources, outputs = zip(*part, strict=True)
        found += map(align_words, translator.look(sources, targets=outputs))
    return found


def _slices(pairs: Sequence[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Cut pairs into parts whose weights take about as long as a step of a search."""
    part, size = list[tuple[str, str]](), 0
    for source, output in pairs:
        part.append((source, output))
        size += len(source) * len(output)
        if size >= SLICE_SIZE:
            yield part
            part, size = [], 0
    if part:
        yield part


def look(
    predictor: Predictor, inputs: list[Any], *, layers: Indices = None, heads: Indices = None, **options: Any
) -> list[bytes]:
    """Return insights as JSON, encoded here because a long one would block the event loop."""
    if "targets" in options:
        options["targets"] = [options["targets"]] * len(inputs)
    size = predictor.traits.picture
    is_clip = size is not None and size.frames is not None
    seen = [(found, _select(found, layers, heads)) for found in _look(predictor, inputs, **options)]
    strips = [
        {"picture": encode_picture(one.picture)} if is_clip and one.picture is not None else {} for one, _ in seen
    ]
    return [b"".join(_encode(shown | strip)) for (_, shown), strip in zip(seen, strips, strict=True)]


def _encode(content: Any) -> Iterator[bytes]:
    """Encode JSON in parts, none larger than a row: a part holds Python's lock, and the event loop waits for it.

    Lists of rows are emptied meanwhile, since freeing a million numbers at once holds the lock, too.
    """
    if isinstance(content, dict) and content:
        for number, (name, value) in enumerate(content.items()):
            yield b"%b%b:" % (b"," if number else b"{", encode_json(name))
            yield from _encode(value)
        yield b"}"
    elif isinstance(content, list) and content and isinstance(content[0], list):
        pause()
        content.reverse()
        opening = b"["
        while content:
            yield opening
            yield from _encode(content.pop())
            opening = b","
        yield b"]"
    else:
        yield encode_json(content)


def _look(predictor: Predictor, inputs: list[Any], *, views: tuple[str, ...] = (), **options: Any) -> list[Insight]:
    """Look at the inputs. Views need every kind of attention, so all are recorded, and the chosen ones are kept."""
    if not views:
        return predictor.look(inputs, **options)
    chosen, all_kinds = options.pop("kinds", None), predictor.traits.kinds
    first = all_kinds[0]
    seen = predictor.look(inputs, kinds=all_kinds, **options)
    for one in seen if "flow" in views else ():
        _check_flow(one)
    seen = [with_views(one, views, first) for one in seen]
    kinds = chosen or (first,)
    return [replace(one, maps={kind: one.maps[kind] for kind in one.maps if kind in kinds}) for one in seen]


def _check_flow(seen: Insight) -> None:
    """Refuse flow for long texts: its cost grows with the pairs of pieces, and other requests would wait."""
    size = max((found.weight_LHTS[0, 0].numel() for found in seen.maps.values()), default=0)
    if size > MAX_FLOW_PAIRS:
        raise UserError(f"views: flow of {size:,} pairs of pieces requested; allowed: {MAX_FLOW_PAIRS:,}")


def _select(found: Insight, layers: Indices, heads: Indices) -> dict[str, Any]:
    """Return the JSON of an insight, with these layers and heads only."""
    maps = {kind: _part(kind, seen, layers, heads) for kind, seen in found.maps.items()}
    numbers = sum(
        each.numel() for seen in maps.values() for each in (seen.weight_LHTS, seen.norm_LHTS) if each is not None
    )
    if numbers > MAX_WEIGHTS:
        raise UserError(f"weights: {numbers:,} numbers requested; allowed: {MAX_WEIGHTS:,} (choose layers or heads)")
    shown = replace(found, maps=maps).plain()
    for kind in shown["attention"].values():
        kind |= {name: list(given) for name, given in (("layers", layers), ("heads", heads)) if given is not None}
    return shown


def _part(kind: str, seen: Map, layers: Indices, heads: Indices) -> Map:
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


FOR_WORKERS = (answer, translate, align, align_pairs, look)  # whose items and answers another process can be told
