"""A trained language model in use: it writes on, says how well it predicts a text, and shows where it looked."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from saccade.data.stream import make_stream
from saccade.data.text.corpus import clean
from saccade.data.text.documents import Split, read_documents, tidy
from saccade.data.text.tokenizer import END, SPECIAL, START, AnyTokenizer
from saccade.decoding import (
    OPTION_NAMES,
    BeamOptions,
    DecodingOptions,
    Ensemble,
    Hypothesis,
    SamplingOptions,
    Stepper,
    choose_options,
    count_steps,
    search,
)
from saccade.decoding.observed import ObservedStepper
from saccade.decoding.slices import tick_of
from saccade.errors import UserError
from saccade.inspection.insight import Insight, Map, TextSide
from saccade.inspection.record import Record, find_attention, recording
from saccade.models.continued import ContinuedWriter
from saccade.tasks.base import Evaluation, Predictor, Traits, Watch, pass_on, several
from saccade.tasks.texts import LongTextWarning, pair_texts
from saccade.tasks.write.config import Network
from saccade.tasks.write.measure import Rows, score_stream
from saccade.tasks.write.result import Writing, join_best

WINDOW = 64  # prompts that are read before the first is continued
MOST_LOOKED_AT = 1024  # tokens of a text: weights are as many as their square, for every layer and head
HIDDEN = ("length_penalty", "length_offset", "max_length_factor", "max_length_extra", "writes_unknown")
OPTIONS = tuple(name for name in OPTION_NAMES if name not in HIDDEN[2:])
Way = BeamOptions | SamplingOptions
KIND = "decoder"


@final
@dataclass(frozen=True)
class Writer(Predictor):
    """A trained language model, as `saccade.load` returns it.

    Inputs are beginnings of texts, which may be empty. Texts are drawn at random (`temperature`, `top_k`, `top_p`,
    `seed`), unless a `beam` is given (1 is greedy). `max_length` counts the tokens that are written.
    """

    networks: tuple[Network, ...]  # of an ensemble several
    tokenizer: AnyTokenizer
    options: SamplingOptions
    rows: Rows
    documents: Split
    metric: str

    @property
    def network(self) -> Any:
        return self.networks[0]

    @property
    def traits(self) -> Traits:
        has_attention = bool(find_attention(self.network, (KIND,))) and len(self.networks) == 1
        return Traits(
            "write",
            kinds=(KIND,) if has_attention else (),
            predict_options=(*OPTIONS, *(("attention",) if has_attention else ()), "window"),
            look_options=("kinds", "norms", "targets"),
            evidence={"attention": True} if has_attention else {},
            answers="continuation",
            streams=True,
        )

    def predict(self, prompts: Iterable[str], **options: Any) -> list[Writing]:
        """Continue each text; with `num_best`, the others are its `others`."""
        return list(self.stream(prompts, **options))

    def stream(self, prompts: Iterable[str], **options: Any) -> Iterator[Writing]:
        """Yield continuations in order, in memory that doesn't grow with their number."""
        return (join_best(best) for best in self.stream_best(prompts, **options))

    def stream_best(
        self, prompts: Iterable[str], *, attention: bool = False, window: int = WINDOW, **decoding: Any
    ) -> Iterator[list[Writing]]:
        """Yield the `num_best` texts for each prompt, best first."""
        way, rest = self._choose(decoding), iter(several(prompts))
        number = 0
        while part := list(itertools.islice(rest, window)):
            yield from self._write(part, number, way, attention=attention)
            number += len(part)

    def follow(self, prompt: str, tell: Callable[[str], None], /, **decoding: Any) -> Writing:
        """Write on from one prompt, and tell each part of the text as soon as it is known."""
        way, ids = self._choose(decoding), self._encode(prompt)
        told = ""

        def hear(written: Sequence[int]) -> None:
            nonlocal told
            text = self._text_behind(ids, written).rstrip("\ufffd")  # half a letter: the rest comes
            if text.startswith(told) and len(text) > len(told):
                tell(text[len(told) :])
                told = text

        is_told = way.num_best == 1 and not (isinstance(way, BeamOptions) and way.width > 1)
        stepper: Stepper = ObservedStepper(self._stepper(), hear) if is_told else self._stepper()
        (best,) = self._search(stepper, [ids], [0], way)
        found = join_best([self._result(prompt, ids, one) for one in best])
        if found.text.startswith(told) and len(found.text) > len(told):
            tell(found.text[len(told) :])
        return found

    def evaluate(self, paths: Sequence[Path], /, *, watch: Watch = pass_on) -> Evaluation:
        """Score the documents of some files: the perplexity, per token and per word, and the loss per character."""
        if len(self.networks) > 1:
            raise UserError("evaluate: an ensemble only writes; score its runs one by one")
        names = ", ".join(map(str, paths))
        stream = make_stream(read_documents(paths, self.documents), self.tokenizer.encode, names)
        found = score_stream(self.network, stream, self.rows._replace(num_readers=1), watch)
        scores: dict[str, Any] = {self.metric: found.plain()[self.metric], **found.plain()}
        counts = {
            "num_tokens": found.num_tokens,
            "num_documents": stream.num_documents,
            "num_unknown": stream.num_unknown,
        }
        size = f"{found.num_tokens:,} tokens, {found.num_words:,} words, {found.num_characters:,} characters"
        lines = [f"{describe(name)} {scores[name]:.4g}" for name in scores if name != "loss"]
        unknown = [f"{stream.num_unknown:,} tokens are unknown, and scored as <unk>"] if stream.num_unknown else []
        return Evaluation({**scores, **counts}, [*lines, f"on {size}, with the end of each document", *unknown])

    def look(
        self,
        texts: Iterable[str],
        *,
        targets: Iterable[str] | None = None,
        kinds: Collection[str] = (KIND,),
        norms: bool = False,
    ) -> list[Insight]:
        """Return where each step looked while each text was read, with its continuation where there are `targets`."""
        if len(self.networks) > 1:
            raise UserError("look: an ensemble has no attention of its own; look at one run")
        return [self._look(text, target, kinds, norms=norms) for text, target in pair_texts(texts, targets, "targets")]

    def num_pieces(self, text: str) -> int:
        return len(self._encode(text)) - 1

    def num_steps(self, prompt: str, /, **decoding: Any) -> int:
        return count_steps(self._choose(decoding), self.num_pieces(prompt) + 1)

    @classmethod
    def ensemble(cls, runs: Sequence[tuple[str, Predictor]]) -> Writer:
        """Write with several runs together, as the first one says; they must have the same tokens."""
        found = list[Writer]()
        for name, run in runs:
            if not isinstance(run, Writer):
                raise UserError(f"{name}: it is no language model; an ensemble is of runs that are")
            found.append(run)
            if _symbols(run.tokenizer) != _symbols(found[0].tokenizer):
                raise UserError(f"{name}: its tokenizer differs from that of {runs[0][0]}; an ensemble shares one")
        return replace(found[0], networks=tuple(run.network for run in found))

    def _choose(self, decoding: dict[str, Any]) -> Way:
        """Put the keywords of a call over the run's options; without a beam, texts are drawn."""
        given = {name: value for name, value in decoding.items() if value is not None}
        is_drawn = given.pop("sample", not {"beam", "width"} & set(given))
        shared = {field.name: getattr(self.options, field.name) for field in fields(DecodingOptions)}
        if not is_drawn:
            return choose_options(BeamOptions(**shared), given)
        own = {name: getattr(self.options, name) for name in ("temperature", "top_k", "top_p", "seed")}
        return choose_options(BeamOptions(**shared), {"sample": True, **own, **given})

    def _encode(self, prompt: str) -> list[int]:
        """Return <s> and the ids of a text."""
        return [START, *self.tokenizer.encode(clean(prompt) if self.documents == "lines" else tidy(prompt))]

    def _stepper(self) -> Stepper:
        steppers = [ContinuedWriter(network) for network in self.networks]
        return steppers[0] if len(steppers) == 1 else Ensemble(steppers)

    def _write(self, prompts: list[str], number: int, way: Way, *, attention: bool) -> list[list[Writing]]:
        """Write on from some prompts; those of equal lengths together."""
        encoded = [self._encode(prompt) for prompt in prompts]
        self._warn_of_long(encoded, number)
        found = list[list[Writing]]([[] for _ in prompts])
        for length in sorted({len(ids) for ids in encoded}):
            rows = [row for row, ids in enumerate(encoded) if len(ids) == length]
            best = self._search(self._stepper(), [encoded[row] for row in rows], rows, way)
            for row, own in zip(rows, best, strict=True):
                found[row] = [self._result(prompts[row], encoded[row], one) for one in own]
                if attention:
                    pairs = zip(found[row], own, strict=True)
                    found[row] = [self._add_weights(shown, encoded[row], one) for shown, one in pairs]
        return found

    def _warn_of_long(self, encoded: list[list[int]], number: int) -> None:
        most = min((one.context for one in self.networks if one.context is not None), default=None)
        for row, ids in enumerate(encoded, number + 1):
            if most is not None and len(ids) > most:
                said = f"text {row:,} has {len(ids) - 1:,} tokens; the model sees the last {most:,} (data.context)"
                warnings.warn(said, LongTextWarning, stacklevel=2)

    def _search(self, stepper: Stepper, ids: list[list[int]], rows: list[int], way: Way) -> list[list[Hypothesis]]:
        device = self.network.embedding.weight.device
        length_B = torch.full((len(ids),), len(ids[0]), device=device)
        return search(stepper, torch.tensor(ids, device=device), length_B, way, tick=tick_of(rows))

    def _result(self, prompt: str, ids: list[int], found: Hypothesis) -> Writing:
        text = self._text_behind(ids, found.ids)
        pieces = self.tokenizer.pieces([*found.ids, *([END] if found.ended else [])])
        whole = self.tokenizer.decode([*ids[1:], *found.ids]) if ids[1:] else text
        return Writing(prompt, text, whole, found.score, pieces, found.log_probabilities, found.ended, found.cut)

    def _text_behind(self, ids: Sequence[int], written: Sequence[int]) -> str:
        """Return what was written, with the space before it if it begins a word."""
        before = self.tokenizer.decode(ids[1:])
        whole = self.tokenizer.decode([*ids[1:], *written])
        return whole[len(before) :] if whole.startswith(before) else self.tokenizer.decode(written)

    @torch.inference_mode()
    def _read(self, ids: Sequence[int]) -> Tensor:
        """Read <s> and a text but for its last id; return the log-probability of each id."""
        row_1T = torch.tensor([ids], device=self.network.embedding.weight.device)
        vectors_1TD, _ = self.network.advance(self.network.begin(1), row_1T[:, :-1])
        step_TV = self.network.logits(vectors_1TD[0]).float().log_softmax(-1)
        return step_TV.gather(1, row_1T[0, 1:, None])[:, 0]

    @property
    def most_looked_at(self) -> int:
        """The most tokens of a text whose weights can be shown."""
        return min(MOST_LOOKED_AT, self.network.context or MOST_LOOKED_AT)

    def _look(self, text: str, target: str, kinds: Collection[str], *, norms: bool) -> Insight:
        """Look at a text; the answer is the target, or without one the text itself."""
        ids = self._encode(text)
        first = len(ids) - 1
        ids += self._encode(target)[1:]
        steps_T, maps = self._record(ids, kinds, norms=norms)
        pieces, first = self.tokenizer.pieces(ids[1:]), first if len(ids) - 1 > first else 0
        steps = steps_T[first:].tolist()
        written, whole = self._text_behind(ids[: first + 1], ids[first + 1 :]), self.tokenizer.decode(ids[1:])
        answer = Writing(text if first else "", written, whole, sum(steps), pieces[first:], steps, ended=False)
        sides = {
            "output": TextSide.of(whole, pieces, self.tokenizer.begins_word),
            "read": TextSide.of("", [SPECIAL[START], *pieces[:-1]], self.tokenizer.begins_word),
        }
        return Insight(self.traits.task, answer, sides, maps)

    def _record(self, ids: Sequence[int], kinds: Collection[str], *, norms: bool) -> tuple[Tensor, dict[str, Map]]:
        """Read ids; return the log-probability of each but <s>, and the weights of each kind of attention."""
        num_steps = len(ids) - 1
        if num_steps > self.most_looked_at:
            raise UserError(f"text: {num_steps:,} tokens given; at most {self.most_looked_at:,} can be looked at")
        if not num_steps:
            raise UserError("text: it is blank; there is nothing to look at")
        with recording(self.network, kinds=[kind for kind in kinds if kind == KIND], norms=norms) as record:
            steps_T = self._read(ids)
        return steps_T, {kind: _map(record, kind, num_steps, norms=norms) for kind in record.kinds}

    def _add_weights(self, found: Writing, ids: list[int], written: Hypothesis) -> Writing:
        """Add the weights of the last layer, the mean of its heads, to a text that was written."""
        ids = [*ids, *written.ids, *([END] if written.ended else [])]
        _, maps = self._record(ids, (KIND,), norms=False)
        weight_TS = maps[KIND].weight_LHTS[-1].mean(0)
        return found._replace(attention=weight_TS[-len(found.pieces) :], read=self.tokenizer.pieces(ids[:-1]))


def _map(record: Record, kind: str, num_steps: int, *, norms: bool) -> Map:
    """Return the weights of one text; of an RNN's states those before the text are left out, as there are none."""
    weight_LHTS = record.weights(kind)[:, 0].float().cpu()[..., -num_steps:]
    norm_LHTS = record.norms(kind)[:, 0].float().cpu()[..., -num_steps:] if norms else None
    return Map("output", "read", weight_LHTS, norm_LHTS)


def describe(name: str) -> str:
    """Return a figure's name as people write it."""
    return {"word_perplexity": "perplexity of a word", "perplexity": "perplexity of a token"}.get(
        name, name.replace("_per_", " a ").replace("_", " ")
    )


def _symbols(tokenizer: AnyTokenizer) -> list[str]:
    return tokenizer.pieces(range(tokenizer.size))
