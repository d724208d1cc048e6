"""The pieces of Hugging Face's tokenizers as people read them, and the words that they make."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any, final

from saccade.data.text.tokenizer import SPACE
from saccade.inspection.insight import TextSide

BYTES, INSIDE = "Ġ", "##"  # the sign for a space where pieces spell bytes (GPT-2); what goes on inside a word (BERT)


@final
class PieceReader:
    """Shows ids of a tokenizer. Its sign for where words begin is the one that most of its pieces have."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.special = tokenizer, frozenset(tokenizer.all_special_ids)
        names = list(tokenizer.get_vocab())
        counts = {sign: sum(name.startswith(sign) for name in names) for sign in (SPACE, BYTES, INSIDE)}
        self.sign = max(counts, key=lambda sign: counts[sign]) if any(counts.values()) else ""

    def side(self, text: str, ids: Sequence[int]) -> TextSide:
        """Return the pieces and words of a text; a special piece is a word of its own."""
        names = self.tokenizer.convert_ids_to_tokens(list(ids))
        word_of_piece, parts = list[int](), list[list[str]]()
        after_special = True
        for number, name in zip(ids, names, strict=True):
            is_special = number in self.special
            if is_special or after_special or self._begins_word(name):
                parts.append([])
            parts[-1].append(name)
            word_of_piece.append(len(parts) - 1)
            after_special = is_special
        return TextSide(text, [self._show(name) for name in names], [self._join(part) for part in parts], word_of_piece)

    def _begins_word(self, name: str) -> bool:
        if self.sign == INSIDE:
            return not name.startswith(INSIDE)
        if self.sign == BYTES:
            return name.startswith((BYTES, "Ċ", "ĉ"))  # a space, the end of a line, a tab
        return not self.sign or name.startswith(SPACE) or unicodedata.east_asian_width(name[:1] or " ") in "WF"

    def _show(self, name: str) -> str:
        """Return a piece; one that spells bytes, as the text that they are."""
        if self.sign != BYTES:
            return name
        return SPACE * name.startswith(BYTES) + self.tokenizer.convert_tokens_to_string([name.removeprefix(BYTES)])

    def _join(self, names: list[str]) -> str:
        if len(names) == 1 and self.sign != BYTES:
            return names[0].replace(SPACE, " ").strip() or names[0]
        return str(self.tokenizer.convert_tokens_to_string(names)).strip() or "".join(names)
