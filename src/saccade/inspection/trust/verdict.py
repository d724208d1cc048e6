"""How far attention may be trusted: the figures of many texts, and one sentence that says what they come to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple, final

import torch
from torch import Generator, Tensor

from saccade.errors import UserError
from saccade.inspection.trust.counterfactual import WEIGHTS
from saccade.inspection.trust.evidence import ORDERS, SHARES, Evidence, Moved

TIE = 1e-4  # of the greatest value: what differs by less ranks the same
NUM_CHANCES = 500  # rankings by chance, whose best twentieth is the floor

# The thresholds of the verdict.
LEAST_MOVE = 0.05  # uniform weights must move p by this, or the weights don't matter
MUCH, SOME = 0.5, 0.25  # Kendall's tau between attention and erasing
MUCH_REACH, SOME_REACH = 0.5, 0.2  # how far attention's curve lies from chance's towards erasing's

Against = dict[str, float]  # tau against each of MEASURES
MEASURES = ("gradient", "erasure")


def signs(value_NW: Tensor) -> Tensor:
    """Which of two words ranks higher, for all pairs, as rows [N, W²] of length 1 (0 where all words rank the same).

    The product of two rows is Kendall's tau-b: concordant less discordant pairs, over the root of those not tied in
    the one times those not tied in the other. A ranking that tells nothing has tau 0 with every other.
    """
    difference_NWW = value_NW.unsqueeze(-1) - value_NW.unsqueeze(-2)
    least_N11 = TIE * value_NW.abs().amax(-1)[:, None, None]
    sign_NWW = difference_NWW.sign() * (difference_NWW.abs() > least_N11)
    return torch.nn.functional.normalize(sign_NWW.flatten(1), dim=-1)


class Taus(NamedTuple):
    """Kendall's tau of one text, means over its steps: of attention, of uniform weights (a word's share of pieces), of
    gradient x input against erasing; of rankings by chance, one each; and of every head against erasing, [L, H].
    """

    attention: Against
    uniform: Against
    gradient: float
    chance: dict[str, Tensor]
    heads_LH: Tensor

    @classmethod
    def of(cls, found: Evidence, *, whole: bool, seed: int) -> Taus:
        """Step by step, or of the whole answer: sums over its steps."""
        parts = [found.weight_TW, found.gradient_TW, found.erasure_TW]
        weight, gradient, erasure = (signs(part.sum(0, keepdim=True).abs() if whole else part.abs()) for part in parts)
        measures = {"gradient": gradient, "erasure": erasure}
        random_NW = torch.rand(NUM_CHANCES, len(found.words), generator=Generator().manual_seed(seed))
        random, uniform = signs(random_NW), signs(found.share_W[None])
        heads_LHTW = found.weight_LHTW.sum(2, keepdim=True) if whole else found.weight_LHTW
        heads = signs(heads_LHTW.flatten(0, 2)).unflatten(0, heads_LHTW.shape[:3])
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
    """Means of Taus over texts; `floor` is what only a twentieth of all rankings by chance exceed."""

    attention: Against
    uniform: Against
    random: Against
    floor: Against
    gradient: float
    heads_LH: Tensor

    @classmethod
    def of(cls, taus: Sequence[Taus]) -> Agreement:
        """Every text counts the same."""
        chance = {name: torch.stack([one.chance[name] for one in taus]).mean(0) for name in MEASURES}
        return cls(
            _means([one.attention for one in taus]),
            _means([one.uniform for one in taus]),
            {name: float(draws.mean()) for name, draws in chance.items()},
            {name: float(draws.quantile(0.95)) for name, draws in chance.items()},
            fmean(one.gradient for one in taus),
            torch.stack([one.heads_LH for one in taus]).mean(0),
        )

    @property
    def bar(self) -> float:
        """What attention must beat: chance, and weights that only count a word's pieces."""
        return max(self.floor["erasure"], self.uniform["erasure"])

    @property
    def best_head(self) -> tuple[int, int] | None:
        """The layer and head that agree most with erasing, where there are several."""
        if self.heads_LH.numel() == 1:
            return None
        return divmod(int(self.heads_LH.argmax()), self.heads_LH.shape[1])

    def plain(self) -> dict[str, Any]:
        named = {name: getattr(self, name) for name in ("attention", "uniform", "random", "floor")}
        return {**named, "gradient": {"erasure": self.gradient}, "heads": self.heads_LH.tolist()}


class Verdict(NamedTuple):
    """`trust` is "much", "some" or "none"; the sentence says why."""

    trust: str
    sentence: str


@final
@dataclass(frozen=True)
class Panel:
    """The figures of a model on some texts: agreement by step and for the whole answer, curves, and other weights."""

    num_texts: int
    num_words: int
    num_steps: int
    steps: Agreement
    whole: Agreement
    curves: dict[str, list[float]]
    moved: dict[str, Moved]
    alone: Evidence | None  # of a single text

    @classmethod
    def of(cls, texts: Iterable[Evidence]) -> Panel:
        """From the evidence, of which little is kept; texts of one word are passed over, as they have no order."""
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
            {name: Moved(*map(fmean, zip(*(one[name] for one in moved), strict=True))) for name in WEIGHTS},
            first,
        )

    @property
    def has_steps(self) -> bool:
        """An answer is more than one step, as it isn't of a label."""
        return self.num_steps > self.num_texts

    def cost(self, order: str) -> float:
        """What erasing in an order costs: the mean fall of log p over the SHARES, the area over the curve (AOPC)."""
        first, *others = self.curves[order]
        return first - fmean(others)

    @property
    def reach(self) -> float:
        """Where attention's cost lies: 0 at that of chance, 1 at that of erasing's own order."""
        floor, best = self.cost("random"), self.cost("erasure")
        return (self.cost("attention") - floor) / (best - floor) if best - floor > TIE * abs(best) else 0.0

    @property
    def verdict(self) -> Verdict:
        """The thresholds, in order: do the weights matter, do they beat chance, how much do they tell?"""
        tau, moved = self.steps.attention["erasure"], self.moved["uniform"].distance
        if moved < LEAST_MOVE:
            return _none(f"uniform weights give nearly the same answer (p moves by {moved:.2f} of 1)")
        if tau <= (floor := self.steps.bar):
            return _none(
                f"it ranks words no better than chance or uniform weights do: tau {tau:.2f}, theirs {floor:.2f}"
            )
        told = f"tau {tau:.2f} against {said(self.steps.random['erasure'])} by chance"
        told += f" (gradient x input: {said(self.steps.gradient)}); erasing words in its order costs"
        told += f" {self.cost('attention'):.2f} of log p, at random {self.cost('random'):.2f},"
        told += f" by their own effect {self.cost('erasure'):.2f}"
        if tau >= MUCH and self.reach >= MUCH_REACH:
            return Verdict("much", f"Attention here tells much the same as erasing words: {told}.")
        if tau >= SOME and self.reach >= SOME_REACH:
            return Verdict("some", f"Attention here is a hint of which words matter, not an explanation: {told}.")
        if tau >= SOME:
            return _none(f"it ranks words as erasing does, but erasing them in that order costs little more: {told}")
        return _none(f"it has little to do with which words matter: {told}")

    def plain(self) -> dict[str, Any]:
        """For JSON; of a single text also what each of its words is worth at each step."""
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


def _none(why: str) -> Verdict:
    return Verdict("none", f"Don't read this model's attention as an explanation: {why}.")


def said(tau: float) -> str:
    """A number with two decimals, without the sign of a zero."""
    return f"{round(tau, 2) + 0.0:.2f}"


def _means(several: Sequence[Mapping[str, float]]) -> Against:
    return {name: fmean(one[name] for one in several) for name in MEASURES}
