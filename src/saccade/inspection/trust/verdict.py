"""Sums up how far attention may be trusted: the figures of many texts, and a verdict of one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple, final

import torch
from torch import Generator, Tensor

from saccade.errors import UserError
from saccade.inspection.trust.counterfactual import WEIGHTS
from saccade.inspection.trust.evidence import ORDERS, SHARES, AnswerChange, Evidence

TIE = 1e-4  # of the greatest value: what differs by less ranks the same
NUM_CHANCES = 500  # rankings by chance, whose best twentieth is the floor

# The thresholds of the verdict.
LEAST_MOVE = 0.05  # uniform weights must move p by this, or the weights don't matter
MUCH, SOME = 0.5, 0.25  # Kendall's tau between attention and erasing
MUCH_REACH, SOME_REACH = 0.5, 0.2  # how far attention's curve lies from chance's towards erasing's

Against = dict[str, float]  # tau against each of MEASURES
MEASURES = ("gradient", "erasure")


def compare_words(value_NW: Tensor) -> Tensor:
    """Compare all pairs of words by rank, as rows [N, W²] of length 1 (or 0 if all words rank the same).

    The product of two rows is Kendall's tau-b: concordant less discordant pairs, over the root of those not tied in
    the one times those not tied in the other. A ranking in which all words tie has tau 0 with every other.
    """
    difference_NWW = value_NW.unsqueeze(-1) - value_NW.unsqueeze(-2)
    least_N11 = TIE * value_NW.abs().amax(-1)[:, None, None]
    sign_NWW = difference_NWW.sign() * (difference_NWW.abs() > least_N11)
    return torch.nn.functional.normalize(sign_NWW.flatten(1), dim=-1)


class Taus(NamedTuple):
    """Kendall's tau of one text, as means over its steps.

    Of attention and of uniform weights (a word's share of pieces) against both MEASURES, of gradient x input against
    erasing, of each random ranking against both, and of every head against erasing, [L, H].
    """

    attention: Against
    uniform: Against
    gradient: float
    chance: dict[str, Tensor]
    heads_LH: Tensor

    @classmethod
    def of(cls, found: Evidence, *, whole: bool, seed: int) -> Taus:
        """Compute the taus step by step, or for the whole answer from sums over its steps."""
        parts = [found.weight_TW, found.gradient_TW, found.erasure_TW]
        weight, gradient, erasure = (
            compare_words(part.sum(0, keepdim=True).abs() if whole else part.abs()) for part in parts
        )
        measures = {"gradient": gradient, "erasure": erasure}
        random_NW = torch.rand(NUM_CHANCES, len(found.words), generator=Generator().manual_seed(seed))
        random, uniform = compare_words(random_NW), compare_words(found.share_W[None])
        heads_LHTW = found.weight_LHTW.sum(2, keepdim=True) if whole else found.weight_LHTW
        heads = compare_words(heads_LHTW.flatten(0, 2)).unflatten(0, heads_LHTW.shape[:3])
        return cls(
            {name: float((weight * other).sum(-1).mean()) for name, other in measures.items()},
            {name: float((uniform * other).sum(-1).mean()) for name, other in measures.items()},
            float((gradient * erasure).sum(-1).mean()),
            {name: (random @ other.mT).mean(-1) for name, other in measures.items()},
            (heads * erasure).sum(-1).mean(-1),
        )


@final
@dataclass(frozen=True)
class Agreement:
    """Means of Taus over texts; only a twentieth of all random rankings exceed `floor`."""

    attention: Against
    uniform: Against
    random: Against
    floor: Against
    gradient: float
    heads_LH: Tensor

    @classmethod
    def of(cls, taus: Sequence[Taus]) -> Agreement:
        """Average the taus; every text counts the same."""
        chance = {name: torch.stack([one.chance[name] for one in taus]).mean(0) for name in MEASURES}
        return cls(
            _average([one.attention for one in taus]),
            _average([one.uniform for one in taus]),
            {name: float(draws.mean()) for name, draws in chance.items()},
            {name: float(draws.quantile(0.95)) for name, draws in chance.items()},
            fmean(one.gradient for one in taus),
            torch.stack([one.heads_LH for one in taus]).mean(0),
        )

    @property
    def bar(self) -> float:
        """Return the tau that attention must beat: that of chance, or of uniform weights if it is higher."""
        return max(self.floor["erasure"], self.uniform["erasure"])

    @property
    def best_head(self) -> tuple[int, int] | None:
        """Return the layer and head that agree most with erasing, or None if there is only one head."""
        if self.heads_LH.numel() == 1:
            return None
        return divmod(int(self.heads_LH.argmax()), self.heads_LH.shape[1])

    def plain(self) -> dict[str, Any]:
        named = {name: getattr(self, name) for name in ("attention", "uniform", "random", "floor")}
        return {**named, "gradient": {"erasure": self.gradient}, "heads": self.heads_LH.tolist()}


class Verdict(NamedTuple):
    """A level of trust, "much", "some" or "none", and a sentence that says why."""

    trust: str
    sentence: str


@final
@dataclass(frozen=True)
class TrustFigures:
    """The figures of a model on some texts: agreement by step and for the whole answer, curves, and other weights."""

    num_texts: int
    num_words: int
    num_steps: int
    steps: Agreement
    whole: Agreement
    curves: dict[str, list[float]]
    moved: dict[str, AnswerChange]
    alone: Evidence | None  # of a single text

    @classmethod
    def of(cls, texts: Iterable[Evidence]) -> TrustFigures:
        """Sum up the evidence in little memory; texts of one word are skipped, as they have no order."""
        first, by_step, whole, curves, moved, words, steps = None, [], [], [], [], 0, 0
        for number, found in enumerate(text for text in texts if len(text.words) > 1):
            first = found if number == 0 else None
            by_step.append(Taus.of(found, whole=False, seed=number))
            whole.append(Taus.of(found, whole=True, seed=number))
            curves.append(found.curves)
            moved.append(found.moved)
            words, steps = words + len(found.words), steps + len(found.weight_TW)
        if not by_step:
            raise UserError("trust: no text has two words or more, so there is nothing to rank")
        return cls(
            len(by_step),
            words,
            steps,
            Agreement.of(by_step),
            Agreement.of(whole),
            {name: [fmean(at) for at in zip(*(one[name] for one in curves), strict=True)] for name in ORDERS},
            {name: AnswerChange(*map(fmean, zip(*(one[name] for one in moved), strict=True))) for name in WEIGHTS},
            first,
        )

    @property
    def has_steps(self) -> bool:
        """Return True if answers have more than one step; a label has only one."""
        return self.num_steps > self.num_texts

    def cost(self, order: str) -> float:
        """Return the mean fall of log p over the SHARES, which is the area over the curve (AOPC)."""
        first, *others = self.curves[order]
        return first - fmean(others)

    @property
    def reach(self) -> float:
        """Return where attention's cost lies between random order (0) and erasing's own order (1)."""
        floor, best = self.cost("random"), self.cost("erasure")
        return (self.cost("attention") - floor) / (best - floor) if best - floor > TIE * abs(best) else 0.0

    @property
    def verdict(self) -> Verdict:
        """Apply the thresholds in order: do the weights matter, do they beat chance, how much do they tell?"""
        tau, moved = self.steps.attention["erasure"], self.moved["uniform"].distance
        if moved < LEAST_MOVE:
            return _distrust(f"uniform weights give nearly the same answer (p moves by {moved:.2f} of 1)")
        if tau <= (floor := self.steps.bar):
            return _distrust(
                f"it ranks words no better than chance or uniform weights do: tau {tau:.2f}, theirs {floor:.2f}"
            )
        told = f"tau {tau:.2f} against {format_decimals(self.steps.random['erasure'])} by chance"
        told += f" (gradient x input: {format_decimals(self.steps.gradient)}); erasing words in its order costs"
        told += f" {self.cost('attention'):.2f} of log p, at random {self.cost('random'):.2f},"
        told += f" by their own effect {self.cost('erasure'):.2f}"
        if tau >= MUCH and self.reach >= MUCH_REACH:
            return Verdict("much", f"Attention here tells much the same as erasing words: {told}.")
        if tau >= SOME and self.reach >= SOME_REACH:
            return Verdict("some", f"Attention here is a hint of which words matter, not an explanation: {told}.")
        if tau >= SOME:
            return _distrust(
                f"it ranks words as erasing does, but erasing them in that order costs little more: {told}"
            )
        return _distrust(f"it has little to do with which words matter: {told}")

    def plain(self) -> dict[str, Any]:
        """Return all figures for JSON; a single text also has the values of each word at each step."""
        shown = {
            "texts": self.num_texts,
            "words": self.num_words,
            "steps": self.num_steps,
            "tau": {"steps": self.steps.plain(), "whole": self.whole.plain()},
            "curves": {"erased": list(SHARES), **self.curves},
            "cost": {name: self.cost(name) for name in self.curves},
            "reach": self.reach,
            "moved": {name: one._asdict() for name, one in self.moved.items()},
            "verdict": self.verdict._asdict(),
        }
        if self.alone is None:
            return shown
        say = {"attention": self.alone.weight_TW, "gradient": self.alone.gradient_TW, "erasure": self.alone.erasure_TW}
        return {**shown, "text": {"words": self.alone.words, **{name: told.tolist() for name, told in say.items()}}}


def _distrust(why: str) -> Verdict:
    return Verdict("none", f"Don't read this model's attention as an explanation: {why}.")


def format_decimals(number: float) -> str:
    """Format a number with two decimals, and zero without a sign."""
    return f"{round(number, 2) + 0.0:.2f}"


def _average(several: Sequence[Mapping[str, float]]) -> Against:
    return {name: fmean(one[name] for one in several) for name in MEASURES}
