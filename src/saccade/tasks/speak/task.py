"""The speak task: from a config to a run, to a trained synthesizer, and to its part of the report."""

from __future__ import annotations

import base64
import json
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
from markupsafe import Markup
from rich.console import Console

from saccade.data.batches import Buckets
from saccade.data.sound.mel import FLOOR, RANGE
from saccade.data.sound.recordings import Recordings
from saccade.data.sound.spoken import SpeechSet, SpokenLine, read_spoken
from saccade.data.sound.vocoder import encode_wav
from saccade.data.text.corpus import find_files
from saccade.data.text.tokenizer import AnyTokenizer, load_tokenizer, train_tokenizer
from saccade.errors import UserError
from saccade.inspection.pages.render import render_picture
from saccade.models.synthesizer import Synthesizer
from saccade.tasks.base import (
    DataCount,
    InheritedFields,
    Job,
    ReportPart,
    RequestOptions,
    Route,
    Rows,
    Task,
    match_rows,
)
from saccade.tasks.console import busy, say
from saccade.tasks.devices import load_trained
from saccade.tasks.speak.config import SpeakConfig
from saccade.tasks.speak.loss import SpeakWeights, speak_loss
from saccade.tasks.speak.predictor import Speaker
from saccade.tasks.speak.result import Speech, Voice

LETTERS = "tokenizer.text.json"
SCALE = "frames.json"
NUM_SCALED = 500  # sounds that the deviation is measured on
NUM_VALID = 100  # sounds that score a validation
NUM_DRAWN = 4


def prepare(config: SpeakConfig, folder: Path, console: Console) -> Job:
    """Read the lists and their sounds, and build the network, its batches, its loss and its validation."""
    lists, root = _read_lists(config), folder.parent / ".data"
    tokenizer = _tokenizer(config, lists["train"], folder)
    network = _network(config, tokenizer)
    sets, counts = {}, []
    for name, lines in lists.items():
        if name == "test":
            continue
        with busy(console, f"making frames of data.{name}"):
            speaker = _speaker(config, network, tokenizer, deviation=1.0)
            whole = speaker.read_set(_path(config, name), root, lines)
        kept = [
            line
            for line, length in zip(whole.lines, whole.lengths()[0], strict=True)
            if length <= config.data.max_frames
        ]
        if not kept:
            raise UserError(f"data.{name}: every sound is longer than data.max_frames, {config.data.max_frames:,}")
        sets[name] = SpeechSet(kept, whole.recordings, tokenizer, config.model.frames_a_step)
        left_out = {"longer than data.max_frames": len(lines) - len(kept)} if len(kept) < len(lines) else {}
        counts.append(DataCount(f"data.{name}", len(kept), left_out))
        _tell(console, name, sets[name], len(lines))
    deviation = _measure_deviation(sets["train"])
    speaker = _speaker(config, network, tokenizer, deviation=deviation)
    training = config.training
    weights = SpeakWeights(training.guide, training.guide_width, training.end_weight)
    return Job(
        network=network,
        plan=_plan(config, sets["train"]),
        loss=partial(speak_loss, network, weights),
        validate=partial(_validate, speaker, sets["valid"]),
        data=[one.recordings.key for one in sets.values()],
        stored={SCALE: json.dumps({"deviation": deviation})},
        unit="frames",
        counts=counts,
        rows=partial(_rows, tokenizer),
    )


def _rows(tokenizer: AnyTokenizer, base: Path) -> dict[str, tuple[Rows, ...]]:
    """Return the rows of the letters that the run it begins with has, too."""
    earlier = load_tokenizer(base / LETTERS)
    names = [one.pieces(range(one.size)) for one in (tokenizer, earlier)]
    return {"embedding.weight": (match_rows(*names),)}


def load(config: SpeakConfig, folder: Path) -> Speaker:
    """Load a trained run from its folder."""
    tokenizer = load_tokenizer(folder / LETTERS)
    try:
        deviation = float(json.loads((folder / SCALE).read_text("utf-8"))["deviation"])
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{folder / SCALE}: missing or damaged; it holds the scale of the frames") from None
    return _speaker(config, load_trained(_network(config, tokenizer), config, folder), tokenizer, deviation=deviation)


def examine(config: SpeakConfig, speaker: Speaker) -> ReportPart:
    """Score the test set, or the validation set, for the report, and say some of its texts."""
    name = "test" if config.data.test else "valid"
    path = _path(config, name)
    with tempfile.TemporaryDirectory() as root:
        own = speaker.read_set(path, Path(root), _read_lists(config)[name][:NUM_VALID])
        found = speaker.measure(own, range(len(own)))
        texts = [line.text for line in own.lines[:: max(1, len(own) // NUM_DRAWN)]][:NUM_DRAWN]
    figures = Markup("").join(_figure(said) for said in speaker.predict(texts))
    return ReportPart(name, found.plain(), [("What it says, and where it read", figures)])


def _figure(said: Speech) -> Markup:
    with tempfile.TemporaryDirectory() as folder:
        said.draw(path := Path(folder) / "said.png")
        picture = render_picture(path.read_bytes(), f"{said.text}: {said.seconds:.2f} s")
    sound = base64.b64encode(encode_wav(said.samples, said.rate)).decode()
    return picture + Markup('<audio controls src="data:audio/wav;base64,{}"></audio>').format(sound)


def _path(config: SpeakConfig, name: str) -> Path:
    """Return the one file of a list."""
    pattern = getattr(config.data, name)
    found = find_files(f"data.{name}", pattern)
    if len(found) != 1:
        raise UserError(f"data.{name}: {pattern} names {len(found)} files; it must be one list")
    return found[0]


def _read_lists(config: SpeakConfig) -> dict[str, list[SpokenLine]]:
    """Read every list, so that a mistake shows before anything is learned."""
    names = [name for name in ("train", "valid", "test") if getattr(config.data, name) is not None]
    found = {name: read_spoken(_path(config, name), config.data.voice) for name in names}
    if config.data.lowercase:
        found = {name: [line._replace(text=line.text.lower()) for line in lines] for name, lines in found.items()}
    return found


def _tell(console: Console, name: str, own: SpeechSet, num_lines: int) -> None:
    hours = own.lengths()[0].sum() * own.recordings.mel.hop / 60
    say(console, f"data.{name}: {len(own):,} sounds, {hours:,.1f} minutes")
    if len(own) < num_lines:
        say(console, f"data.{name}: {num_lines - len(own):,} longer than data.max_frames are left out", style="yellow")


def _tokenizer(config: SpeakConfig, lines: list[SpokenLine], folder: Path) -> AnyTokenizer:
    """Load the letters from the run's folder, or learn them from the training texts and store them there."""
    path = folder / LETTERS
    if path.exists():
        return load_tokenizer(path)
    tokenizer = train_tokenizer("characters", (line.text for line in lines), 2**16, seed=config.seed)
    tokenizer.save(path)
    return tokenizer


def _network(config: SpeakConfig, tokenizer: AnyTokenizer) -> Synthesizer:
    torch.manual_seed(config.seed)
    return Synthesizer(tokenizer.size, config.frames.num_mels, config.model.sizes())


def _speaker(config: SpeakConfig, network: Synthesizer, tokenizer: AnyTokenizer, *, deviation: float) -> Speaker:
    voice = Voice(config.frames.mel, deviation, config.decoding.rounds)
    return Speaker(network, tokenizer, voice, config.decoding.max_seconds, config.data.lowercase, config.data.voice)


def _plan(config: SpeakConfig, own: SpeechSet) -> Buckets:
    frames, letters = own.lengths()
    return Buckets(
        [frames, letters], tokens_per_batch=config.training.frames_per_batch, seed=config.seed, load=own.batch
    )


def _measure_deviation(own: SpeechSet) -> float:
    """Return the mean deviation of whole sounds before they were normalised."""
    found = []
    for line in own.lines[:NUM_SCALED]:
        pieces = _frames_of(own.recordings, line.sound)
        cut = np.maximum(pieces, pieces.max() - RANGE)
        found.append(float(cut.std()))
    return float(np.mean(found))


def _frames_of(recordings: Recordings, sound: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    rows = [
        recordings.frames[number] if number >= 0 else np.full((-number, recordings.mel.num_mels), FLOOR)
        for number in recordings.encode(sound)
    ]
    return np.concatenate(rows).astype(np.float32)


def _validate(speaker: Speaker, own: SpeechSet) -> dict[str, float]:
    found = speaker.measure(own, range(min(NUM_VALID, len(own))))
    return {"score": -found.frame_error, **{f"valid_{name}": value for name, value in found.plain().items()}}


ROUTE = Route("Speak texts", options=RequestOptions, reads_whole=False)
INHERITED = InheritedFields(
    same=("model", "frames"),
    free=("model.dropout", "model.prenet_dropout"),
    usual=("data.lowercase", "decoding"),
)
SPEAK = Task(SpeakConfig, prepare, load, examine, ROUTE, inherited=INHERITED)
