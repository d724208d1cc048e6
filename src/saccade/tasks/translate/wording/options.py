"""What a call may say about the words of its outputs."""

from __future__ import annotations

from typing import Literal, NamedTuple

from saccade.errors import UserError

Placeholders = Literal["keep", "translate"]


class WordingOptions(NamedTuple):
    """The keywords of a call; None: as the run says."""

    placeholders: Placeholders | None = None

    def check(self, *, reads_text: bool) -> None:
        """Refuse values that mean nothing here."""
        if self.placeholders not in (None, "keep", "translate"):
            raise UserError(f"placeholders: {self.placeholders!r} given; allowed: keep, translate")
        if self.placeholders == "keep" and not reads_text:
            raise UserError("placeholders: keep given; sounds have none")
