"""Pictures to sentences: a captioner with its tokenizer, what it writes, where it looked, and how that is scored."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor

from saccade.data.batches import decoder_input
from saccade.data.pictures.captions import (
    CaptionReader,
    CaptionSet,
    CaptionSource,
    make_shape_captions,
    stack_clips,
)
from saccade.data.pictures.clips import WordFrames
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
from saccade.inspection.draw import strip
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
from saccade.tasks.caption.scores import list_lines, noun_attention, score, span_attention
from saccade.tasks.cuts import CutCounts, Kind, tell_kind

CLIP_AXES = 4  # of frames, and of the weights of words on their cells
Given = CaptionSource | NDArray[Any] | Tensor | Path | str


class Caption(NamedTuple):
    """A sentence about a picture: its text and score, its words and the log-probability of each.

    Where it `ended`, the last log-probability is that of </s>. `cut` is "length" where it reached its greatest length,
    and "loop" where it went in circles; of a sentence that ended, another one was better when it was cut so.
    `attention` [T, Y, X] is where each word looked, </s> included; in a clip [T, F, Y, X], where and when.
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
        """Return the line that the command line prints."""
        return self.text

    def plain(self) -> dict[str, Any]:
        kept = self._replace(attention=None, picture=None, cut_by=None)._asdict() | {"cut": self.cut}
        shown = {name: value for name, value in kept.items() if value is not None and name != "others"}
        if self.others:
            shown["others"] = [one.plain() for one in self.others]
        return shown if self.attention is None else {**shown, "attention": self.attention.round(4).tolist()}

    def draw(self, path: Path) -> None:
        """Draw the picture once for each word, with its attention over it, or the frames of a clip: PNG, SVG or PDF."""
        if self.attention is None:
            raise UserError("draw: this caption was made with attention=False")
        draw = strip.to_file if self._is_of_clip else drawing.to_file
        draw(Path(path), self.picture, self.words, self.attention[: len(self.words)], self.name)

    def show(self, console: Console) -> None:
        """Draw where each word looked, or when, in the terminal."""
        if self.attention is not None:
            show = strip.in_terminal if self._is_of_clip else drawing.in_terminal
            console.print(show(self.words, self.attention[: len(self.words)], console))

    def article(self, references: Sequence[str], spans: Sequence[WordFrames] = ()) -> str:
        """Render it as a part of a page, with the true captions, and when the words of a clip happened."""
        assert self.attention is not None
        weights = self.attention[: len(self.words)]
        if self._is_of_clip:
            return strip.render_article(self.picture, self.words, weights, references, spans)
        return drawing.render_article(self.picture, self.words, weights, references)

    @property
    def _is_of_clip(self) -> bool:
        return self.attention is not None and self.attention.ndim == CLIP_AXES


@final
@dataclass(frozen=True)
class CaptionWriter(Predictor):
    """A trained model that writes captions, as `saccade.load` returns it.

    Inputs are files, arrays (bytes [C, Y, X], frames [F, C, Y, X], or features [S, C]), or what `read` gives. Every
    method takes how to decode as keywords: the fields of BeamOptions (`width=1` is greedy), or `sample=True` and those
    of SamplingOptions; `attention=False` leaves out where it looked.
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
            picture=None if side is None else PictureSize(3, side, side, side, frames=self.reader.frames),
            answers="text",
        )

    def predict(self, inputs: Iterable[Given], **options: Any) -> list[Caption]:
        """Return the best sentence for each; with `num_best`, the others are its `others`."""
        return list(self.stream(inputs, **options))

    def stream(self, inputs: Iterable[Given], **options: Any) -> Iterator[Caption]:
        """Yield sentences in the order of the inputs, in memory that doesn't grow with their number."""
        return (first._replace(others=tuple(others)) for first, *others in self.stream_best(inputs, **options))

    def stream_best(
        self, inputs: Iterable[Given], *, attention: bool = True, **options: Any
    ) -> Iterator[list[Caption]]:
        """Yield the `num_best` sentences for each."""
        way = choose_options(self.options, options)
        rest = iter(several(inputs))
        while part := [self._as_source(given) for given in itertools.islice(rest, self.batch_size)]:
            yield from self._write(part, way, attention=attention)

    def num_steps(self, given: Given, /, **decoding: Any) -> int:
        del given
        return count_steps(choose_options(self.options, decoding), self._num_cells)

    def look(self, inputs: Iterable[Given], **options: Any) -> list[Insight]:
        """Return where each word looked; S are a picture's cells, row by row. A clip is its frames side by side."""
        found = []
        for best in self.stream_best(inputs, attention=True, **options):
            first, *others = best
            assert first.attention is not None
            weight_TYX, picture = first.attention, first.picture
            if weight_TYX.ndim == CLIP_AXES:
                weight_TYX = strip.lay_out(weight_TYX)
                picture = None if picture is None else strip.lay_out(picture.swapaxes(0, 1))
            shape = weight_TYX.shape[1:]
            output = TextSide.of(first.text, add_end(first.words, has_end=first.ended), self.tokenizer.begins_word)
            weight_TS = torch.from_numpy(weight_TYX).flatten(1)
            seen = Map("output", "picture", weight_TS[None, None], shape=(shape[0], shape[1]))
            cells = TextSide.of(first.name, [f"{row},{column}" for row, column in np.ndindex(*shape)])
            sides, maps = {"output": output, "picture": cells}, {"cross": seen}
            task = self.traits.task
            found.append(Insight(task, first, sides, maps, others=others, draws_itself=True, picture=picture))
        return found

    def read(self, source: Path | None) -> Iterator[CaptionSource]:
        """Read the pictures of a file or folder, or the feature maps of a file."""
        if source is None:
            raise UserError(
                "--input: missing; there must be a picture, a clip, a folder of them, or a file of feature maps"
            )
        if not source.exists():
            raise UserError(f"--input: there is nothing at {source}")
        return self.reader.read_inputs(source)

    def evaluate(self, paths: Sequence[Path], *, watch: Watch = pass_on, **options: Any) -> Evaluation:
        """Score against the captions of a TSV file, for pictures or clips in a folder, or a file of feature maps.

        A model of shapes needs no files: it is tried on pictures that no training saw.
        """
        if not paths and self.num_shapes:
            assert self.reader.side is not None
            return self.judge(
                make_shape_captions(self.num_shapes, side=self.reader.side, seed=HELD_OUT), watch=watch, **options
            )
        if len(paths) not in ((2,) if self.reader.clip is None else (2, 3)):
            given = ", ".join(map(str, paths)) or "nothing"
            wanted = "a captions file and its pictures' folder or features"
            if self.reader.clip is not None:
                wanted = "a captions file, the folder of its clips, and perhaps a file of spans"
            raise UserError(f"evaluate: {given} given; it needs {wanted}")
        captions, source, *spans = map(str, paths)
        return self.judge(self.reader.read(captions, source, *spans, field="evaluate"), watch=watch, **options)

    def judge(self, told: CaptionSet, *, watch: Watch = pass_on, **options: Any) -> Evaluation:
        """Compute BLEU-1 to 4 with all captions as references, how many are one of them; of shapes, where nouns look;
        of clips whose spans are known, how much of the weight lies within them."""
        seen = (told.item(row) for row in range(len(told)))
        cuts = CutCounts()
        found = watch(self.stream(seen, attention=False, **options), len(told))
        outputs = [one.text for one in cuts.watch(found)]
        scores: dict[str, float | int] = dict(score(outputs, told.captions))
        if told.mask_N2YX is not None:
            scores["noun_attention"] = 100 * float(noun_attention(self.model, self.tokenizer, told).mean())
        if told.spans is not None and any(told.spans):
            scores["span_attention"] = 100 * float(span_attention(self.model, self.tokenizer, told).mean())
        scores["num_pictures"] = len(told)
        return cuts.add_to(Evaluation(scores, list_lines(scores)))

    def read_scored(self, source: Path, target: Path | None) -> ScoredSet:
        if target is None:
            raise UserError(
                "--target: missing; --input names captions, and --target the folder or feature maps of their pictures"
            )
        return make_scored(source.name, self.reader.read(str(source), str(target), field="--target"))

    def portable(self) -> Portable:
        reader = PictureReader(self._num_cells, self.reader.frames)
        longest = self._num_cells * (self.reader.frames or 1)
        return Portable(self.model, reader, self.tokenizer, self.options, longest, _score, join=reader.join)

    def _as_source(self, given: Given) -> CaptionSource:
        if isinstance(given, CaptionSource):
            return given
        if isinstance(given, Path | str):
            found = list(self.read(Path(given)))
            if len(found) != 1:
                raise UserError(f"{given}: {len(found):,} pictures in it; give them to predict one by one (see read)")
            return found[0]
        source = np.asarray(given)
        return CaptionSource("", source, source if source.ndim >= 3 else None)

    @torch.no_grad()
    def _write(
        self, seen: list[CaptionSource], way: BeamOptions | SamplingOptions, *, attention: bool
    ) -> Iterator[list[Caption]]:
        self._check(seen)
        device = self.model.baseline.device
        source, places_B = self.portable().join([one.source for one in seen])
        source, places_B = source.to(device), places_B.to(device)
        found = search(self.model, source, places_B, way, tick=pause)
        rows = [row for row, best in enumerate(found) for _ in best]
        flat = [hypothesis for best in found for hypothesis in best]
        grids = [self._grid(seen[row]) for row in rows]
        weights = iter(self._look(source[rows], places_B[rows], flat, grids) if attention else [None] * len(flat))
        for one, best in zip(seen, found, strict=True):
            yield [self._caption(one, hypothesis, next(weights)) for hypothesis in best]

    def _caption(self, seen: CaptionSource, found: Hypothesis, weight_TYX: NDArray[np.float32] | None) -> Caption:
        text, words, steps = self.tokenizer.decode(found.ids), self.tokenizer.pieces(found.ids), found.log_probabilities
        shown = Caption(text, found.score, words, steps, found.ended, weight_TYX, seen.name, seen.picture)
        return shown._replace(cut_by=found.cut)

    def _check(self, seen: list[CaptionSource]) -> None:
        clip = self.reader.clip
        for one in seen:
            shape, size = one.source.shape, self.model.encoder.size
            if (
                clip is not None
                and len(shape) == CLIP_AXES
                and shape[1:] == size
                and 0 < len(one.source) <= clip.frames
            ):
                continue
            if clip is not None or shape != size:
                given, wanted = (" x ".join(map(str, numbers)) for numbers in (shape, size))
                most = "" if clip is None else f"1 to {clip.frames} frames of "
                raise UserError(f"{one.name or 'input'}: {given} given; this model reads {most}{wanted}")

    @property
    def _num_cells(self) -> int:
        """Count the places of a picture, or of a frame."""
        return math.prod(self.model.encoder.shape)

    def _grid(self, seen: CaptionSource) -> tuple[int, ...]:
        """Return the axes of the places: Y and X, or F, Y and X."""
        shape = self.model.encoder.shape
        return shape if self.reader.clip is None else (len(seen.source), *shape)

    def _look(
        self, source: Tensor, places_B: Tensor, found: list[Hypothesis], grids: list[tuple[int, ...]]
    ) -> list[NDArray[np.float32]]:
        """Read once more with the weights kept: [T, Y, X] of each, or [T, F, Y, X]."""
        read_BT = decoder_input([one.ids for one in found]).to(source.device)
        weight_BTS = cross_weights(self.model, source, places_B, read_BT)[:, 0, 0].float().cpu().numpy()
        return [
            weight_TS[: len(one.log_probabilities), : math.prod(grid)].reshape(-1, *grid)
            for weight_TS, one, grid in zip(weight_BTS, found, grids, strict=True)
        ]


class PictureReader(NamedTuple):
    """A reader of pictures, clips and feature maps for other engines: as they are."""

    num_places: int  # of a picture, or of a frame
    frames: int | None  # of clips: how many there are at most

    def encode(self, seen: CaptionSource) -> NDArray[Any]:
        return seen.source

    def join(self, sources: Sequence[NDArray[Any]]) -> tuple[Tensor, Tensor]:
        """Return a batch, and how many places each has."""
        if self.frames is not None:
            places_B = torch.tensor([len(source) * self.num_places for source in sources])
            return torch.from_numpy(stack_clips(sources)), places_B
        return torch.from_numpy(np.stack(sources)), torch.full((len(sources),), self.num_places)


def make_scored(name: str, told: CaptionSet) -> ScoredSet:
    """Pair each picture with all its captions."""
    return ScoredSet(name, [(told.item(row), told.captions[row]) for row in range(len(told))])


def _score(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return BLEU, which is BLEU-4, and the share that is one of the captions."""
    found = score(outputs, references)
    return {"bleu": found["bleu4"], "exact": found["exact"]}


HELD_OUT = 2  # the seed of shapes that no training sees
