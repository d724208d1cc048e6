"""The options and the result that every way of decoding shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from saccade.errors import UserError

MOST_PENALTY = 100  # more is beyond what floats hold


Cut = Literal["max_length", "max_length_factor", "max_rounds"]  # the option that cut an output


class Hypothesis(NamedTuple):
    """An output: its score, its ids without </s>, and the log-probability of each, </s> included if it `ended`.

    `cut` names the option that cut it; of one that ended, the option that cut another one which was better so far.
    """

    score: float
    ids: list[int]
    log_probabilities: list[float]
    ended: bool = True
    cut: Cut | None = None


@dataclass(frozen=True, kw_only=True)
class DecodingOptions:
    """Limits and scores.

    An output has at most `max_length_factor` ids per source id plus `max_length_extra`, and never more than
    `max_length`, </s> included. `no_repeat_ngram` n: no n ids in a row are written twice (Paulus 2018, section 2.5);
    0 allows it. `max_rounds`: an output that goes round the same few ids more often is cut there; 0 never does.
    `length_penalty` α and `length_offset` k: outputs are ranked by log p / ((k + length) / (k + 1))^α.
    `writes_unknown`: <unk> may be written, where the tokenizer knows such a thing.
    """

    num_best: int = 1
    length_penalty: float = 0.6
    length_offset: int = 5
    min_length: int = 0
    max_length: int = 4096
    max_length_factor: float = 2.0
    max_length_extra: int = 10
    no_repeat_ngram: int = 0
    max_rounds: int = 8
    writes_unknown: bool = True

    def __post_init__(self) -> None:
        check_at_least(
            self, num_best=1, length_penalty=0, length_offset=0, min_length=0, max_length=1, max_length_extra=0
        )
        check_at_least(self, no_repeat_ngram=0, max_rounds=0)
        if self.length_penalty > MOST_PENALTY:
            raise UserError(f"length_penalty: {self.length_penalty} given; it must be {MOST_PENALTY} or less")
        if not self.max_length_factor > 0:
            raise UserError(f"max_length_factor: {self.max_length_factor} given; it must be above 0")
        if self.min_length >= self.max_length:
            raise UserError(f"min_length: {self.min_length} given; it must be below max_length, {self.max_length}")
        if self.max_rounds == 1:
            raise UserError("max_rounds: 1 given; it must be 2 or more, or 0 to let outputs repeat themselves")

    def limit(self, source_length: int) -> int:
        """Return the longest length of a source's output, </s> included."""
        own = self.max_length_factor * source_length + self.max_length_extra
        return max(self.min_length + 1, int(min(self.max_length, own)))

    def limits(self, source_lengths: Sequence[int], prefixes: Sequence[Sequence[int]]) -> list[int]:
        """Return the longest lengths of some sources' outputs, which may have to begin with these prefixes."""
        limit = {length: self.limit(length) for length in set(source_lengths)}
        limits = [limit[length] for length in source_lengths]
        if not prefixes:
            return limits
        return [max(limit, len(prefix) + 1) for limit, prefix in zip(limits, prefixes, strict=True)]

    def name_limit(self, limit: int) -> Cut:
        """Return the option that sets this limit."""
        return "max_length" if limit >= self.max_length else "max_length_factor"

    def normalize_score(self, log_probability: float, length: int) -> float:
        """log p / ((k + length) / (k + 1))^α, which hypotheses are ranked by; with k = 5 it is Wu 2016, equation 14."""
        counted = max(self.length_offset + length, 1)  # nothing has no length
        return log_probability / (counted / (self.length_offset + 1)) ** self.length_penalty

    def hypothesis(self, ids: list[int], log_probabilities: list[float], cut: Cut | None = None) -> Hypothesis:
        score = self.normalize_score(sum(log_probabilities), len(log_probabilities))
        return Hypothesis(score, ids, log_probabilities, cut is None, cut)


def check_at_least(options: object, **least: float) -> None:
    """Raise an error that names the first field which is too small."""
    for name, smallest in least.items():
        if not (value := getattr(options, name)) >= smallest:
            raise UserError(f"{name}: {value} given; it must be {smallest} or more")
