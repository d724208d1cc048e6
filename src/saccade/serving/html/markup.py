"""Translate HTML: sentences go across inline tags, and each tag is put around the words that read its words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, final

from saccade.serving import work
from saccade.serving.html.carry_tags import carry_tags
from saccade.serving.html.gather import gather
from saccade.serving.html.guard import is_same_structure
from saccade.serving.html.inline import InlineText, write
from saccade.serving.html.tree import (
    Element,
    HtmlSource,
    VerbatimHtml,
    is_structure,
    parse,
    read_html,
    texts,
    write_node,
)
from saccade.serving.http.turns import run_in_thread
from saccade.serving.models import ServedModel
from saccade.serving.service import SHORT, Service
from saccade.serving.translation import TranslatedText, text_of, translate_texts
from saccade.serving.v1.word_links import AlignedWords
from saccade.serving.waiting import ModelCall

OPTIONS = ("option", "optgroup")
Part = str | InlineText  # of a document: HTML that stays, or a text with inline tags
Pair = tuple[str, str]
Aligned = dict[Pair, AlignedWords]


def plain_text(source: str) -> str:
    """Return the text of HTML, without its tags."""
    return " ".join(texts(parse(source)))


async def translate_html(
    service: Service, model: ServedModel, sources: Sequence[str], count: int, **decoding: Any
) -> list[list[str]]:
    """Translate documents: for each its translation and alternatives, all distinct."""
    goes = sum(map(len, sources)) > SHORT and service.workers is not None and service.workers.is_open
    documents: RequestDocuments = (
        WorkerDocuments(service, model, sources) if goes else LocalDocuments(service, model, sources)
    )
    outline = await documents.outline()
    found = await translate_texts(service, model, outline.texts, **decoding)
    written = await documents.write([*map(_only_texts, found)], count)
    outputs = [one.outputs for one in written]
    for row, source in enumerate(sources):
        if not written[row].is_kept:
            found = await translate_texts(service, model, outline.in_place[row], **decoding)
            ranks = [[text_of(text, rank) for text in found] for rank in range(count)]
            outputs[row] = await documents.write_in_place(row, ranks)
        way = "moved" if written[row].is_kept else "kept" if outputs[row] == [source] else "in place"
        service.metrics.html.labels(way).inc()
    return outputs


class DocumentOutline(NamedTuple):
    """Texts of documents that are to be translated, with inline tags; and, for each, the texts between all its tags."""

    texts: list[str]
    in_place: list[list[str]]


class TranslatedDocument(NamedTuple):
    """A document's translations, and whether browsers find in them what they find in the document."""

    outputs: list[str]
    is_kept: bool


class SentenceOutput(NamedTuple):
    """A sentence's translation, without all that HTML does not need."""

    text: str


@final
class Documents:
    """Documents that are read once, to be written with other texts."""

    def __init__(self, sources: Sequence[str]) -> None:
        self.read = [*map(read_html, sources)]
        self.parts = [list(parts(html.root)) for html in self.read]
        self.inlines = [part for document in self.parts for part in document if isinstance(part, InlineText)]

    def outline(self) -> DocumentOutline:
        return DocumentOutline([inline.text for inline in self.inlines], [html.texts for html in self.read])

    def pairs(self, found: Sequence[TranslatedText]) -> list[Pair]:
        """Return the sentences that have tags around some words, with each of their outputs."""
        pairs = [
            (sentence.text, output.text)
            for inline, text in zip(self.inlines, found, strict=True)
            if not inline.is_uniform
            for sentence, best in zip(text.sentences, text.results, strict=True)
            for output in best or ()
        ]
        return list(dict.fromkeys(pairs))

    def write(self, found: Sequence[TranslatedText], aligned: Aligned, count: int) -> list[TranslatedDocument]:
        of_inline = dict(zip(map(id, self.inlines), found, strict=True))
        outputs = [_outputs(document, of_inline, aligned, count) for document in self.parts]
        return [
            TranslatedDocument(each, keeps_structure(html, each)) for html, each in zip(self.read, outputs, strict=True)
        ]

    def write_in_place(self, row: int, ranks: Sequence[Sequence[str]]) -> list[str]:
        return write_in_place(self.read[row], ranks)


class RequestDocuments(Protocol):
    """A place where documents are read and written: this process, or a worker."""

    async def outline(self) -> DocumentOutline: ...

    async def write(self, found: Sequence[TranslatedText], count: int) -> list[TranslatedDocument]: ...

    async def write_in_place(self, row: int, ranks: Sequence[Sequence[str]]) -> list[str]: ...


@final
class LocalDocuments:
    """Documents that a thread reads and writes."""

    def __init__(self, service: Service, model: ServedModel, sources: Sequence[str]) -> None:
        self._service, self._model, self._sources = service, model, sources

    async def outline(self) -> DocumentOutline:
        self._documents = await run_in_thread(Documents, self._sources)
        return self._documents.outline()

    async def write(self, found: Sequence[TranslatedText], count: int) -> list[TranslatedDocument]:
        pairs = self._documents.pairs(found)
        words = await self._service.ask(self._model, ModelCall(work.align_pairs), pairs)
        return await run_in_thread(self._documents.write, found, dict(zip(pairs, words, strict=True)), count)

    async def write_in_place(self, row: int, ranks: Sequence[Sequence[str]]) -> list[str]:
        return await run_in_thread(self._documents.write_in_place, row, ranks)


@final
class WorkerDocuments:
    """Long documents, which a worker reads and writes: that takes Python's lock for long. Only texts go to and fro."""

    def __init__(self, service: Service, model: ServedModel, sources: Sequence[str]) -> None:
        self._service, self._model, self._sources = service, model, sources

    async def outline(self) -> DocumentOutline:
        found: DocumentOutline = await self._ask("outline")
        return found

    async def write(self, found: Sequence[TranslatedText], count: int) -> list[TranslatedDocument]:
        written: list[TranslatedDocument] = await self._ask("finish", found, count)
        return written

    async def write_in_place(self, row: int, ranks: Sequence[Sequence[str]]) -> list[str]:
        outputs: list[str] = await self._ask("write_in_place", row, ranks)
        return outputs

    async def _ask(self, *what: Any) -> Any:
        return await self._service.ask_worker(self._model, ModelCall(work_on), (self._sources, *what))


def work_on(translator: Any, asked: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Do what is asked with documents, in a worker."""
    return [_work_on(translator, Documents(sources), *what) for sources, *what in asked]


def _work_on(translator: Any, documents: Documents, name: str, *given: Any) -> Any:
    if name != "finish":
        return getattr(documents, name)(*given)
    found, count = given
    pairs = documents.pairs(found)
    return documents.write(found, dict(zip(pairs, work.align_pairs(translator, pairs), strict=True)), count)


def _only_texts(found: TranslatedText) -> TranslatedText:
    return found._replace(results=[best and [SentenceOutput(one.text) for one in best] for best in found.results])


def keeps_structure(html: HtmlSource, outputs: Sequence[str]) -> bool:
    """Return whether browsers find in every output what they find in the source.

    Misnested tags, or text between the rows of a table, are read as another tree than they spell: there the texts are
    translated one by one where they stand. So they are where a `select` has other elements than its options, which only
    newer browsers read there.
    """
    is_read_alike = html.is_nested and not _has_rich_select(html.root)
    return is_read_alike and all(is_same_structure(html.source, output) for output in outputs)


def _has_rich_select(element: Element, *, is_inside: bool = False) -> bool:
    """Tell whether a `select` has other elements than options inside; comments are none."""
    for child in element.children:
        if isinstance(child, Element):
            is_found = is_inside and child.tag not in OPTIONS
            if is_found or _has_rich_select(child, is_inside=is_inside or child.tag == "select"):
                return True
        elif is_inside and isinstance(child, VerbatimHtml) and not child.text.startswith("<!"):
            return True
    return False


def write_in_place(html: HtmlSource, ranks: Sequence[Sequence[str]]) -> list[str]:
    """Write HTML with each of several translations where its texts stand, all distinct.

    Where even that would change what browsers find, the HTML stays as it is.
    """
    written = dict.fromkeys(map(html.write_in_place, ranks))
    return [one for one in written if is_same_structure(html.source, one)] or [html.source]


def parts(element: Element) -> Iterator[Part]:
    """Yield the parts of a tree in order: HTML that stays, and texts to translate."""
    yield element.start
    inline = InlineText()
    for child in element.children:
        if not is_structure(child):
            inline.add(child)
            continue
        yield inline
        inline = InlineText()
        if isinstance(child, Element):
            yield from parts(child)
        else:
            yield write_node(child)
    yield inline
    yield element.end


def _outputs(document: list[Part], found: dict[int, TranslatedText], aligned: Aligned, count: int) -> list[str]:
    return list(dict.fromkeys(_write(document, found, aligned, rank) for rank in range(count)))


def _write(document: list[Part], found: dict[int, TranslatedText], aligned: Aligned, rank: int) -> str:
    return "".join(
        part if isinstance(part, str) else _write_inline(part, found[id(part)], aligned, rank) for part in document
    )


def _write_inline(inline: InlineText, text: TranslatedText, aligned: Aligned, rank: int) -> str:
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
