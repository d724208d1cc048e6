"""Texts to speech: a trained synthesizer in use, and how well it reads and speaks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch

from saccade.data.sound.recordings import prepare_recordings
from saccade.data.sound.spoken import (
    SpeechSet,
    SpokenLine,
    find_sounds_of,
    is_monotone,
    pad_ids,
    read_spoken,
    word_times,
    words_of,
)
from saccade.data.text.tokenizer import UNKNOWN, Tokenizer
from saccade.errors import UserError
from saccade.inspection.insight import Insight, Map, TextSide
from saccade.inspection.record import recording
from saccade.models.synthesizer import Synthesizer
from saccade.tasks.base import Evaluation, Predictor, Traits, Watch, pass_on, several
from saccade.tasks.speak.result import Speech, Voice, boundary_errors


class Alignments(NamedTuple):
    """The mean absolute error of frames; of words' starts and ends in milliseconds; and percent read in order."""

    frame_error: float
    milliseconds: float | None
    monotone: float
    num_boundaries: int = 0  # that the milliseconds are the mean of

    def plain(self) -> dict[str, Any]:
        found = {"frame_error": self.frame_error, "read_in_order": self.monotone}
        return found if self.milliseconds is None else {**found, "alignment_error_ms": self.milliseconds}


@final
@dataclass(frozen=True)
class Speaker(Predictor):
    """A trained model that speaks, as `saccade.load` returns it."""

    network: Synthesizer
    tokenizer: Tokenizer
    voice: Voice
    max_seconds: float
    lowercase: bool = True
    names: str | None = None  # the pattern of voices in names of sounds
    batch_size: int = 32

    @property
    def step_seconds(self) -> float:
        """Seconds that a step writes."""
        return self.network.sizes.frames_a_step * self.voice.mel.hop

    @property
    def traits(self) -> Traits:
        return Traits(
            "speak",
            kinds=("cross",),
            predict_options=("attention",),
            look_options=("kinds", "norms"),
            evidence={"attention": True},
            answers="sound",
            texts="anything",
            sample=self._letters[0],
        )

    @property
    def _letters(self) -> list[str]:
        letters = [self.tokenizer.decode([index]) for index in range(UNKNOWN + 1, self.tokenizer.size)]
        return [letter for letter in letters if letter.strip()]

    def predict(self, inputs: Iterable[str], /, *, attention: bool = False) -> list[Speech]:
        """Return what is said of each text."""
        return list(self.stream(inputs, attention=attention))

    def stream(self, inputs: Iterable[str], /, *, attention: bool = False) -> Iterator[Speech]:
        """Speak texts in order; with `attention`, a result shows what was read."""
        texts = (self.clean(text) for text in several(inputs))
        while batch := list(islice(texts, self.batch_size)):
            yield from self._speak(batch, attention)

    def clean(self, text: str) -> str:
        """Return a text as the network reads it; one with letters that it never saw is refused."""
        text = " ".join((text.lower() if self.lowercase else text).split())
        ids = self.tokenizer.encode(text)
        if UNKNOWN in ids:
            letter = text[ids.index(UNKNOWN)] if len(ids) == len(text) else text
            raise UserError(f"a text: {letter!r} given, which no training text has; allowed: {''.join(self._letters)}")
        return text

    def num_steps(self, given: Any, /, **decoding: Any) -> int | None:
        """Count the steps that a text may take."""
        del decoding
        return min(self._most_steps, 8 * len(given))

    @torch.no_grad()
    def look(
        self, inputs: Iterable[str], /, *, kinds: Collection[str] = ("cross",), norms: bool = False
    ) -> list[Insight]:
        """Return what each step read of each text."""
        return [self._look(self.clean(text), kinds, norms) for text in several(inputs)]

    def evaluate(self, paths: Sequence[Path], /, *, watch: Watch = pass_on) -> Evaluation:
        """Score lists of sounds and texts: what is read while these are heard, and how it speaks by itself."""
        lines, boundaries, said = [], list[tuple[float, int]](), list[Speech]()
        errors = frames = in_order = 0.0
        for path in paths:
            own = self.read_set(path, path.parent / ".data")
            found = self.measure(own, range(len(own)))
            errors, frames = errors + found.frame_error * len(own), frames + len(own)
            in_order += found.monotone * len(own)
            boundaries += [] if found.milliseconds is None else [(found.milliseconds, found.num_boundaries)]
            said += watch(self.stream(line.text for line in own.lines), len(own))
        own_order, ended = (
            100 * float(np.mean([getattr(one, name) for one in said])) for name in ("is_monotone", "ended")
        )
        scores = {"num_texts": len(said), "frame_error": errors / frames, "read_in_order": in_order / frames}
        scores |= {"own_read_in_order": own_order, "own_ended": ended}
        lines.append(f"{len(said):,} texts; while their sounds are heard: error of a frame {errors / frames:.3f}")
        if boundaries:
            total = sum(count for _, count in boundaries)
            scores["alignment_error_ms"] = sum(mean * count for mean, count in boundaries) / total
            lines.append(f"words begin and end {scores['alignment_error_ms']:.0f} ms from where they are said")
        lines.append(
            f"read in order: {in_order / frames:.1f}%; when it speaks by itself {own_order:.1f}%; {ended:.1f}% end"
        )
        return Evaluation(scores, lines)

    def read_set(self, path: Path, root: Path, lines: Sequence[SpokenLine] | None = None) -> SpeechSet:
        """Read a list, and make or find the frames of its sounds."""
        lines = read_spoken(path, self.names) if lines is None else lines
        lines = [line._replace(text=self.clean(line.text)) for line in lines]
        recordings = prepare_recordings(root, find_sounds_of(path, lines), self.voice.mel)
        return SpeechSet(lines, recordings, self.tokenizer, self.network.sizes.frames_a_step)

    @torch.no_grad()
    def measure(self, own: SpeechSet, rows: Sequence[int]) -> Alignments:
        """Read texts while their sounds are heard: the error of frames, when words are read, and in which order."""
        device, errors, in_order, wrong = next(self.network.parameters()).device, list[float](), 0, 0.0
        for start in range(0, len(rows), self.batch_size):
            part = rows[start : start + self.batch_size]
            batch = own.batch(part).to(device)
            spoken = self.network(batch.ids_BS, batch.length_B, batch.frame_BTF)
            far_BT = (spoken.frame_BTF - batch.frame_BTF).abs().mean(-1)
            for place, row in enumerate(part):
                num_frames = int(batch.num_frames_B[place])
                wrong += float(far_BT[place, :num_frames].mean())
                steps = -(-num_frames // own.frames_a_step)
                weight_LS = spoken.weight_BLS[place, :steps, : int(batch.length_B[place])].float().cpu()
                in_order += is_monotone(weight_LS)
                if (true := own.times(row)) is not None:
                    heard = -(-(num_frames - own.tail) // own.frames_a_step)  # the silence behind belongs to no word
                    words = words_of(own.lines[row].text)
                    errors += boundary_errors(word_times(weight_LS[:heard], words, self.step_seconds), true)
        milliseconds = 1000 * float(np.mean(errors)) if errors else None
        return Alignments(wrong / len(rows), milliseconds, 100 * in_order / len(rows), len(errors))

    @property
    def _most_steps(self) -> int:
        return max(1, round(self.max_seconds / self.step_seconds))

    def _speak(self, texts: list[str], shows_weights: bool) -> Iterator[Speech]:
        """Speak a batch; what is behind the end of a row is dropped."""
        device, encoded = next(self.network.parameters()).device, [self.tokenizer.encode(text) for text in texts]
        real = [ids for ids in encoded if ids]
        spoken = None
        if real:
            ids_BS, length_B = pad_ids(real)
            spoken = self.network.speak(ids_BS.to(device), length_B.to(device), most_steps=self._most_steps)
        row = 0
        for text, ids in zip(texts, encoded, strict=True):
            if not ids or spoken is None:
                nothing = np.zeros((0, self.voice.mel.num_mels), np.float32)
                yield Speech("", [], nothing, torch.zeros(0, 1), self.step_seconds, True, self.voice)
                continue
            ends = (spoken.end_BL[row] > 0).nonzero().flatten()
            steps = int(ends[0]) + 1 if len(ends) else spoken.end_BL.shape[1]
            frames_TF = spoken.frame_BTF[row, : steps * self.network.sizes.frames_a_step].float().cpu().numpy()
            weight_LS = spoken.weight_BLS[row, :steps, : len(ids)].float().cpu()
            pieces = self.tokenizer.pieces(ids)
            yield Speech(
                text, pieces, frames_TF, weight_LS, self.step_seconds, bool(len(ends)), self.voice, shows_weights
            )
            row += 1

    def _look(self, text: str, kinds: Collection[str], norms: bool) -> Insight:
        with recording(self.network, kinds=kinds, norms=norms) as record:
            (answer,) = self._speak([text], True)
        steps = [f"{step * self.step_seconds:.2f}" for step in range(len(answer.weight_LS))]
        sides = {
            "source": TextSide.of(text, answer.pieces, self.tokenizer.begins_word),
            "output": TextSide.of("", steps),
        }
        maps = {}
        for kind in record.kinds if text else []:
            norm = record.norms(kind)[:, 0, :, : len(steps)].float().cpu() if norms else None
            maps[kind] = Map("output", "source", answer.weight_LS[None, None], norm)
        return Insight(self.traits.task, answer, sides, maps, draws_itself=True)
