"""Runs a comparison: rates by successive halving, then all seeds, then tests, a table and a picture. It goes on."""

from __future__ import annotations

import json
import math
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

import torch
from rich.console import Console

from saccade.errors import UserError
from saccade.files import lock_folder, replace_file
from saccade.lab.compare import result, variants
from saccade.lab.compare.processes import Worker, Workers
from saccade.lab.compare.variants import Changes, RunOutline, Variant
from saccade.lab.compare.worker import Errand
from saccade.runs.report import read_log

PLAN, VARIANTS, RATES = "plan.json", "variants.json", "rates.json"
FEWEST_SEEDS = 2


@dataclass(frozen=True)
class ComparisonOptions:
    """Options of a comparison; all but `seeds`, `jobs` and `threads` must be the same when it goes on."""

    config: Path
    overrides: Sequence[str]
    vary: Sequence[str]
    seeds: int
    first: int
    factors: Sequence[float]  # of the config's learning rate; the best is chosen for each variant
    match: str | None
    tolerance: float
    jobs: int
    threads: int | None
    minutes: float = math.inf  # after which no run is begun
    equal: Literal["steps", "time"] = "steps"  # of all variants, when they train

    def plan(self) -> dict[str, Any]:
        """Return what makes it another comparison."""
        names = ("overrides", "vary", "first", "factors", "match", "tolerance", "equal")
        return {"config": str(self.config), **{name: getattr(self, name) for name in names}}


class Chosen(NamedTuple):
    """The learning rate and the steps of a variant."""

    rate: float
    steps: int


def run(options: ComparisonOptions, out: Path, console: Console) -> dict[str, Any]:
    """Train, test and draw; return what compare.json holds."""
    check_seeds(options.seeds)
    if options.equal == "time" and len(options.factors) < 2:
        raise UserError("--equal: time given; it needs two or more --rates, as their trainings are what is timed")
    changes = variants.list_changes(options.vary)
    for one in changes:  # before anything is built
        variants.load(options.config, options.overrides, one, out)
    is_new = not out.exists()
    comparison = _Comparison(options, changes, out, console)
    try:
        with lock_folder(out):
            _check_plan(out / PLAN, options.plan())
            return comparison.run()
    except UserError:
        if is_new and not (out / VARIANTS).exists():
            shutil.rmtree(out)
        raise
    finally:
        comparison.workers.close()


def check_seeds(seeds: int) -> None:
    """Refuse a single seed, which says nothing of chance."""
    if seeds < FEWEST_SEEDS:
        raise UserError(f"--seeds: {seeds} given; allowed: 2 or more, as one says nothing of chance")


def _check_plan(path: Path, plan: dict[str, Any]) -> None:
    """Refuse to go on in a folder with another comparison."""
    plan = json.loads(json.dumps(plan))
    if not path.exists():
        with replace_file(path) as draft:
            draft.write_text(json.dumps(plan, indent=1), "utf-8")
        return
    earlier = json.loads(path.read_text("utf-8"))
    if changed := [name for name in plan if plan[name] != earlier.get(name)]:
        raise UserError(
            f"{path.parent} holds a comparison with other {', '.join(changed)}; give another folder (--out)"
        )


@final
class _Comparison:
    """A comparison under way. What is done is known from the files of its runs."""

    def __init__(self, options: ComparisonOptions, changes: Sequence[Changes], out: Path, console: Console) -> None:
        self.options, self.out, self.console = options, out, console
        count = torch.cuda.device_count()
        places = [{"CUDA_VISIBLE_DEVICES": str(number % count)} if count else {} for number in range(options.jobs)]
        self.workers, self.until = Workers(places), time.monotonic() + 60 * options.minutes
        self.changes, self.variants = changes, list[Variant]()
        fields = [*changes[0], *([options.match] if options.match else [])]
        self.tokenizers = str(out / "tokenizers") if variants.share_tokenizers(fields) else None

    def run(self) -> dict[str, Any]:
        """Train and score what is left, and return the results."""
        self.variants = self._make()
        self.workers.until = self.until
        for one in self.variants:
            self._say(f"{one.name}: {one.outline.parameters:,} parameters")
        shortest = min(one.outline.max_steps for one in self.variants)
        self.budgets = plan_budgets(len(self.options.factors), shortest)
        first = self.budgets[0] if self.budgets else shortest
        every = min(one.outline.validate_every for one in self.variants)
        self.validate_every = first // -(-first // every) if self.budgets else every
        chosen = self.tune()
        pairs = [(one, seed) for seed in self.seeds for one in self.variants]  # cut short, it is fair with fewer seeds
        self.workers.each(lambda worker, pair: self._finish(worker, pair[0], chosen[pair[0].name], pair[1]), pairs)
        done = [seed for seed in self.seeds if all(self._score_path(one, seed).exists() for one in self.variants)]
        if len(done) < FEWEST_SEEDS:
            raise UserError(f"--minutes: over when {len(done)} seeds were done; the same command goes on")
        scored = {
            one.name: [json.loads(self._score_path(one, seed).read_text("utf-8")) for seed in done]
            for one in self.variants
        }
        return result.write(self.out, self._facts(chosen, done), scored, self.console)

    def _make(self) -> list[Variant]:
        """Build all variants without training them, if that was not done."""
        options, path = self.options, self.out / VARIANTS
        if path.exists():
            stored = json.loads(path.read_text("utf-8"))
            return [Variant(name, changes, RunOutline(*outline)) for name, changes, outline in stored]

        def build(worker: Worker, changes: Changes) -> RunOutline:
            return worker.outline(str(options.config), options.overrides, changes, self.tokenizers)

        def build_all(changes: Sequence[Changes]) -> list[RunOutline]:
            found = self.workers.each(build, changes[:1])  # which leaves tokenizers for the others
            return [*found, *self.workers.each(build, changes[1:])]

        given = (options.config, options.overrides, self.changes, build_all)
        made = variants.make(*given, match=options.match, tolerance=options.tolerance)
        with replace_file(path) as draft:
            draft.write_text(json.dumps(made), "utf-8")
        return made

    @property
    def seeds(self) -> range:
        return range(self.options.first, self.options.first + self.options.seeds)

    def tune(self) -> dict[str, Chosen]:
        """Choose a learning rate for each variant: all train a little with the first seed, the better half goes on."""
        path = self.out / RATES
        if path.exists():
            return {name: Chosen(*one) for name, one in json.loads(path.read_text("utf-8")).items()}
        left = {one.name: [one.outline.rate * factor for factor in self.options.factors] for one in self.variants}
        for budget in self.budgets:
            runs = [(one, rate, budget) for one in self.variants for rate in left[one.name]]
            found = self.workers.each(self._try, runs)
            if len(found) < len(runs):
                raise UserError("--minutes: over before learning rates were chosen; the same command goes on")
            scores = {(one.name, rate): score for (one, rate, _), score in zip(runs, found, strict=True)}
            for one in self.variants:
                best = sorted(left[one.name], key=lambda rate: -scores[one.name, rate])
                if scores[one.name, best[0]] == -math.inf:
                    raise UserError(
                        f"{one.name}: no learning rate of {', '.join(f'{r:g}' for r in best)} gives a score"
                    )
                left[one.name] = sorted(best[: -(-len(best) // 2)])
        for name, rates in left.items():
            if self.budgets:
                self._say(f"{name}: learning rate {rates[0]:g}")
        steps = self._count_steps({name: rates[0] for name, rates in left.items()})
        chosen = {name: Chosen(rates[0], steps[name]) for name, rates in left.items()}
        with replace_file(path) as draft:
            draft.write_text(json.dumps(chosen, indent=1), "utf-8")
        return chosen

    def _count_steps(self, rates: Mapping[str, float]) -> dict[str, int]:
        """Return the steps of each variant: those of its config, or as many as take the time of the first one."""
        steps = {one.name: one.outline.max_steps for one in self.variants}
        if self.options.equal == "steps":
            return steps
        seed = self.options.first
        paces = {one.name: read_pace(self._folder(one, rates[one.name], seed)) for one in self.variants}
        first = self.variants[0].name
        return {name: max(1, round(steps[first] * paces[first] / pace)) for name, pace in paces.items()}

    def _try(self, worker: Worker, run: tuple[Variant, float, int]) -> float:
        """Train up to a budget, if that wasn't done, and return the best validation score until then."""
        one, rate, budget = run
        folder, wanted = self._folder(one, rate, self.options.first), Chosen(rate, one.outline.max_steps)
        is_short = max(read_scores(folder), default=0) < budget
        if is_short and not self._train(worker, one, wanted, self.options.first, stop=budget):
            return -math.inf
        return max((score for step, score in read_scores(folder).items() if step <= budget), default=-math.inf)

    def _finish(self, worker: Worker, one: Variant, chosen: Chosen, seed: int) -> None:
        path = self._score_path(one, seed)
        if path.exists():
            return
        path.parent.mkdir(exist_ok=True)
        if not self._train(worker, one, chosen, seed, score=str(path)):
            what = f"with the seed {seed} and the learning rate {chosen.rate:g} its loss was not finite"
            raise UserError(f"{one.name}: {what}")
        scored = json.loads(path.read_text("utf-8"))
        self._say(f"{one.name}, seed {seed}: {scored['metric']} {scored['score']:.2f} ({scored['seconds']:.0f} s)")

    def _train(self, worker: Worker, one: Variant, chosen: Chosen, seed: int, **errand: Any) -> bool:
        changes = {
            **one.changes,
            "seed": seed,
            "training.learning_rate": chosen.rate,
            "training.max_steps": chosen.steps,
            "training.validate_every": min(self.validate_every, chosen.steps),
        }
        folder, options = self._folder(one, chosen.rate, seed), self.options
        if chosen.steps != one.outline.max_steps:  # not a run that was tuned for more or fewer
            folder = folder.with_name(f"{folder.name}-{chosen.steps}")
        given = Errand(str(options.config), list(options.overrides), changes, str(folder), **errand)
        return worker.train(given._replace(threads=options.threads, tokenizers=self.tokenizers))

    def _folder(self, one: Variant, rate: float, seed: int) -> Path:
        return self.out / one.slug / f"{rate:.6g}-{seed}"

    def _score_path(self, one: Variant, seed: int) -> Path:
        return self.out / "scores" / f"{one.slug}-{seed}.json"

    def _facts(self, chosen: Mapping[str, Chosen], seeds: list[int]) -> dict[str, Any]:
        return {
            **self.options.plan(),
            "seeds": seeds,
            "rates": {name: one.rate for name, one in chosen.items()},
            "budgets": self.budgets,
            "steps": {name: one.steps for name, one in chosen.items()},
        }

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)


def plan_budgets(num_rates: int, max_steps: int) -> list[int]:
    """Return the steps after which half of the rates is left; the last one standing then trains to the end.

    Jamieson & Talwalkar 2016, section 3.
    """
    halvings = math.ceil(math.log2(num_rates))
    return [max(1, max_steps >> (halvings - number)) for number in range(halvings)]


def read_scores(folder: Path) -> dict[int, float]:
    """Return a run's validation scores by their steps; higher is better, and none is finite that was not."""
    rows = read_log(folder / "log.jsonl")
    return {row["step"]: -math.inf if row["score"] is None else row["score"] for row in rows if "score" in row}


def read_pace(folder: Path) -> float:
    """Return the usual seconds of a run's steps: the median of what its log has between two rows."""
    rows = [row for row in read_log(folder / "log.jsonl") if "seconds" in row]
    gaps = [(row["seconds"], row["step"] - earlier["step"]) for earlier, row in pairwise(rows)]
    return statistics.median([seconds / steps for seconds, steps in gaps if steps] or [rows[-1]["seconds"]])
