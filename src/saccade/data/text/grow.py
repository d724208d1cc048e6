"""Grows a vocabulary by what new texts have often, and says which old tokens each new one is made of.

Pieces are joined as BPE joins them (Sennrich 2016), on from the pieces that the texts have now: a new piece joins what
stood side by side, and leaves all else as it was.
"""

from __future__ import annotations

import heapq
import itertools
import re
import struct
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple, final

from saccade.data.text.tokenizer import SPACE, UNKNOWN, SentencePiece, Vocabulary

JOINED = 0.01  # by which a unigram piece's score is above the sum of its parts', so that it is chosen before them
FEWEST = 2  # times that texts must have what becomes a token
BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class GrownTokenizer(NamedTuple):
    """A tokenizer with new tokens behind its own, and the old ids that each of them is made of."""

    tokenizer: SentencePiece | Vocabulary
    parts: list[list[int]]


def grow(tokenizer: SentencePiece | Vocabulary, texts: Iterable[str], count: int) -> GrownTokenizer:
    """Add the `count` tokens that shorten texts most, or all that they have twice or more."""
    if isinstance(tokenizer, Vocabulary):
        return _grow_vocabulary(tokenizer, texts, count)
    words = Counter(word for text in texts for word in text.split())
    growth = _Growth(tokenizer, words)
    growth.add(count)
    return growth.result()


def _grow_vocabulary(tokenizer: Vocabulary, texts: Iterable[str], count: int) -> GrownTokenizer:
    """Add the most frequent symbols, which were <unk>."""
    counts = Counter[str]()
    for text in texts:
        counts.update(text.split() if tokenizer.kind == "words" else text)
    known = set(tokenizer.symbols)
    often = [symbol for symbol in counts if counts[symbol] >= FEWEST and symbol not in known]
    new = sorted(often, key=lambda symbol: (-counts[symbol], symbol))[:count]
    return GrownTokenizer(Vocabulary([*tokenizer.symbols, *new], tokenizer.kind), [[UNKNOWN] for _ in new])


@final
class _Growth:
    """Words as the symbols that they are made of now, and how many symbols each possible new piece would save."""

    def __init__(self, tokenizer: SentencePiece, words: Counter[str]) -> None:
        import sentencepiece

        self.tokenizer = tokenizer
        processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
        names = tokenizer.pieces(range(tokenizer.size))
        self.parts = {name: [number] for number, name in enumerate(names)}
        self.scores = {name: processor.get_score(processor.piece_to_id(name)) for name in names[UNKNOWN + 1 :]}
        self.is_bpe = all(score.is_integer() for score in self.scores.values())
        self.new = dict[str, float]()
        self.words = [(_symbols(tokenizer, word), words[word]) for word in sorted(words)]
        self.gains = Counter[str]()
        self.places, self.splits = defaultdict[str, set[int]](set), defaultdict[str, set[tuple[str, str]]](set)
        self.heap = list[tuple[int, str]]()
        for number in range(len(self.words)):
            self._count(number, 1)
        self._offer(self.gains)

    def add(self, count: int) -> None:
        """Add pieces, each time the one that saves most."""
        while len(self.new) < count and self.heap:
            gain, piece = heapq.heappop(self.heap)
            if gain == -self.gains[piece] and piece not in self.parts:
                self._add(piece)

    def _add(self, piece: str) -> None:
        """Add a piece, and join it wherever its parts stand."""
        if piece in self.splits:
            left, right = max(self.splits[piece], key=lambda split: (sum(self.scores[part] for part in split), split))
            parts, score = self.parts[left] + self.parts[right], self.scores[left] + self.scores[right] + JOINED
        else:
            parts = [self.parts[name][0] for name in _spell(piece)]
            score = min(self.scores.values())
        if self.is_bpe:
            score = min(self.scores.values()) - 1
        self.parts[piece], self.scores[piece], self.new[piece] = parts, score, score
        touched = Counter[str]()
        for number in sorted(self.places.pop(piece)):
            touched += self._rejoin(number, piece)
        self._offer(touched)

    def _rejoin(self, number: int, piece: str) -> Counter[str]:
        """Join a piece in a word; return what now may be joined there."""
        self._count(number, -1)
        symbols, many = self.words[number]
        joined = list[str]()
        for symbol in symbols:
            if joined and joined[-1] + symbol == piece:
                joined[-1] = piece
            else:
                joined.append(symbol)
        self.words[number] = joined, many
        return self._count(number, 1)

    def _count(self, number: int, sign: int) -> Counter[str]:
        """Count what each piece would save in a word, or take it back."""
        symbols, many = self.words[number]
        found = Counter[str]()
        for symbol in symbols:
            if symbol not in self.parts:  # a character that is spelled in bytes: one is no longer, but can't be joined
                found[symbol] += many * max(1, len(symbol.encode()) - 1)
        for left, right in itertools.pairwise(symbols):
            if left in self.parts and right in self.parts and self._may_be_joined(left + right):
                found[left + right] += many
                self.splits[left + right].add((left, right))
        for piece, gain in found.items():
            self.gains[piece] += sign * gain
            self.places[piece].add(number)
        return found

    def _may_be_joined(self, piece: str) -> bool:
        """Tell whether a piece is new and of one kind: letters, digits, or other signs, as learned ones are."""
        return piece not in self.parts and len({_kind(sign) for sign in piece if sign != SPACE}) < 2

    def _offer(self, pieces: Iterable[str]) -> None:
        for piece in pieces:
            if self.gains[piece] >= FEWEST:
                heapq.heappush(self.heap, (-self.gains[piece], piece))

    def result(self) -> GrownTokenizer:
        """Return the tokenizer with what was added: fields of a protocol buffer that come again are added to a list."""
        added = b"".join(_message(piece, score) for piece, score in self.new.items())
        return GrownTokenizer(SentencePiece(self.tokenizer.model + added), [self.parts[piece] for piece in self.new])


def _kind(sign: str) -> int:
    return 0 if sign.isalpha() or unicodedata.combining(sign) else 1 if sign.isdigit() else 2


def _symbols(tokenizer: SentencePiece, word: str) -> list[str]:
    """Return the pieces of a word; a character that is spelled in bytes is one symbol."""
    found, spelled = list[str](), b""
    for piece in tokenizer.pieces(tokenizer.encode(word)):
        if byte := BYTE.fullmatch(piece):
            spelled += bytes.fromhex(byte[1])
            continue
        found, spelled = [*found, *spelled.decode("utf-8", "replace"), piece], b""
    return [*found, *spelled.decode("utf-8", "replace")]


def _spell(character: str) -> list[str]:
    return [f"<0x{byte:02X}>" for byte in character.encode()]


def _message(piece: str, score: float) -> bytes:
    """Write a piece and its score as SentencePiece stores them (`ModelProto.pieces`)."""
    name = piece.encode()
    body = b"\x0a" + _number(len(name)) + name + b"\x15" + struct.pack("<f", score)
    return b"\x0a" + _number(len(body)) + body


def _number(value: int) -> bytes:
    """Write a number, seven bits a byte, the lowest first."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
