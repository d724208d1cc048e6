"""A translator's weights on a text: while it wrote its output, or while it reads a given one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from saccade.data.sound.recordings import Sounds
from saccade.data.text.tokenizer import END, SPECIAL, START
from saccade.decoding import BeamOptions, Hypothesis, SamplingOptions, StartedStepper, Stepper, search
from saccade.decoding.slices import tick_of
from saccade.errors import UserError
from saccade.inspection.insight import Insight, Map, TextSide
from saccade.inspection.record import KINDS, recording
from saccade.models.pointing.copying import CopyingModel
from saccade.tasks.texts import batch_by_length
from saccade.tasks.translate.copying.copied import describe_copies
from saccade.tasks.translate.result import TranslationResult

if TYPE_CHECKING:
    from saccade.tasks.translate.predictor import SourceText, Translator

MOST_TOKENS = 1024  # of a text: weights are as many as their square, for every layer and head
SIDES = {
    "cross": ("output", "source"),
    "copy": ("output", "source"),
    "encoder": ("source", "source"),
    "decoder": ("output", "read"),
}
READING = ("cross", "copy")


def kinds(copies: bool) -> tuple[str, ...]:
    """Return the kinds of attention that a model may have."""
    return tuple(kind for kind in SIDES if copies or kind != "copy")


def look_at(
    translator: Translator,
    texts: Sequence[SourceText],
    options: BeamOptions | SamplingOptions,
    *,
    kinds: Collection[str],
    norms: bool,
    is_given: bool,
) -> list[Insight]:
    """Look at each text while its output is written; `is_given`: while the text's prefix is read as its output."""
    for number, text in enumerate(texts, 1):
        if len(text.ids) > MOST_TOKENS and not isinstance(translator.source, Sounds):
            raise UserError(f"line {number:,} has {len(text.ids):,} tokens; at most {MOST_TOKENS:,} can be looked at")
    found = [Insight(translator.traits.task, TranslationResult("", 0.0, [], []), {}, {}) for _ in texts]
    for rows in batch_by_length([len(text.ids) for text in texts], translator.batch_tokens):
        batch = [texts[row] for row in rows]
        best = _score_prefixes(translator, batch) if is_given else None
        for row, one in zip(rows, _look_at_batch(translator, batch, options, best, kinds, norms), strict=True):
            found[row] = one
    return found


@torch.no_grad()
def _score_prefixes(translator: Translator, texts: list[SourceText]) -> list[list[Hypothesis]]:
    """Return the prefixes as whole outputs, with the log-probability of each of their pieces."""
    model, ids = cast(Any, translator.model), [text.prefix_ids for text in texts]
    read_BT = translator.decoder_ids(ids)
    vectors_BTD, _ = model.advance(model.start(*translator.pad(texts)), read_BT)
    step_BTV = model.logits(vectors_BTD).float().log_softmax(-1)
    next_BT = torch.cat([read_BT[:, 1:], read_BT.new_full((len(read_BT), 1), END)], 1)
    found = []
    for step_TV, next_T, row in zip(step_BTV, next_BT, ids, strict=True):
        next_T[len(row)] = END
        steps = step_TV.gather(1, next_T[:, None])[: len(row) + 1, 0].tolist()
        found.append([translator.options.hypothesis(row, steps)])
    return found


@torch.no_grad()
def _look_at_batch(
    translator: Translator,
    texts: list[SourceText],
    options: BeamOptions | SamplingOptions,
    found: list[list[Hypothesis]] | None,
    kinds: Collection[str],
    norms: bool,
) -> Iterator[Insight]:
    """Read the source once, with its weights kept; search outputs; read the best ones again for theirs."""
    network, (source, length_B) = translator.model, translator.pad(texts)
    model = cast(Stepper, network)
    with recording(network, kinds=[kind for kind in kinds if kind == "encoder"], norms=norms) as reading:
        state = model.start(source, length_B)
    if found is None and translator.searcher is not None:
        found = translator.search(texts, options)
    elif found is None:
        prefixes, tick = [text.prefix_ids for text in texts], tick_of([text.number for text in texts])
        found = search(StartedStepper(model, state), source, length_B, options, prefixes, tick)
    with recording(network, kinds=[kind for kind in kinds if kind != "encoder"], norms=norms) as writing:
        read_BT = translator.decoder_ids([best[0].ids for best in found])
        pointed = network.point(state, read_BT)[0] if isinstance(network, CopyingModel) else None
        if pointed is None:
            model.advance(state, read_BT)
    both = {kind: record for kind in KINDS for record in (reading, writing) if kind in record.kinds}
    weights = {kind: record.weights(kind).float().cpu() for kind, record in both.items()}
    lengths = {kind: record.norms(kind).float().cpu() for kind, record in both.items()} if norms else {}
    for row, (text, best) in enumerate(zip(texts, found, strict=True)):
        first, *others = (translator.to_result(text, one) for one in best)
        sides = _sides(translator, text, first)
        maps = {kind: _map(kind, row, sides, weights[kind], lengths.get(kind)) for kind in weights}
        if isinstance(translator.source, Sounds):  # its steps are drawn over it, as the cells of a picture in one row
            steps = (1, len(sides["source"].pieces))
            maps = {kind: one._replace(shape=steps if one.keys == "source" else None) for kind, one in maps.items()}
        notes = list[str]()
        if pointed is not None:
            first = translator.with_copies(first, best[0], pointed, row, source[row])
            notes = describe_copies(first.copied, sides["output"], sides["source"])
        yield Insight(translator.traits.task, first, sides, maps, translator.aligning, others, notes=notes)


def _sides(translator: Translator, text: SourceText, result: TranslationResult) -> dict[str, TextSide]:
    source, output = translator.source, translator.output_side(result)
    read = TextSide.of("", [SPECIAL[START], *output.pieces[:-1]], translator.target.begins_word)
    if isinstance(source, Sounds):
        return {"source": TextSide.of("", source.pieces(text.ids)), "output": output, "read": read}
    own = translator.source_side(text, has_end=True)._replace(text=text.text)
    return {"source": own, "output": output, "read": read}


def _map(kind: str, row: int, sides: dict[str, TextSide], weight_LBHTS: Tensor, norm_LBHTS: Tensor | None) -> Map:
    """Return the weights of one text, without padding."""
    queries, keys = SIDES[kind]
    steps = (slice(None), row, slice(None), slice(len(sides[queries].pieces)), slice(len(sides[keys].pieces)))
    return Map(queries, keys, weight_LBHTS[steps], None if norm_LBHTS is None else norm_LBHTS[steps])
