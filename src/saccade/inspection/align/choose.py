"""Chooses the head of a run that aligns words: by gold, by the agreement of two directions, or by coverage."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from saccade.data.text.corpus import Pair
from saccade.errors import UserError
from saccade.inspection.align import chosen_head
from saccade.inspection.align.aligner import Aligner, WordAttention, find_agreement, link_jointly, score_heads, swap
from saccade.inspection.align.gold import read_gold
from saccade.inspection.align.heads import HeadAgreement, HeadScore, find_best_head, list_candidates
from saccade.inspection.align.links import SYMMETRIZERS, AlignmentScores, Gold, Links, score_links
from saccade.inspection.insight import Head

Watch = Callable[[list[Pair]], Iterable[Pair]]  # passes pairs on


class AligningRun(NamedTuple):
    """A run folder, its model's attention, and the head of it that aligns, if one was chosen."""

    folder: Path
    attention: WordAttention
    head: Head | None

    def check(self) -> AligningRun:
        """Refuse a head that the model doesn't have."""
        known = list_candidates(*self.attention.num_layers_and_heads())
        if self.head is not None and self.head not in known:
            path = self.folder / chosen_head.NAME
            raise UserError(f"{path}: {describe_head(self.head)}: this model has none; delete the file")
        return self

    @property
    def aligner(self) -> Aligner:
        """Return the aligner that uses the chosen head."""
        assert self.head is not None
        return Aligner(self.attention, self.head)


class AlignReport(NamedTuple):
    """The scores of each run's heads against gold, and of the two best heads together."""

    heads: dict[Path, list[HeadScore]]
    together: dict[str, AlignmentScores]

    def plain(self) -> dict[str, Any]:
        runs = [
            {"run": str(folder), "best": _plain(find_best_head(scores)), "heads": [_plain(score) for score in scores]}
            for folder, scores in self.heads.items()
        ]
        return {"runs": runs, "together": {name: scores.plain() for name, scores in self.together.items()}}


def _plain(score: HeadScore) -> dict[str, Any]:
    return {**score.head._asdict(), **score.scores.plain()}


def read_with_gold(pairs: Iterable[Pair], path: Path) -> tuple[list[Pair], list[Gold]]:
    """Read all pairs and the links that people made in them."""
    read = list(pairs)
    return read, read_gold(path, [(len(pair.source.split()), len(pair.target.split())) for pair in read])


def choose_by_gold(
    runs: Sequence[AligningRun], pairs: list[Pair], gold: Sequence[Gold], watch: Watch
) -> tuple[list[AligningRun], AlignReport]:
    """Choose the best head of each run, and keep it with the run; the second is of the opposite direction."""
    heads: dict[Path, list[HeadScore]] = {}
    sides = [(pairs, gold), (list(swap(pairs)), [true.reverse() for true in gold])]
    for run, (read, true) in zip(runs, sides, strict=False):
        heads[run.folder] = score_heads(run.attention, watch(read), true)
        found = find_best_head(heads[run.folder])
        chosen_head.save(run.folder, found.head, chosen_by="gold", num_pairs=len(pairs), **found.scores.plain())
    chosen = [run._replace(head=find_best_head(heads[run.folder]).head) for run in runs]
    return chosen, AlignReport(heads, _score_together(chosen, pairs, gold) if len(chosen) == 2 else {})


def _score_together(runs: Sequence[AligningRun], pairs: list[Pair], gold: Sequence[Gold]) -> dict[str, AlignmentScores]:
    forward, backward = (run.aligner for run in runs)
    both = list(link_jointly(forward, backward, pairs))
    return {name: score_links((join(*one) for one in both), gold) for name, join in SYMMETRIZERS.items()}


def choose_by_agreement(runs: Sequence[AligningRun], pairs: list[Pair]) -> tuple[list[AligningRun], HeadAgreement]:
    """Choose the two heads of opposite directions that agree most, and keep them."""
    forward, backward = runs
    found = find_agreement(forward.attention, backward.attention, pairs)
    for run, head in zip(runs, (found.forward, found.backward), strict=True):
        chosen_head.save(run.folder, head, chosen_by="agreement", num_pairs=len(pairs), f1=found.f1)
    return [forward._replace(head=found.forward), backward._replace(head=found.backward)], found


def make_links(runs: Sequence[AligningRun], pairs: Iterable[Pair], symmetrize: str) -> Iterator[Links]:
    """Make the links of one run, or of two made one."""
    if len(runs) == 1:
        return runs[0].aligner.links(pairs)
    forward, backward = (run.aligner for run in runs)
    return itertools.starmap(SYMMETRIZERS[symmetrize], link_jointly(forward, backward, pairs))


def describe_head(head: Head) -> str:
    """Say in words which head it is."""
    which = "the mean of its heads" if head.head is None else f"head {head.head}"
    return f"layer {head.layer}, {which}, at the step that {'reads' if head.shift else 'writes'} the word"
