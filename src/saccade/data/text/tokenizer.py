"""Tokenizers: SentencePiece (unigram, BPE) with byte fallback, its pieces by a list, characters, white-space words.

The first four ids mean the same in all of them: 0 padding, 1 start, 2 end, 3 unknown.
"""

from __future__ import annotations

import base64
import functools
import io
import itertools
import json
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, final

from saccade.data.text.corpus import read_raw_lines
from saccade.errors import UserError
from saccade.files import replace_file

T = TypeVar("T")
PAD, START, END, UNKNOWN = 0, 1, 2, 3
SPACE = "▁"  # SentencePiece's sign for one
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
LANGUAGE = re.compile(r">>\S+<<")  # a token that says into what language a text is translated (Marian)
LONGEST, PARTS = 1000, (100, 200)  # characters of a text to learn from, and after which longer ones are cut
SEQUENCE = 2000  # characters in the same texts one after another
MOST_CHARACTERS = 100_000_000  # enough to learn a vocabulary from; SentencePiece takes some 30 bytes for each


class TextSample(NamedTuple):
    """Texts to learn from, and how many there were to choose from."""

    texts: list[str]
    num_seen: int


def sample_texts(texts: Iterable[str], *, most: int, seed: int = 0) -> TextSample:
    """Return all texts that aren't blank, or a random sample with at most `most` characters, all equally likely."""
    generator, share = random.Random(seed), 1.0
    kept: list[str] = []
    seen = size = 0
    for text in filter(None, texts):
        seen += 1
        if generator.random() < share:
            kept.append(text)
            size += len(text)
        while size > most:  # forget every other one, and take half as many from now on
            kept = [text for text in kept if generator.random() < 0.5]
            size, share = sum(map(len, kept)), share / 2
    return TextSample(kept, seen)


class Tokenizer(Protocol):
    """Turns text into ids and back. `pieces` are the tokens as they are shown beside weights."""

    @property
    def size(self) -> int:
        """Size of the vocabulary, V."""

    def encode(self, text: str) -> list[int]:
        """Return ids without start and end."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return text without the special ids."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return one readable string for each token."""

    def begins_word(self, piece: str) -> bool:
        """Return whether a piece is the first of a word (the first piece of a text always is)."""

    def save(self, path: Path) -> None:
        """Write one file, completely or not at all."""


@final
class SentencePiece:
    """Unigram (Kudo 2018) or BPE (Sennrich 2016) pieces; characters that no piece covers become bytes."""

    def __init__(self, model: bytes) -> None:
        import sentencepiece  # models need this file too, but no SentencePiece

        if not model:  # SentencePiece would fail at its first use
            raise RuntimeError("the model is empty")
        self.model = model
        self._processor = own = sentencepiece.SentencePieceProcessor(model_proto=model)
        special = [own.pad_id(), own.bos_id(), own.eos_id(), own.unk_id()]
        self._theirs = [*special, *(index for index in range(own.vocab_size()) if index not in special)]
        self._ours = {theirs: ours for ours, theirs in enumerate(self._theirs)}

    @classmethod
    def train(cls, kind: str, texts: Sequence[str], size: int, *, seed: int, field: str = "tokenizer") -> SentencePiece:
        """Learn pieces: `size` of them, or all that the text has."""
        import sentencepiece

        sentencepiece.set_random_generator_seed(seed)
        written = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(_arrange(texts, seed)),
                model_writer=written,
                model_type=kind,
                vocab_size=size,
                byte_fallback=True,
                character_coverage=0.9999,
                normalization_rule_name="identity",
                pad_id=PAD,
                bos_id=START,
                eos_id=END,
                unk_id=UNKNOWN,
                max_sentence_length=1 << 20,
                num_threads=1,  # the vocabulary depends on it
                minloglevel=2,
            )
        except RuntimeError as error:
            if most := re.search(r"value <= (\d+)", str(error)):  # the text has no more pieces
                return cls.train(kind, texts, int(most[1]), seed=seed, field=field)
            raise UserError(f"{field}.vocabulary_size: {size:,} given; {_reason(str(error))}") from None
        return cls(written.getvalue())

    @property
    def size(self) -> int:
        return len(self._theirs)

    def encode(self, text: str) -> list[int]:
        """Return ids without start and end. ▁, its own sign for a space, is read as one."""
        return self._to_ours(self._processor.encode(text))

    def sampler(self, alpha: float) -> Callable[[str], list[int]]:
        """Return a function that encodes in random pieces: subword regularisation (Kudo 2018), BPE-dropout."""
        draw = functools.partial(self._processor.encode, enable_sampling=True, alpha=alpha, nbest_size=-1)
        return lambda text: self._to_ours(draw(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Return text on one line, whatever bytes the ids spell, without the special ids, but with ⁇ for <unk>."""
        return " ".join(self._processor.decode([self._theirs[index] for index in ids if index >= UNKNOWN]).split())

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [
            SPECIAL[index] if index <= UNKNOWN else self._processor.id_to_piece(self._theirs[index]) for index in ids
        ]

    def _to_ours(self, ids: list[int]) -> list[int]:
        return [self._ours[index] for index in ids]

    def begins_word(self, piece: str) -> bool:
        """Return True for a piece with ▁, and in scripts without spaces for every piece."""
        return piece.startswith(SPACE) or unicodedata.east_asian_width(piece[0]) in "WF"

    def save(self, path: Path) -> None:
        with replace_file(path) as draft:
            draft.write_bytes(self.model)

    @classmethod
    def load(cls, path: Path) -> SentencePiece:
        try:
            return cls(path.read_bytes())
        except RuntimeError:
            raise UserError(f"{path} is damaged: it is no SentencePiece model") from None


def _arrange(texts: Iterable[str], seed: int) -> list[str]:
    """Return texts as SentencePiece takes them: long ones in parts, and shuffled if sequences of texts come again.

    Of what is written twice, in one text or in several that follow each other, it looks at every part of every part:
    100,000 times one word on a line, or 10,000 lines twice in the same order, took it hours. Texts of more than a
    megabyte it leaves out.
    """
    chance = random.Random(seed)
    parts = [part for text in texts for part in _split_long(text, chance)]
    if _have_sequences(parts):
        chance.shuffle(parts)
    return parts


def _split_long(text: str, chance: random.Random) -> Iterator[str]:
    """Yield a long text in parts of various lengths; they end between words, if there are any, as pieces do."""
    start = 0
    while len(text) - start > LONGEST:
        length = chance.randint(*PARTS)
        stop = text.find(" ", start + length, start + LONGEST)
        stop = start + LONGEST - length if stop < 0 else stop
        yield text[start:stop]
        start = stop
    yield text[start:]


def _have_sequences(texts: Sequence[str]) -> bool:
    """Tell whether many texts in a row follow the same text as before."""
    seen, length = set[tuple[str, str]](), 0
    for both in itertools.pairwise(texts):
        length = length + len(both[1]) if both in seen else 0
        if length > SEQUENCE:
            return True
        seen.add(both)
    return False


@final
class ListedPieces:
    """SentencePiece pieces with the ids of a list, as imported models have them; a piece that is not listed is <unk>.

    The list may be that of several models. A text may begin with a token of the list that names a language (>>fr<<).
    `first` are tokens that stand before each text; before an empty one only if it `begins_empty`, as outputs do.
    `tokens` are no text: they are not decoded.
    """

    kind = "listed"

    def __init__(
        self,
        model: bytes,
        symbols: Sequence[str],
        *,
        first: Sequence[str] = (),
        begins_empty: bool = False,
        tokens: Iterable[str] = (),
    ) -> None:
        import sentencepiece

        self.model, self.symbols, self.first, self.begins_empty = model, list(symbols), list(first), begins_empty
        self.tokens = sorted(tokens)
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self._ids = {symbol: index for index, symbol in enumerate(self.symbols) if index > UNKNOWN}
        self._first = [self._ids[symbol] for symbol in first]
        self._silent = {*self._first, *(self._ids[symbol] for symbol in self.tokens if symbol in self._ids)}

    @property
    def size(self) -> int:
        return len(self.symbols)

    def encode(self, text: str) -> list[int]:
        """Return ids without start and end."""
        return self._encode(text, functools.partial(self._processor.encode, out_type=str))

    def sampler(self, alpha: float) -> Callable[[str], list[int]]:
        """Return a function that encodes in random pieces: subword regularisation (Kudo 2018), BPE-dropout."""
        draw = functools.partial(self._processor.encode, out_type=str, enable_sampling=True, alpha=alpha, nbest_size=-1)
        return lambda text: self._encode(text, draw)

    def _encode(self, text: str, split: Callable[[str], list[str]]) -> list[int]:
        found, language = list[int](), LANGUAGE.match(text)
        if language and language[0] in self._ids:
            found, text = [self._ids[language[0]]], text[language.end() :]
        found += [self._ids.get(piece, UNKNOWN) for piece in split(text)]
        return [*self._first, *found] if found or self.begins_empty else []

    def decode(self, ids: Sequence[int]) -> str:
        """Return text on one line, without the special ids and what is no text."""
        names = [self.symbols[index] for index in ids if index > UNKNOWN and index not in self._silent]
        return " ".join(str(self._processor.decode_pieces(names)).replace(SPACE, " ").split())

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self.symbols[index] for index in ids]

    def begins_word(self, piece: str) -> bool:
        """Return True for a piece with ▁, and in scripts without spaces for every piece."""
        return piece.startswith(SPACE) or unicodedata.east_asian_width(piece[0]) in "WF"

    def save(self, path: Path) -> None:
        stored = {
            "kind": self.kind,
            "symbols": self.symbols,
            "first": self.first,
            "begins_empty": self.begins_empty,
            "tokens": self.tokens,
            "model": base64.b64encode(self.model).decode(),
        }
        with replace_file(path) as draft:
            draft.write_text(json.dumps(stored, ensure_ascii=False), "utf-8")

    @classmethod
    def restore(cls, stored: dict[str, Any]) -> ListedPieces:
        """Make it from what its file holds."""
        model = base64.b64decode(stored["model"], validate=True)
        more = {"begins_empty": stored["begins_empty"], "tokens": stored.get("tokens", [])}
        return cls(model, stored["symbols"], first=stored["first"], **more)


@final
class Vocabulary:
    """A list of symbols: white-space words, or single characters. Others become <unk>."""

    def __init__(self, symbols: Sequence[str], kind: str) -> None:
        self.symbols, self.kind = list(symbols), kind
        # a word spelled <s> or </s> is text: it must not start or end a sentence
        self._ids = {symbol: index for index, symbol in enumerate(self.symbols) if index > UNKNOWN}
        self.split: Callable[[str], list[str]] = str.split if kind == "words" else list
        self.glue = " " if kind == "words" else ""

    @classmethod
    def train(cls, kind: str, texts: Iterable[str], size: int) -> Vocabulary:
        """Keep the most frequent symbols, ties in alphabetical order."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(text.split() if kind == "words" else text)
        ranked = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))
        return cls([*SPECIAL, *ranked[: max(0, size - len(SPECIAL))]], kind)

    @property
    def size(self) -> int:
        return len(self.symbols)

    def encode(self, text: str) -> list[int]:
        return [self._ids.get(symbol, UNKNOWN) for symbol in self.split(text)]

    def decode(self, ids: Sequence[int]) -> str:
        """Return text without the special ids, but with <unk> for unknown symbols."""
        return self.glue.join(self.symbols[index] for index in ids if index >= UNKNOWN)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self.symbols[index] for index in ids]

    def begins_word(self, piece: str) -> bool:
        """Return True for every word; with characters, for a space."""
        return self.kind == "words" or piece == " "

    def save(self, path: Path) -> None:
        with replace_file(path) as draft:
            draft.write_text(json.dumps({"kind": self.kind, "symbols": self.symbols}, ensure_ascii=False), "utf-8")


AnyTokenizer = SentencePiece | ListedPieces | Vocabulary


def run_seeded(seed: int, work: Callable[[], T]) -> T:
    """Run work that draws random pieces in a new thread: SentencePiece takes a seed only when a thread starts."""
    import sentencepiece

    with ThreadPoolExecutor(1, initializer=sentencepiece.set_random_generator_seed, initargs=(seed,)) as fresh:
        return fresh.submit(work).result()


def train_tokenizer(
    kind: str, texts: Iterable[str], size: int, *, seed: int = 0, field: str = "tokenizer"
) -> SentencePiece | Vocabulary:
    """Learn a tokenizer of a kind (unigram, bpe, words, characters) from texts; messages use the field."""
    texts = [text for text in texts if text]
    if not texts:
        raise UserError(f"{field}: there is no text to learn from; every line is blank")
    if size <= len(SPECIAL):
        raise UserError(f"{field}.vocabulary_size: {size} given; it must be above {len(SPECIAL)}, the special symbols")
    if kind in ("unigram", "bpe"):
        return SentencePiece.train(kind, texts, size, seed=seed, field=field)
    return Vocabulary.train(kind, texts, size)


def read_ready_tokenizer(kind: str, path: Path, field: str) -> AnyTokenizer:
    """Read a SentencePiece model, for words and characters a list with one a line, or the file of another run."""
    if not path.is_file():
        raise UserError(f"{field}.model: there is no file at {path}")
    if kind in ("unigram", "bpe"):
        try:
            return SentencePiece(path.read_bytes())
        except RuntimeError:
            others = f"; a list of symbols needs {field}.kind: words or characters"
            raise UserError(f"{field}.model: {path} is no SentencePiece model{others}") from None
    if path.suffix == ".json" or kind == ListedPieces.kind:
        found = load_listed(path)
        if found.kind != kind:
            raise UserError(f"{field}.model: {path} has {found.kind}, but {field}.kind is {kind}")
        return found
    return Vocabulary([*SPECIAL, *_read_symbols(kind, path)], kind)


def _read_symbols(kind: str, path: Path) -> list[str]:
    """Read the symbols of a list, without special ones."""
    found = dict[str, int]()
    for number, line in enumerate(read_raw_lines(path), 1):
        symbol = line.lstrip("\ufeff").rstrip("\r\n")
        if symbol in SPECIAL or not symbol:
            continue
        if [symbol] != (symbol.split() if kind == "words" else list(symbol)):
            wanted = "one word, without spaces" if kind == "words" else "one character"
            raise UserError(f"{path}:{number}: {symbol[:40]!r} given; a line must be {wanted}")
        if symbol in found:
            raise UserError(f"{path}:{number}: {symbol!r} comes again; it is on line {found[symbol]} too")
        found[symbol] = number
    if not found:
        raise UserError(f"{path}: there is no symbol in it")
    return list(found)


def load_tokenizer(path: Path) -> AnyTokenizer:
    """Load a tokenizer from its file in a run's folder."""
    return load_listed(path) if path.suffix == ".json" else SentencePiece.load(path)


def load_listed(path: Path) -> ListedPieces | Vocabulary:
    """Load a tokenizer whose file is a list."""
    try:
        stored = json.loads(path.read_text("utf-8"))
        if stored["kind"] == ListedPieces.kind:
            return ListedPieces.restore(stored)
        return Vocabulary(stored["symbols"], stored["kind"])
    except (ValueError, KeyError, TypeError, RuntimeError):
        raise UserError(f"{path} is damaged: it is no vocabulary") from None


def tokenizer_file_name(kind: str, stem: str) -> str:
    """Return the name of a tokenizer's file in a run."""
    return f"{stem}.json" if kind in ("words", "characters", ListedPieces.kind) else f"{stem}.model"


def _reason(error: str) -> str:
    """Return SentencePiece's error, in our words where we know it."""
    if least := re.search(r"required_chars\. \d+ vs (\d+)", error):
        return f"allowed: {int(least[1]):,} or more, one for each byte and common character"
    return error.replace("\n", " ").rsplit("] ", 1)[-1]
