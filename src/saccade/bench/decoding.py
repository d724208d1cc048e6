"""`saccade bench decode`: compares how fast we and the peers decode with untrained models of the base size.

Every output has exactly the requested number of tokens: </s> is forbidden before and forced at that length. A check
makes sure of it.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast, final

import numpy as np
import torch
from torch import Tensor

from saccade.bench.measure import medians_side_by_side
from saccade.bench.peers.decoders import DECODERS, DecoderSetting, Write
from saccade.bench.peers.environments import PeerError
from saccade.bench.peers.shortlists import draw_shortlist, draw_sources
from saccade.bench.training.accelerator import OURS
from saccade.bench.training.flops import ModelSizes
from saccade.bench.training.trainers import word_tokenizer
from saccade.data.text.tokenizer import END
from saccade.decoding import BeamOptions, DecodingEngine, DecodingWork, search
from saccade.errors import UserError
from saccade.export.choice import EngineChoice
from saccade.export.engine import make_searcher
from saccade.export.native.shortlist import Shortlist, name_tokenizers
from saccade.tasks.base import Portable
from saccade.tasks.translate import task
from saccade.tasks.translate.config import TranslateConfig
from saccade.tasks.translate.predictor import Translator

Say = Callable[[str], None]
ENGINES = {  # other engines in the place of torch, with our own search; they run on a CPU
    "native": EngineChoice("native"),
    "native-int8": EngineChoice("native", "int8"),
    "native-int8-shortlist": EngineChoice("native", "int8", Path("made")),
    "onnx": EngineChoice("onnx"),
    "onnx-int8": EngineChoice("onnx", "int8"),
}


@final
@dataclass(frozen=True)
class DecodeJob:
    """The model, batches, beams, lengths and peers of a decoding benchmark."""

    device: torch.device
    sizes: ModelSizes
    batches: tuple[int, ...] = (1, 64, 512)
    beams: tuple[int, ...] = (1, 4)
    source_length: int = 28  # </s> counted
    output_length: int = 32
    peers: tuple[str, ...] = ()
    with_torch: bool = True  # our own search
    rounds: int = 7  # at most: a peer may take seconds where we take milliseconds

    @property
    def setting(self) -> DecoderSetting:
        """The model's sizes, device and output length, which all contestants share."""
        return DecoderSetting(self.sizes, self.device, self.output_length)


@final
@dataclass(frozen=True)
class DecodeRow:
    """The figures of one contestant with one beam and batch, or the reason why it has none."""

    name: str
    title: str
    beam: int
    batch: int
    seconds: float | None = None  # for the batch
    tokens: int | None = None  # that all outputs have together
    problem: str | None = None

    @property
    def rate(self) -> float | None:
        return None if self.seconds is None or self.tokens is None else self.tokens / self.seconds

    def as_dict(self) -> dict[str, Any]:
        per_sentence = None if self.seconds is None else self.seconds / self.batch
        return {**asdict(self), "rate": self.rate, "seconds_per_sentence": per_sentence}


def run(job: DecodeJob, say: Say) -> list[DecodeRow]:
    """Time all contestants with every beam and batch, in turns; Ctrl-C returns the rows so far."""
    writers: dict[str, Write | str] = {}
    for name in (*((OURS,) if job.with_torch else ()), *job.peers):
        say(f"building {title_of(name)}")
        torch.manual_seed(1)
        writers[name] = _build(name, job)
    rows: list[DecodeRow] = []
    with contextlib.suppress(KeyboardInterrupt):  # what is found is shown
        for beam in job.beams:
            for batch in job.batches:
                say(f"beam {beam}, batch {batch}")
                rows += _measure_case(job, writers, beam, batch)
    return rows


def title_of(name: str) -> str:
    """Return a contestant's name as tables show it."""
    if name in ENGINES:
        engine, quantization, shortlist = ENGINES[name]
        return f"{OURS}, {engine} {quantization}" + ("" if shortlist is None else ", shortlist")
    return OURS if name == OURS else DECODERS[name].title


def build_ours(setting: DecoderSetting) -> Write:
    """Build our decoder as a run's Translator uses it: in slots on an accelerator, else with `decoding.search`."""
    length, translator = setting.output_length, _make_translator(setting)
    whole, writer = cast(Any, translator.model), DecodingEngine(translator.model, translator.dtype)

    def write(source_BS: Tensor, beam: int) -> list[int]:
        options, length_B = _make_options(length, beam), torch.full((len(source_BS),), source_BS.shape[1])
        if setting.device.type == "cuda":
            source, lengths = source_BS.cpu(), length_B.tolist()
            found = writer.generate(
                DecodingWork(lambda rows: (source[list(rows)], length_B[list(rows)]), lengths), options
            )
        else:
            found = search(whole, source_BS, length_B, options)
        return [len(best[0].log_probabilities) for best in found]

    return write


def build_engine(setting: DecoderSetting, choice: EngineChoice) -> Write:
    """Build another engine in the place of torch, as `predict --engine` uses it."""
    length, portable = setting.output_length, _make_translator(setting).portable()
    with tempfile.TemporaryDirectory(prefix="saccade-bench-") as folder:
        if choice.shortlist is not None:
            choice = choice._replace(shortlist=Path(folder) / choice.shortlist)
            _make_shortlist(portable).save(Path(folder) / "made")
        searcher = make_searcher(portable._replace(options=BeamOptions()), choice)

    def write(source_BS: Tensor, beam: int) -> list[int]:
        sources = [ids[:-1] for ids in source_BS.tolist()]  # </s> is added
        found = searcher.search(sources, [[] for _ in sources], _make_options(length, beam), None)
        return [len(best[0].log_probabilities) for best in found]

    return write


def _make_shortlist(portable: Portable) -> Shortlist:
    listed, common = draw_shortlist(portable.target.size)
    return Shortlist(
        np.cumsum([0, *map(len, listed)], dtype=np.int32),
        np.array([number for ids in listed for number in ids], np.int32),
        np.array(common, np.int32),
        name_tokenizers(portable),
    )


def _make_options(length: int, beam: int) -> BeamOptions:
    return BeamOptions(width=beam, min_length=length - 1, max_length=length, max_length_factor=9, max_rounds=0)


def _make_translator(setting: DecoderSetting) -> Translator:
    sizes = setting.sizes
    model = {"width": sizes.width, "num_heads": sizes.num_heads, "hidden_width": sizes.hidden_width}
    sections = {
        "data": {"train": {"source": "nowhere"}, "valid": {"source": "nowhere"}},
        "model": {**model, "num_layers": sizes.num_layers, "dropout": sizes.dropout},
    }
    config = TranslateConfig.model_validate({"device": setting.device.type, **sections})
    both = word_tokenizer(sizes.vocabulary)
    network = task.model(config, (both, both)).to(setting.device)
    return task.translator(config, network, (both, both))


def _build(name: str, job: DecodeJob) -> Write | str:
    """Build a contestant, or return the reason why it can't be built."""
    if name == OURS:
        return build_ours(job.setting)
    if name in ENGINES:
        try:
            return build_engine(job.setting, ENGINES[name])
        except UserError as error:
            return str(error)
    try:
        return DECODERS[name].build(job.setting)
    except PeerError as error:
        return str(error)


def _measure_case(job: DecodeJob, writers: dict[str, Write | str], beam: int, batch: int) -> list[DecodeRow]:
    source_BS = draw_sources(batch, job.source_length, job.sizes.vocabulary)
    source_BS[:, -1] = END
    source_BS = source_BS.to(job.device)
    rows, ready = {}, {}
    for name, write in writers.items():
        rows[name] = _try_once(DecodeRow(name, title_of(name), beam, batch), write, source_BS, job.output_length)
        if rows[name].problem is None:
            assert not isinstance(write, str)
            ready[name] = lambda write=write: write(source_BS, beam)
    seconds = medians_side_by_side(ready, job.device, most=job.rounds, are_warm=True) if ready else {}
    return [replace(row, seconds=seconds.get(name)) for name, row in rows.items()]


def _try_once(row: DecodeRow, write: Write | str, source_BS: Tensor, length: int) -> DecodeRow:
    """Decode once and check the number of tokens; an error or a wrong number becomes the row's `problem`."""
    if isinstance(write, str):
        return replace(row, problem=write)
    try:
        written = write(source_BS, row.beam)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return replace(row, problem=f"{type(error).__name__}: {lines[0]}")
    if written != [length] * row.batch:
        wrong = next((count for count in written if count != length), len(written))
        return replace(row, problem=f"it wrote {wrong} tokens where {length} were asked for")
    return replace(row, tokens=sum(written))


def choose_decoders(names: str | None, device: str) -> tuple[str, ...]:
    """Parse a list of peers: names with commas, or none; without a list, return all that run on the device."""
    fitting = [name for name, decoder in DECODERS.items() if device in decoder.devices]
    fitting = [*(ENGINES if device == "cpu" else ()), *fitting]
    if names is None:
        return tuple(fitting)
    asked = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if unknown := [name for name in asked if name not in fitting and asked != ("none",)]:
        raise UserError(f"--peers: {unknown[0]!r} given; allowed: none, or some of {','.join(fitting)}")
    return () if asked == ("none",) else asked
