"""Options of a call about the words of its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from saccade.decoding import BeamOptions, SamplingOptions
from saccade.errors import UserError
from saccade.tasks.translate.wording.annotate import TermNote, write_notes
from saccade.tasks.translate.wording.glossary import Entry, Glossary

Placeholders = Literal["keep", "ignore"]
Terms = Literal["annotate", "constrain"]
ALLOWED = {"placeholders": ("keep", "ignore"), "terms": ("annotate", "constrain")}


class WordingOptions(NamedTuple):
    """The keywords of a call; None: as the run says.

    `terms`: annotate writes the terms of a glossary into the source, for a run that was trained with such sources;
    constrain makes outputs hold them. None: the first, if the run can, and the second for terms that are still missing.
    """

    placeholders: Placeholders | None = None
    glossary: Glossary | Mapping[str, str] | Sequence[Entry] | None = None
    terms: Terms | None = None


class Wording(NamedTuple):
    """Treatment of words: whether placeholders are kept, the glossary, and how its terms are brought about."""

    keeps: bool = False
    glossary: Glossary | None = None
    annotates: bool = False
    constrains: bool = False

    @property
    def num_terms(self) -> int:
        return 0 if self.glossary is None else len(self.glossary.entries)

    def read(self, text: str) -> tuple[str, tuple[TermNote, ...]]:
        """Return a clean text as a model is to read it, and the terms of the glossary that are in it."""
        notes = () if self.glossary is None else self.glossary.find(text)
        return write_notes(text, notes) if self.annotates else (text, notes)


NO_WORDING = Wording()


def settle(
    given: WordingOptions,
    default: Wording,
    options: BeamOptions | SamplingOptions,
    *,
    reads_text: bool,
    engine: str | None,
) -> Wording:
    """Put what a call says over what the run says, and refuse what can't be.

    `default.annotates` says that the run was trained with terms in its sources; `engine` is another one that searches,
    if it can't make an output begin with something.
    """
    for name, allowed in ALLOWED.items():
        if getattr(given, name) not in (None, *allowed):
            raise UserError(f"{name}: {getattr(given, name)!r} given; allowed: {', '.join(allowed)}")
    if given.placeholders == "keep" and not reads_text:
        raise UserError("placeholders: keep given; sounds have none")
    keeps = default.keeps if given.placeholders is None else given.placeholders == "keep"
    glossary = default.glossary
    if given.glossary is not None:
        if not reads_text:
            raise UserError("glossary: given; sounds have no words to look up")
        glossary = Glossary.of(given.glossary).over(glossary)
    if glossary is None:
        if given.terms is not None:
            raise UserError(f"terms: {given.terms} given without a glossary")
        return Wording(keeps)
    if given.terms == "annotate" and not default.annotates:
        raise UserError("terms: annotate given, but the run was not trained with terms in its sources (data.terms)")
    reason = _refuse_constraints(options, engine)
    if reason is not None and (given.terms == "constrain" or not default.annotates):
        raise UserError(f"glossary: {reason}; a run that is trained with data.terms needs no such search")
    annotates = default.annotates and given.terms != "constrain"
    return Wording(keeps, glossary, annotates, given.terms != "annotate" and reason is None)


def _refuse_constraints(options: BeamOptions | SamplingOptions, engine: str | None) -> str | None:
    """Say why a search can't be made to write terms; None if it can."""
    if isinstance(options, SamplingOptions):
        return "given with sample, where a term that is forced is no sample of the model's"
    if engine is not None:
        return f"given with the engine {engine}, which can't be made to write a term in a beam"
    return None


def read_options(given: Mapping[str, Any]) -> tuple[WordingOptions, dict[str, Any]]:
    """Split the keywords of a call into those about words, and the others."""
    own = {name: value for name, value in given.items() if name in WordingOptions._fields}
    return WordingOptions(**own), {name: value for name, value in given.items() if name not in own}
