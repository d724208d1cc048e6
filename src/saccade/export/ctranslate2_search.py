"""CTranslate2 in the place of our search: the same options, limits, scores and ranks, or a refusal."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, final

import torch

from saccade.data.batches import pad_sources
from saccade.data.text.tokenizer import END, PAD, SPECIAL, START, UNKNOWN
from saccade.decoding import BeamOptions, Cut, Hypothesis, SamplingOptions, Stepper, search
from saccade.decoding.beam import rank_hypotheses
from saccade.decoding.constraints import LONGEST_BLOCK, SHORTEST_LOOP, Constraints, constrain
from saccade.decoding.slices import Tick, narrow
from saccade.errors import UserError
from saccade.export.ctranslate2 import CTranslate2Engine, spell
from saccade.export.proof import TOKENS, Ids
from saccade.tasks.texts import batch_by_length

CALL_STEPS = 2048  # of all hypotheses in a call, where others wait between calls
ROOM = 1.2  # a beam is first searched to so many steps for each of the source, and
MORE_ROOM = 8  # so many more
NEVER = Hypothesis(-math.inf, [], [], ended=False, cut="max_length")  # of a source that nobody waits for
FORBIDDING = ("no_repeat_ngram", "min_length")


class Ctranslate2Hypothesis(NamedTuple):
    """A hypothesis of CTranslate2: ids without </s>, their log p in all, and whether it ended."""

    ids: list[int]
    total: float
    ended: bool

    @property
    def length(self) -> int:
        return len(self.ids) + self.ended

    def rank(self, options: BeamOptions) -> float:
        return options.normalize_score(self.total, self.length)


@final
class CTranslate2Search:
    """Searches with an exported model.

    CTranslate2 stops by rules of its own and has another length penalty, so it is asked for every hypothesis that
    ends within some steps. These are ranked as ours are, and if one that did not end could still be better, the search
    is done again up to the limit.
    """

    name = "ctranslate2"

    def __init__(self, engine: CTranslate2Engine, network: Stepper) -> None:
        self._engine, self._network = engine, network

    def refuse(self, options: BeamOptions | SamplingOptions) -> str | None:
        """Say which option it can't honour; None if it can honour all."""
        if isinstance(options, SamplingOptions):
            return "sample: CTranslate2 draws with random numbers of its own"
        forbidding = [name for name in FORBIDDING if getattr(options, name)]
        if not options.writes_unknown:
            forbidding.append("writes_unknown")
        if options.width > 1 and forbidding:
            return f"{forbidding[0]} in a beam: CTranslate2 gives the probability of forbidden ids to the others"
        if options.patience:
            return "patience: it is asked for every output that ends, and these are ranked as ours are"
        return None

    def refuse_prefixes(self, options: BeamOptions | SamplingOptions) -> str | None:
        """Say why outputs can't be made to begin with something; None if they can."""
        if isinstance(options, BeamOptions) and options.width == 1:
            return None
        return "prefixes in a beam: CTranslate2 loses outputs that end with it"

    def search(
        self, sources: Ids, prefixes: Ids, options: BeamOptions | SamplingOptions, tick: Tick | None
    ) -> list[list[Hypothesis]]:
        """Return the best outputs of every source, best first; `tick` is called between calls of CTranslate2."""
        assert isinstance(options, BeamOptions)  # others are refused
        if any(prefixes) and (reason := self.refuse_prefixes(options)) is not None:
            raise UserError(f"{reason}; the engine torch can")
        self._check_lengths(sources)
        found: list[list[Hypothesis]] = [[NEVER] for _ in sources]
        for rows in self._group(sources, prefixes, options, is_sliced=tick is not None):
            wanted = None if tick is None else tick()
            kept = [row for row in rows if wanted is None or wanted[row]]
            if kept:
                batch = _Batch(self._engine, [sources[row] for row in kept], [prefixes[row] for row in kept], options)
                tell = None if tick is None else narrow(tick, kept)
                best = batch.write_greedily(tell) if options.width == 1 else batch.search_beam(self._network, tell)
                for row, hypotheses in zip(kept, best, strict=True):
                    found[row] = hypotheses
        return found

    def _check_lengths(self, sources: Ids) -> None:
        longest, most = max(map(len, sources), default=0), self._engine.longest
        if most is not None and longest >= most:
            raise UserError(f"source: {longest:,} tokens given; CTranslate2 reads at most {most - 1:,} of this model")

    def _group(self, sources: Ids, prefixes: Ids, options: BeamOptions, *, is_sliced: bool) -> Iterator[list[int]]:
        """Group sources of like lengths; where others wait, by what a call may cost."""
        lengths = [len(source) for source in sources]
        for rows in batch_by_length(lengths, 2 * TOKENS // options.width):
            steps = options.width * max(
                options.limits([lengths[row] + 1 for row in rows], [prefixes[row] for row in rows])
            )
            size = max(1, CALL_STEPS // steps) if is_sliced else len(rows)
            for first in range(0, len(rows), size):
                yield rows[first : first + size]


@final
class _Batch:
    """Sources that one call of CTranslate2 searches."""

    def __init__(self, engine: CTranslate2Engine, sources: Ids, prefixes: Ids, options: BeamOptions) -> None:
        self._engine, self._sources, self._prefixes, self._options = engine, sources, prefixes, options
        constraints = constrain(options, *pad_sources(sources), prefixes)
        most = engine.longest or options.max_length
        self._constraints = Constraints(
            options, constraints.prefix_BT, constraints.limit_B.clamp(max=most), constraints.guarded_B
        )
        self._limits: list[int] = self._constraints.limit_B.tolist()

    def write_greedily(self, tick: Tick | None) -> list[list[Hypothesis]]:
        """Write the likeliest id at every step; a step that nobody waits for is the last one."""
        step = _Steps(tick)
        more: dict[str, Any] = {} if tick is None else {"callback": step}
        found = self._translate(range(len(self._sources)), max(self._limits), beam_size=1, **more)
        step.go_on()
        written, cuts = Ids(), list[Cut | None]()
        for row, (one,) in enumerate(found):
            ids, cut = self._cut(row, one)
            written.append(ids)
            cuts.append(cut)
        return [[one] for one in self._score(range(len(written)), written, cuts)]

    def _cut(self, row: int, one: Ctranslate2Hypothesis) -> tuple[list[int], Cut | None]:
        """Cut an output where our search would have: where it goes round, or at its limit."""
        limit, step = self._limits[row], self._find_loop(row, one.ids)
        if step is None and one.ended and one.length <= limit:
            return one.ids, None
        ids = one.ids[: limit if step is None else step]
        kept, cut = self._constraints.rows(torch.tensor([row])).cut(0, ids)
        return ids[:kept], cut

    def search_beam(self, network: Stepper, tick: Tick | None) -> list[list[Hypothesis]]:
        """Search to a likely length, and again to the limit what is not certain then.

        A beam in which an output goes round is searched by our own model, which drops it and makes room for others.
        """
        likely = max(int(ROOM * (len(source) + 1)) + MORE_ROOM for source in self._sources)
        looked = _BatchFindings({}, [], [])
        self._search_to(range(len(self._sources)), min(likely, *self._limits), looked)
        again = looked.uncertain
        for limit in sorted({self._limits[row] for row in again}):
            if tick is not None:
                tick()
            self._search_to([row for row in again if self._limits[row] == limit], limit, looked)
        found = self._score_ranked(looked.ranked)
        for row in looked.looping:
            tell = None if tick is None else narrow(tick, [row])
            (found[row],) = search(network, *pad_sources([self._sources[row]]), self._options, (), tell)
        return found

    def _search_to(self, rows: Sequence[int], steps: int, looked: _BatchFindings) -> None:
        """Add the best outputs of sources after so many steps, and the sources whose outputs are not certain then."""
        width = self._options.width
        every: dict[str, Any] = {
            "beam_size": width,
            "patience": float(steps + 1),
            "num_hypotheses": width * (steps + 1),
        }
        several = self._translate(rows, steps, suppresses=False, **every)
        for row, found in zip(rows, several, strict=True):
            if any(number <= START for one in found for number in one.ids):
                (found,) = self._translate([row], steps, **every)
            if any(self._find_loop(row, one.ids) is not None for one in found):
                looked.looping.append(row)
            elif (ranked := self._rank(row, found, steps)) is None:
                looked.uncertain.append(row)
            else:
                looked.ranked[row] = ranked

    def _rank(self, row: int, found: list[Ctranslate2Hypothesis], steps: int) -> RankedOutputs | None:
        """Return the best hypotheses of a source; None if one that did not end in these steps may be better."""
        options, limit = self._options, self._limits[row]
        ended = sorted((one for one in found if one.ended), key=lambda one: one.rank(options), reverse=True)
        best, cut = ended[: options.num_best], [one for one in found if not one.ended]
        worst_wanted = best[-1].rank(options) if len(best) == options.num_best else -math.inf
        if steps < limit and worst_wanted < options.normalize_score(_bound_live(found, steps), limit):
            return None
        is_lost = steps == limit and bool(best) and any(one.rank(options) > best[0].rank(options) for one in cut)
        return RankedOutputs([one.ids for one in best], [one.ids for one in cut] if steps == limit else [], is_lost)

    def _find_loop(self, row: int, ids: list[int]) -> int | None:
        """Return the step at which our search would have cut an output, because it goes round; None: it doesn't."""
        own = self._constraints.rows(torch.tensor([row]))
        steps = range(SHORTEST_LOOP, min(len(ids), self._limits[row]) + 1, LONGEST_BLOCK)
        return next((step for step in steps if bool(own.in_loop(torch.tensor([[START, *ids[:step]]])))), None)

    def _score_ranked(self, chosen: Mapping[int, RankedOutputs]) -> list[list[Hypothesis]]:
        """Score what was chosen, and rank it once more by these scores."""
        found: list[list[Hypothesis]] = [[NEVER] for _ in self._sources]
        rows = [row for row, ranked in chosen.items() for _ in ranked.list_outputs(self._options.num_best)]
        outputs = [one for ranked in chosen.values() for one in ranked.list_outputs(self._options.num_best)]
        cuts = [
            None if ended else self._options.name_limit(self._limits[row])
            for row, (_, ended) in zip(rows, outputs, strict=True)
        ]
        scored = zip(rows, self._score(rows, [ids for ids, _ in outputs], cuts), strict=True)
        for row, group in itertools.groupby(scored, lambda pair: pair[0]):
            several = [one for _, one in group]
            ended, cut = ([one for one in several if one.ended is is_end] for is_end in (True, False))
            first, *others = rank_hypotheses(ended, cut, self._options.num_best)
            decided = self._options.name_limit(self._limits[row]) if chosen[row].is_lost else first.cut
            found[row] = [first._replace(cut=decided), *others]
        return found

    def _score(self, rows: Sequence[int], outputs: Ids, cuts: Sequence[Cut | None]) -> list[Hypothesis]:
        """Return outputs with log p of each id, from one pass that is given them."""
        steps = self._engine.log_probabilities([self._sources[row] for row in rows], outputs)
        columns = zip(outputs, steps, cuts, strict=True)
        return [self._options.hypothesis(ids, log_p if cut is None else log_p[:-1], cut) for ids, log_p, cut in columns]

    def _translate(
        self, rows: Sequence[int], steps: int, *, suppresses: bool = True, **how: Any
    ) -> list[list[Ctranslate2Hypothesis]]:
        """Return CTranslate2's hypotheses of at most so many ids, </s> included; <pad> and <s> are suppressed.

        What it suppresses gives its probability to other ids, which decides nothing in a greedy search.
        """
        engine, options = self._engine, self._options
        suppressed = [PAD, START] if options.writes_unknown else [PAD, START, UNKNOWN]
        found = engine.translator.translate_batch(
            spell(engine.source, [self._sources[row] for row in rows]),
            [names or None for names in spell(engine.target, [self._prefixes[row] for row in rows])],
            length_penalty=0,
            no_repeat_ngram_size=options.no_repeat_ngram,
            suppress_sequences=[[SPECIAL[number]] for number in suppressed] if suppresses else None,
            return_scores=True,
            return_end_token=True,
            max_input_length=0,
            min_decoding_length=options.min_length,
            max_decoding_length=steps,
            **how,
        )
        return [[self._read(*one) for one in zip(several.hypotheses, several.scores, strict=True)] for several in found]

    def _read(self, names: list[str], total: float) -> Ctranslate2Hypothesis:
        ids = self._engine.read(names)
        ended = bool(ids) and ids[-1] == END
        return Ctranslate2Hypothesis(ids[: len(ids) - ended], total, ended)


class RankedOutputs(NamedTuple):
    """The best outputs that ended, those at the limit, and whether one of these was better so far."""

    ended: Ids
    cut: Ids
    is_lost: bool

    def list_outputs(self, num_best: int) -> list[tuple[list[int], bool]]:
        """Return outputs, and whether they ended; those that did not only if too few did."""
        more = self.cut if len(self.ended) < num_best else []
        return [*((ids, True) for ids in self.ended), *((ids, False) for ids in more)]


class _BatchFindings(NamedTuple):
    """Findings about the sources of a batch, by their rows."""

    ranked: dict[int, RankedOutputs]
    uncertain: list[int]
    looping: list[int]


@final
class _Steps:
    """Lets others go first between two steps of a greedy search, which CTranslate2 makes in a thread of its own."""

    def __init__(self, tick: Tick | None) -> None:
        self._tick, self._step = tick, -1
        self._raised: BaseException | None = None

    def __call__(self, result: Any) -> bool:
        """Return whether the search may stop here: nobody waits for it any more."""
        if result.step == self._step or self._tick is None:
            return False
        self._step = result.step
        try:
            wanted = self._tick()
        except BaseException as error:  # it is raised again, in the thread that asked
            self._raised = error
            return True
        return wanted is not None and not any(wanted)

    def go_on(self) -> None:
        if self._raised is not None:
            raise self._raised


def _bound_live(found: list[Ctranslate2Hypothesis], steps: int) -> float:
    """Return the most that a live hypothesis has after these steps: those that ended in the last one were better."""
    last = [one for one in found if one.length == steps]
    live = [one.total for one in last if not one.ended]
    return max(live) if live else min((one.total for one in last), default=-math.inf)
