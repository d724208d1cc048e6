"""HTML through a translator: sentences go across inline tags, and these come back around the words that read theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from saccade.serving import work
from saccade.serving.batcher import ModelCall
from saccade.serving.html.carry_tags import carried
from saccade.serving.html.inline import Inline, write
from saccade.serving.html.tree import Element, is_structure, parse, texts, written
from saccade.serving.models import ServedModel
from saccade.serving.service import Service
from saccade.serving.translating import Translated, text_of
from saccade.serving.translating import translated as translated_texts
from saccade.serving.v1.word_links import AlignedWords

Part = str | Inline  # of a document: HTML that stays, and texts with inline tags
Aligned = dict[tuple[str, str], AlignedWords]


def plain(source: str) -> str:
    """The text of HTML, without its tags."""
    return " ".join(texts(parse(source)))


async def translated(
    service: Service, model: ServedModel, sources: Sequence[str], count: int, **decoding: Any
) -> list[list[str]]:
    """For each document its translation and its alternatives, all distinct."""
    documents = await asyncio.to_thread(lambda: [list(parts(parse(source))) for source in sources])
    inlines = [part for document in documents for part in document if isinstance(part, Inline)]
    found = await translated_texts(service, model, [inline.text for inline in inlines], **decoding)
    of_inline = dict(zip(map(id, inlines), found, strict=True))
    aligned = await _aligned(service, model, [(inline, of_inline[id(inline)]) for inline in inlines])
    return await asyncio.to_thread(lambda: [_outputs(document, of_inline, aligned, count) for document in documents])


def parts(element: Element) -> Iterator[Part]:
    """A tree as what stays and what is translated, in order."""
    yield element.start
    inline = Inline()
    for child in element.children:
        if not is_structure(child):
            inline.add(child)
            continue
        yield inline
        inline = Inline()
        if isinstance(child, Element):
            yield from parts(child)
        else:
            yield written(child)
    yield inline
    yield element.end


async def _aligned(service: Service, model: ServedModel, rows: Sequence[tuple[Inline, Translated]]) -> Aligned:
    """What each sentence's outputs read, where there are tags to be put around words."""
    pairs = [
        (sentence.text, output.text)
        for inline, text in rows
        if not inline.is_uniform
        for sentence, best in zip(text.sentences, text.found, strict=True)
        for output in best or ()
    ]
    distinct = list(dict.fromkeys(pairs))
    return dict(zip(distinct, await service.ask(model, ModelCall(work.read), distinct), strict=True))


def _outputs(document: list[Part], found: dict[int, Translated], aligned: Aligned, count: int) -> list[str]:
    return list(dict.fromkeys(_written(document, found, aligned, rank) for rank in range(count)))


def _written(document: list[Part], found: dict[int, Translated], aligned: Aligned, rank: int) -> str:
    return "".join(
        part if isinstance(part, str) else _inline(part, found[id(part)], aligned, rank) for part in document
    )


def _inline(inline: Inline, text: Translated, aligned: Aligned, rank: int) -> str:
    if inline.is_uniform:
        return inline.around(text_of(text, rank))
    place, items = 0, []
    for sentence, best in zip(text.sentences, text.found, strict=True):
        start = place + len(sentence.before)
        place = start + len(sentence.text) + len(sentence.after)
        output = None if best is None else best[min(rank, len(best) - 1)].text
        words = None if output is None else aligned[sentence.text, output]
        items += carried(inline, start, sentence, output, words)
    return inline.before + write(items) + inline.after
