"""Pictures to sentences: a captioner with its tokenizer, what it writes, where it looked, and how that is scored."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import sacrebleu
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor

from saccade.data.batches import decoder_input
from saccade.data.pictures import shapes
from saccade.data.pictures.captions import CaptionReader, CaptionRows, CaptionSet, CaptionSource, make_shape_captions
from saccade.data.pictures.images import Pixels
from saccade.data.text.tokenizer import Tokenizer
from saccade.decoding import (
    OPTION_NAMES,
    BeamOptions,
    Cut,
    Hypothesis,
    SamplingOptions,
    choose_options,
    count_steps,
    search,
)
from saccade.decoding.slices import pause
from saccade.errors import UserError
from saccade.inspection.draw import caption as drawing
from saccade.inspection.insight import Insight, Map, TextSide, add_end
from saccade.inspection.record import cross_weights
from saccade.models.captioner import Captioner
from saccade.tasks.base import (
    Evaluation,
    PictureSize,
    Portable,
    Predictor,
    ScoredSet,
    Traits,
    Watch,
    pass_on,
    several,
)
from saccade.tasks.cuts import CutCounts, Kind, tell_kind

Given = CaptionSource | NDArray[Any] | Tensor | Path | str


class Caption(NamedTuple):
    """A sentence about a picture: its text and score, its words and the log-probability of each.

    Where it `ended`, the last log-probability is that of </s>. `cut` is "length" where it reached its greatest length,
    and "loop" where it went in circles; of a sentence that ended, another one was better when it was cut so.
    `attention` [T, Y, X] is where each word looked, </s> included.
    With `num_best`, `others` are the next best sentences, best first.
    """

    text: str
    score: float
    words: list[str]
    log_probabilities: list[float]
    ended: bool = True
    attention: NDArray[np.float32] | None = None
    name: str = ""
    picture: Pixels | None = None
    others: tuple[Caption, ...] = ()
    cut_by: Cut | None = None  # the setting of the section `decoding`

    @property
    def cut(self) -> Kind | None:
        return tell_kind(self.cut_by)

    def line(self) -> str:
        """As the command line prints it."""
        return self.text

    def plain(self) -> dict[str, Any]:
        kept = self._replace(attention=None, picture=None, cut_by=None)._asdict() | {"cut": self.cut}
        shown = {name: value for name, value in kept.items() if value is not None and name != "others"}
        if self.others:
            shown["others"] = [one.plain() for one in self.others]
        return shown if self.attention is None else {**shown, "attention": self.attention.round(4).tolist()}

    def draw(self, path: Path) -> None:
        """The picture once for each word, with its attention over it: PNG, SVG or PDF."""
        if self.attention is None:
            raise UserError("draw: this caption was made with attention=False")
        drawing.to_file(Path(path), self.picture, self.words, self.attention[: len(self.words)], self.name)

    def show(self, console: Console) -> None:
        """Where each word looked, in the terminal."""
        if self.attention is not None:
            console.print(drawing.in_terminal(self.words, self.attention[: len(self.words)], console))


@final
@dataclass(frozen=True)
class CaptionWriter(Predictor):
    """What `saccade.load` returns for a run that writes captions.

    Inputs are files, arrays (bytes [C, Y, X], or features [S, C]), or what `read` gives. Every method takes how to
    decode as keywords: the fields of BeamOptions (`width=1` is greedy), or `sample=True` and those of SamplingOptions;
    `attention=False` leaves out where it looked.
    """

    model: Captioner
    tokenizer: Tokenizer
    options: BeamOptions
    reader: CaptionReader
    num_shapes: int = 0  # pictures that it paints to be tried on
    batch_size: int = 128

    @property
    def traits(self) -> Traits:
        side = self.reader.side
        return Traits(
            "caption",
            reads="feature maps" if side is None else "picture",
            kinds=("cross",),
            predict_options=(*OPTION_NAMES, "attention"),
            evaluate_options=OPTION_NAMES,
            look_options=OPTION_NAMES,
            evidence={"attention": True},
            needs_files=not self.num_shapes,
            beam=self.options.width,
            picture=None if side is None else PictureSize(3, side, side, side),
            answers="text",
        )

    def predict(self, inputs: Iterable[Given], **options: Any) -> list[Caption]:
        """The best sentence for each; with `num_best`, the others are its `others`."""
        return list(self.stream(inputs, **options))

    def stream(self, inputs: Iterable[Given], **options: Any) -> Iterator[Caption]:
        """Sentences in the order of the inputs, in memory that doesn't grow with their number."""
        return (first._replace(others=tuple(others)) for first, *others in self.stream_best(inputs, **options))

    def stream_best(
        self, inputs: Iterable[Given], *, attention: bool = True, **options: Any
    ) -> Iterator[list[Caption]]:
        """The `num_best` sentences for each."""
        way = choose_options(self.options, options)
        rest = iter(several(inputs))
        while part := [self._seen(given) for given in itertools.islice(rest, self.batch_size)]:
            yield from self._written(part, way, attention=attention)

    def num_steps(self, given: Given, /, **decoding: Any) -> int:
        del given
        return count_steps(choose_options(self.options, decoding), math.prod(self.model.encoder.shape))

    def look(self, inputs: Iterable[Given], **options: Any) -> list[Insight]:
        """Where each word looked; S are the cells of the picture, row by row."""
        found = []
        for best in self.stream_best(inputs, attention=True, **options):
            first, *others = best
            assert first.attention is not None
            weight_TS = torch.from_numpy(first.attention).flatten(1)
            output = TextSide.of(first.text, add_end(first.words, has_end=first.ended), self.tokenizer.begins_word)
            seen = Map("output", "picture", weight_TS[None, None], shape=self.model.encoder.shape)
            cells = TextSide.of(
                first.name, [f"{row},{column}" for row, column in np.ndindex(*self.model.encoder.shape)]
            )
            sides, maps = {"output": output, "picture": cells}, {"cross": seen}
            task, picture = self.traits.task, first.picture
            found.append(Insight(task, first, sides, maps, others=others, draws_itself=True, picture=picture))
        return found

    def read(self, source: Path | None) -> Iterator[CaptionSource]:
        """The pictures of a file or folder, or the feature maps of a file."""
        if source is None:
            raise UserError(
                "--input: missing; there must be a picture, a folder of pictures, or a file of feature maps"
            )
        if not source.exists():
            raise UserError(f"--input: there is nothing at {source}")
        return self.reader.read_inputs(source)

    def evaluate(self, paths: Sequence[Path], *, watch: Watch = pass_on, **options: Any) -> Evaluation:
        """Scores against the captions of a TSV file, for pictures in a folder or a file of feature maps.

        A model of shapes needs no files: it is tried on pictures that no training saw.
        """
        if not paths and self.num_shapes:
            assert self.reader.side is not None
            return self.judge(
                make_shape_captions(self.num_shapes, side=self.reader.side, seed=HELD_OUT), watch=watch, **options
            )
        if len(paths) != 2:
            given = ", ".join(map(str, paths)) or "nothing"
            raise UserError(f"evaluate: {given} given; it needs a captions file and its pictures' folder or features")
        return self.judge(self.reader.read(str(paths[0]), str(paths[1]), field="evaluate"), watch=watch, **options)

    def judge(self, told: CaptionSet, *, watch: Watch = pass_on, **options: Any) -> Evaluation:
        """BLEU-1 to 4 with all captions as references, the share that is one of them; of shapes, where nouns look."""
        seen = (told.item(row) for row in range(len(told)))
        cuts = CutCounts()
        found = watch(self.stream(seen, attention=False, **options), len(told))
        outputs = [one.text for one in cuts.watch(found)]
        scores: dict[str, float | int] = dict(score(outputs, told.captions))
        if told.mask_N2YX is not None:
            scores["noun_attention"] = 100 * float(noun_attention(self.model, self.tokenizer, told).mean())
        scores["num_pictures"] = len(told)
        return cuts.add_to(Evaluation(scores, _lines(scores)))

    def read_scored(self, source: Path, target: Path | None) -> ScoredSet:
        if target is None:
            raise UserError(
                "--target: missing; --input names captions, and --target the folder or feature maps of their pictures"
            )
        return make_scored(source.name, self.reader.read(str(source), str(target), field="--target"))

    def portable(self) -> Portable:
        reader = PictureReader(math.prod(self.model.encoder.shape))
        return Portable(self.model, reader, self.tokenizer, self.options, reader.num_places, _score, join=reader.join)

    def _seen(self, given: Given) -> CaptionSource:
        if isinstance(given, CaptionSource):
            return given
        if isinstance(given, Path | str):
            found = list(self.read(Path(given)))
            if len(found) != 1:
                raise UserError(f"{given}: {len(found):,} pictures in it; give them to predict one by one (see read)")
            return found[0]
        source = np.asarray(given)
        return CaptionSource("", source, source if source.ndim == 3 else None)

    @torch.no_grad()
    def _written(
        self, seen: list[CaptionSource], way: BeamOptions | SamplingOptions, *, attention: bool
    ) -> Iterator[list[Caption]]:
        self._check(seen)
        device = self.model.baseline.device
        source = torch.from_numpy(np.stack([one.source for one in seen])).to(device)
        places_B = torch.full((len(seen),), math.prod(self.model.encoder.shape), device=device)
        found = search(self.model, source, places_B, way, tick=pause)
        rows = [row for row, best in enumerate(found) for _ in best]
        flat = [hypothesis for best in found for hypothesis in best]
        weights = iter(self._look(source[rows], places_B[rows], flat) if attention else [None] * len(flat))
        for one, best in zip(seen, found, strict=True):
            yield [self._caption(one, hypothesis, next(weights)) for hypothesis in best]

    def _caption(self, seen: CaptionSource, found: Hypothesis, weight_TYX: NDArray[np.float32] | None) -> Caption:
        text, words, steps = self.tokenizer.decode(found.ids), self.tokenizer.pieces(found.ids), found.log_probabilities
        shown = Caption(text, found.score, words, steps, found.ended, weight_TYX, seen.name, seen.picture)
        return shown._replace(cut_by=found.cut)

    def _check(self, seen: list[CaptionSource]) -> None:
        for one in seen:
            if one.source.shape != self.model.encoder.size:
                given, wanted = (" x ".join(map(str, size)) for size in (one.source.shape, self.model.encoder.size))
                raise UserError(f"{one.name or 'input'}: {given} given; this model reads {wanted}")

    def _look(self, source: Tensor, places_B: Tensor, found: list[Hypothesis]) -> list[NDArray[np.float32]]:
        """Read once more with the weights kept: [T, Y, X] of each."""
        read_BT = decoder_input([one.ids for one in found]).to(source.device)
        weight_BTS = cross_weights(self.model, source, places_B, read_BT)[:, 0, 0].float().cpu().numpy()
        return [
            weight_TS[: len(one.log_probabilities)].reshape(-1, *self.model.encoder.shape)
            for weight_TS, one in zip(weight_BTS, found, strict=True)
        ]


class PictureReader(NamedTuple):
    """How pictures and feature maps are read by other engines: as they are."""

    num_places: int

    def encode(self, seen: CaptionSource) -> NDArray[Any]:
        return seen.source

    def join(self, sources: Sequence[NDArray[Any]]) -> tuple[Tensor, Tensor]:
        """Return a batch, and how many places each has."""
        return torch.from_numpy(np.stack(sources)), torch.full((len(sources),), self.num_places)


def make_scored(name: str, told: CaptionSet) -> ScoredSet:
    """Pair each picture with all its captions."""
    return ScoredSet(name, [(told.item(row), told.captions[row]) for row in range(len(told))])


def _score(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return BLEU, which is BLEU-4, and the share that is one of the captions."""
    found = score(outputs, references)
    return {"bleu": found["bleu4"], "exact": found["exact"]}


HELD_OUT = 2  # the seed of shapes that no training sees


def score(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Corpus BLEU-1 to 4 of words split at spaces, with any number of references; and the share that is one of them.

    As sacreBLEU counts with tokenize none and no smoothing: BP exp(1/n sum_k log p_k), the nearest reference's length.
    """
    if len(outputs) != len(references):
        raise UserError(f"references: {len(references):,} given for {len(outputs):,} outputs; there must be as many")
    streams = [list(stream) for stream in itertools.zip_longest(*references)]  # None where there are fewer
    bleu = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True).corpus_score(outputs, streams)
    kept = bleu.bp * np.exp(np.cumsum(np.log(np.maximum(bleu.precisions, 1e-300))) / np.arange(1, 5))
    found = {f"bleu{order}": float(percent) for order, percent in enumerate(kept, 1)}
    exact = sum(output in those for output, those in zip(outputs, references, strict=True))
    return {**found, "exact": 100 * exact / max(1, len(outputs))}


@torch.no_grad()
def noun_attention(model: Captioner, tokenizer: Tokenizer, told: CaptionSet, batch_size: int = 128) -> NDArray[Any]:
    """The share of each noun's weight in cells that the thing it names touches, [N, 2]: read with the true sentence."""
    assert told.mask_N2YX is not None
    shape, device = model.encoder.shape, model.baseline.device
    lines, found = CaptionRows(told, tokenizer, places=math.prod(shape)), []
    for rows in np.split(np.arange(len(told)), range(batch_size, len(told), batch_size)):
        batch = lines.load(rows).to(device)
        weight_BTS = cross_weights(model, batch.source, batch.places_B, batch.read_BT)[:, 0, 0].float().cpu().numpy()
        for thing in range(2):
            cell_BS = shapes.touched_cells(told.mask_N2YX[rows, thing], *shape)
            steps = [shapes.noun_steps(told.captions[row][0].split())[thing] for row in rows]
            found.append((weight_BTS[np.arange(len(rows)), steps] * cell_BS).sum(-1))
    return np.concatenate([np.stack(pair, 1) for pair in zip(found[::2], found[1::2], strict=True)])


def _lines(scores: dict[str, float | int]) -> list[str]:
    bleu = "  ".join(f"BLEU-{order} {scores[f'bleu{order}']:.2f}" for order in (1, 2, 3, 4))
    lines = [f"{bleu}  ({scores['num_pictures']:,} pictures)", f"exactly right {scores['exact']:.2f}%"]
    if "noun_attention" in scores:
        lines.append(f"attention of nouns on what they name {scores['noun_attention']:.2f}%")
    return lines
