"""Translate HTML: sentences go across inline tags, and each tag is put around the words that read its words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from saccade.serving import work
from saccade.serving.html.carry_tags import carry_tags
from saccade.serving.html.gather import gather
from saccade.serving.html.guard import is_same_structure
from saccade.serving.html.inline import Inline, write
from saccade.serving.html.tree import Element, HtmlSource, is_structure, parse, read_html, texts, write_node
from saccade.serving.http.turns import beside
from saccade.serving.models import ServedModel
from saccade.serving.service import Service
from saccade.serving.translation import TranslatedText, text_of, translate_texts
from saccade.serving.v1.word_links import AlignedWords
from saccade.serving.waiting import ModelCall

Part = str | Inline  # of a document: HTML that stays, or a text with inline tags
Aligned = dict[tuple[str, str], AlignedWords]


def plain_text(source: str) -> str:
    """Return the text of HTML, without its tags."""
    return " ".join(texts(parse(source)))


async def translate_html(
    service: Service, model: ServedModel, sources: Sequence[str], count: int, **decoding: Any
) -> list[list[str]]:
    """Translate documents: for each its translation and alternatives, all distinct."""
    read = await beside(lambda: [*map(read_html, sources)])
    documents = [list(parts(html.root)) for html in read]
    inlines = [part for document in documents for part in document if isinstance(part, Inline)]
    found = await translate_texts(service, model, [inline.text for inline in inlines], **decoding)
    of_inline = dict(zip(map(id, inlines), found, strict=True))
    aligned = await _align(service, model, [(inline, of_inline[id(inline)]) for inline in inlines])
    outputs = await beside(lambda: [_outputs(document, of_inline, aligned, count) for document in documents])
    is_kept = await beside(lambda: [*map(keeps_structure, read, outputs)])
    for row, html in enumerate(read):
        if not is_kept[row]:
            found = await translate_texts(service, model, html.texts, **decoding)
            ranks = [[text_of(text, rank) for text in found] for rank in range(count)]
            outputs[row] = await beside(write_in_place, html, ranks)
        way = "moved" if is_kept[row] else "kept" if outputs[row] == [html.source] else "in place"
        service.metrics.html.labels(way).inc()
    return outputs


def keeps_structure(html: HtmlSource, outputs: Sequence[str]) -> bool:
    """Return whether browsers find in every output what they find in the source.

    Misnested tags, or text between the rows of a table, are read as another tree than they spell: there the texts are
    translated one by one where they stand.
    """
    return html.is_nested and all(is_same_structure(html.source, output) for output in outputs)


def write_in_place(html: HtmlSource, ranks: Sequence[Sequence[str]]) -> list[str]:
    """Write HTML with each of several translations where its texts stand, all distinct.

    Where even that would change what browsers find, the HTML stays as it is.
    """
    written = dict.fromkeys(map(html.write_in_place, ranks))
    return [one for one in written if is_same_structure(html.source, one)] or [html.source]


def parts(element: Element) -> Iterator[Part]:
    """Yield the parts of a tree in order: HTML that stays, and texts to translate."""
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
            yield write_node(child)
    yield inline
    yield element.end


async def _align(service: Service, model: ServedModel, rows: Sequence[tuple[Inline, TranslatedText]]) -> Aligned:
    """Align the outputs of all sentences that have tags around some words."""
    pairs = [
        (sentence.text, output.text)
        for inline, text in rows
        if not inline.is_uniform
        for sentence, best in zip(text.sentences, text.results, strict=True)
        for output in best or ()
    ]
    distinct = list(dict.fromkeys(pairs))
    return dict(zip(distinct, await service.ask(model, ModelCall(work.align_pairs), distinct), strict=True))


def _outputs(document: list[Part], found: dict[int, TranslatedText], aligned: Aligned, count: int) -> list[str]:
    return list(dict.fromkeys(_write(document, found, aligned, rank) for rank in range(count)))


def _write(document: list[Part], found: dict[int, TranslatedText], aligned: Aligned, rank: int) -> str:
    return "".join(
        part if isinstance(part, str) else _write_inline(part, found[id(part)], aligned, rank) for part in document
    )


def _write_inline(inline: Inline, text: TranslatedText, aligned: Aligned, rank: int) -> str:
    if inline.is_uniform:
        return inline.wrap(text_of(text, rank))
    place, items = 0, []
    for sentence, best in zip(text.sentences, text.results, strict=True):
        start = place + len(sentence.before)
        place = start + len(sentence.text) + len(sentence.after)
        output = None if best is None else best[min(rank, len(best) - 1)].text
        words = None if output is None else aligned[sentence.text, output]
        items += carry_tags(inline, start, sentence, output, words)
    return inline.before + write(gather(items)) + inline.after
