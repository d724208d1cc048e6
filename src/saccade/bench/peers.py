"""Other toolkits, each in a virtual environment of its own: how they are installed, configured, run and read."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, final

import yaml

from saccade.data.files import replacing

TIME_LIMIT = 3600.0  # seconds, for one install or one training

# What lies in the folder that a peer is run in.
CONFIG = "peer.yaml"
SOURCE_PIECES, TARGET_PIECES = "train.pieces.de", "train.pieces.en"
VOCABULARY = "vocabulary.txt"
SENTENCEPIECE_MODEL = "pieces.model"
SPECIAL = ("<unk>", "<pad>", "<s>", "</s>")


class Mark(NamedTuple):
    """Where a training stood: its step, a clock in seconds, and the real target tokens trained on until then."""

    step: int
    seconds: float
    tokens: float


class Trained(NamedTuple):
    """What a training's log says: its marks, and the mean of the rates that it printed itself (tokens a second)."""

    marks: list[Mark]
    printed_rate: float | None = None


class Failed(RuntimeError):
    """A peer could not be installed or run; the message says why."""


@final
@dataclass(frozen=True)
class Job:
    """One model for all: its sizes, and how long it is trained."""

    steps: int
    report_every: int
    width: int = 128
    num_heads: int = 4
    hidden_width: int = 256
    num_layers: int = 2
    dropout: float = 0.1
    label_smoothing: float = 0.1
    tokens_per_batch: int = 2048
    vocabulary_size: int = 6000
    learning_rate: float = 5e-4
    warmup_steps: int = 100  # of the learning rate
    adam_betas: tuple[float, float] = (0.9, 0.998)
    clip_norm: float = 1.0
    max_length: int = 60
    seed: int = 1


@final
@dataclass(frozen=True)
class Peer:
    """A toolkit: its package, what pip is given, its config, its command line, and its log in our terms."""

    title: str
    package: str
    requirements: tuple[str, ...]
    config: Callable[[Job], dict[str, Any]]
    command: tuple[str, ...]  # the first word lies in the environment's bin
    read: Callable[[str], Trained]


class Versions(NamedTuple):
    """Of a toolkit, and of the torch below it."""

    toolkit: str
    torch: str


@final
@dataclass(frozen=True)
class Environment:
    """A peer's virtual environment in a folder."""

    peer: Peer
    folder: Path

    @property
    def binaries(self) -> Path:
        """Where its commands are."""
        return self.folder / "venv" / ("Scripts" if os.name == "nt" else "bin")

    @property
    def is_ready(self) -> bool:
        """It holds what is wanted; half an install doesn't count."""
        done = self.folder / "installed.json"
        return done.exists() and json.loads(done.read_text("utf-8")) == list(self.peer.requirements)

    def install(self) -> None:
        """Make it, from the package index that pip is set up for."""
        self.folder.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", "--clear", str(self.folder / "venv")], self.folder)
        _run([str(self.binaries / "python"), "-m", "pip", "install", "-q", *self.peer.requirements], self.folder)
        with replacing(self.folder / "installed.json") as draft:
            draft.write_text(json.dumps(self.peer.requirements), "utf-8")

    def versions(self) -> Versions:
        """What is installed."""
        code = f"from importlib.metadata import version as v; print(v({self.peer.package!r}), v('torch'))"
        return Versions(*_run([str(self.binaries / "python"), "-c", code], self.folder).split()[-2:])

    def train(self, job: Job, data: Path, threads: int) -> Trained:
        """Train in the folder of the data, and read the log."""
        with replacing(data / CONFIG) as draft:
            draft.write_text(yaml.safe_dump(self.peer.config(job), sort_keys=False, allow_unicode=True), "utf-8")
        command = [str(self.binaries / self.peer.command[0]), *self.peer.command[1:]]
        count = str(threads)
        quiet = {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "CUDA_VISIBLE_DEVICES": ""}
        trained = self.peer.read(_run(command, data, quiet))
        if len(trained.marks) < 2:
            raise Failed(f"{self.peer.title}: its log holds {len(trained.marks)} reports of progress; 2 are needed")
        return trained


def _run(command: list[str], folder: Path, variables: dict[str, str] | None = None) -> str:
    """All that a command printed; its last line is the reason when it fails."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**clean, **(variables or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=TIME_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{Path(command[0]).name} took more than {TIME_LIMIT:,.0f} seconds") from None
    except OSError as error:
        raise Failed(f"{command[0]}: {error.strerror}") from None
    printed = done.stdout.decode("utf-8", "replace")
    if done.returncode:
        lines = printed.strip().splitlines() or ["it printed nothing"]
        raise Failed(f"{Path(command[0]).name} ended with exit code {done.returncode}: {lines[-1].strip()}")
    return printed


def _clock(text: str) -> float:
    """Seconds of a time as Python's logging writes it, to the millisecond."""
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f").timestamp()  # only differences are used


_OPENNMT_LINE = re.compile(
    r"^\[(?P<clock>[\d-]+ [\d:]+,\d+) INFO\] Step +(?P<step>\d+)/.*; bsz: +\d+/ *(?P<tokens>\d+)/ *\d+; "
    r" *\d+/ *(?P<rate>\d+) tok/s;",
    re.MULTILINE,
)


def read_opennmt(log: str) -> Trained:
    """OpenNMT-py's and Eole's lines: `bsz` is the mean of real source tokens, target tokens and sentences a batch.

    Tokens are that mean times the steps since the last line, time is the line's own clock. `tok/s` counts the same
    tokens over the time since the last line, data loading included.
    """
    marks = [Mark(0, 0.0, 0.0)]
    rates = []
    for found in _OPENNMT_LINE.finditer(log):
        step, before = int(found["step"]), marks[-1]
        tokens = before.tokens + (step - before.step) * int(found["tokens"])
        marks.append(Mark(step, _clock(found["clock"]), tokens))
        rates.append(float(found["rate"]))
    return Trained(marks[1:], _mean_rate(rates))


_JOEY_LINE = re.compile(
    r"^(?P<clock>[\d-]+ [\d:]+,\d+) - .*Epoch +\d+, Step: +(?P<step>\d+),.*Tokens per Sec: +(?P<rate>\d+),",
    re.MULTILINE,
)


def read_joeynmt(log: str) -> Trained:
    """JoeyNMT's lines say no count, but a rate: real target tokens over the time since the last line, validation apart.

    Tokens are therefore that rate times the time between the lines' clocks.
    """
    marks: list[Mark] = []
    rates = []
    for found in _JOEY_LINE.finditer(log):
        seconds, rate = _clock(found["clock"]), float(found["rate"])
        tokens = marks[-1].tokens + rate * (seconds - marks[-1].seconds) if marks else 0.0
        marks.append(Mark(int(found["step"]), seconds, tokens))
        rates.append(rate)
    return Trained(marks, _mean_rate(rates))


def _mean_rate(rates: list[float]) -> float | None:
    """Of the rates printed after the first, which holds the set-up."""
    return sum(rates[1:]) / len(rates[1:]) if len(rates) > 1 else None


def _opennmt_py(job: Job) -> dict[str, Any]:
    """OpenNMT-py's config: one flat table. Its dropout is on residuals, activations and embeddings."""
    return {
        "data": {"corpus": {"path_src": SOURCE_PIECES, "path_tgt": TARGET_PIECES}},
        "src_vocab": VOCABULARY,
        "tgt_vocab": VOCABULARY,
        "share_vocab": True,
        "save_model": "peer/model",
        "save_checkpoint_steps": job.steps,
        "valid_steps": job.steps,
        "train_steps": job.steps,
        "report_every": job.report_every,
        "seed": job.seed,
        "encoder_type": "transformer",
        "decoder_type": "transformer",
        "self_attn_type": "scaled-dot",
        "position_encoding": True,
        "enc_layers": job.num_layers,
        "dec_layers": job.num_layers,
        "heads": job.num_heads,
        "hidden_size": job.width,
        "word_vec_size": job.width,
        "transformer_ff": job.hidden_width,
        "dropout": job.dropout,
        "attention_dropout": job.dropout,
        "share_embeddings": True,
        "share_decoder_embeddings": True,
        "world_size": 1,
        **_shared_by_opennmt(job),
    }


def _eole(job: Job) -> dict[str, Any]:
    """Eole's config: OpenNMT-py's words in sections."""
    return {
        "data": {"corpus": {"path_src": SOURCE_PIECES, "path_tgt": TARGET_PIECES}},
        "src_vocab": VOCABULARY,
        "tgt_vocab": VOCABULARY,
        "src_vocab_size": job.vocabulary_size,
        "tgt_vocab_size": job.vocabulary_size,
        "share_vocab": True,
        "overwrite": True,
        "report_every": job.report_every,
        "seed": job.seed,
        "training": {
            "model_path": "peer",
            "train_steps": job.steps,
            "valid_steps": job.steps,
            "save_checkpoint_steps": job.steps,
            "world_size": 1,
            "gpu_ranks": [],
            "compute_dtype": "fp32",
            "dropout": [job.dropout],
            "attention_dropout": [job.dropout],
            **_shared_by_opennmt(job),
        },
        "model": {
            "architecture": "transformer",
            "layers": job.num_layers,
            "heads": job.num_heads,
            "hidden_size": job.width,
            "transformer_ff": job.hidden_width,
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "embeddings": {"word_vec_size": job.width, "position_encoding_type": "SinusoidalInterleaved"},
        },
    }


def _shared_by_opennmt(job: Job) -> dict[str, Any]:
    return {
        "batch_type": "tokens",
        "batch_size": job.tokens_per_batch,
        "normalization": "tokens",
        "bucket_size": 32768,  # all of Multi30k: batches of like lengths
        "num_workers": 0,
        "optim": "adam",
        "adam_beta1": job.adam_betas[0],
        "adam_beta2": job.adam_betas[1],
        "decay_method": "noam",
        "warmup_steps": job.warmup_steps,
        "learning_rate": 2.0,
        "max_grad_norm": job.clip_norm,
        "label_smoothing": job.label_smoothing,
    }


def _joeynmt(job: Job) -> dict[str, Any]:
    """JoeyNMT's config: it cuts raw text itself, with our SentencePiece model."""
    pieces = {
        "max_length": job.max_length,
        "level": "bpe",
        "voc_file": VOCABULARY,
        "tokenizer_type": "sentencepiece",
        "tokenizer_cfg": {"model_file": SENTENCEPIECE_MODEL, "pretokenizer": "none"},
    }
    half = {
        "type": "transformer",
        "num_layers": job.num_layers,
        "num_heads": job.num_heads,
        "hidden_size": job.width,
        "ff_size": job.hidden_width,
        "dropout": job.dropout,
        "layer_norm": "pre",
        "embeddings": {"embedding_dim": job.width, "scale": True, "dropout": job.dropout},
    }
    names = dict(zip(("unk_token", "pad_token", "bos_token", "eos_token"), SPECIAL, strict=True))
    places = {"unk_id": 0, "pad_id": 1, "bos_id": 2, "eos_id": 3}
    return {
        "name": "bench",
        "model_dir": "peer",
        "use_cuda": False,
        "fp16": False,
        "random_seed": job.seed,
        "data": {
            "train": "train",
            "dev": "few",
            "dataset_type": "plain",
            "src": {"lang": "de", **pieces},
            "trg": {"lang": "en", **pieces},
            "special_symbols": {**names, **places},
        },
        "testing": {"beam_size": 1, "batch_size": 64, "batch_type": "sentence", "eval_metrics": ["bleu"]},
        "training": {
            "optimizer": "adam",
            "adam_betas": list(job.adam_betas),
            "learning_rate": job.learning_rate,
            "learning_rate_warmup": job.warmup_steps,
            "scheduling": "warmupinversesquareroot",
            "clip_grad_norm": job.clip_norm,
            "label_smoothing": job.label_smoothing,
            "loss": "crossentropy",
            "batch_size": job.tokens_per_batch,
            "batch_type": "token",
            "normalization": "tokens",
            "epochs": 1000,
            "updates": job.steps,
            "validation_freq": 1_000_000,
            "logging_freq": job.report_every,
            "early_stopping_metric": "bleu",
            "shuffle": True,
            "overwrite": True,
            "print_valid_sents": [0],
        },
        "model": {
            "initializer": "xavier_uniform",
            "bias_initializer": "zeros",
            "embed_initializer": "xavier_uniform",
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": half,
            "decoder": half,
        },
    }


PEERS = {
    "opennmt_py": Peer(
        "OpenNMT-py",
        "OpenNMT-py",
        ("OpenNMT-py", "numpy<2"),
        _opennmt_py,
        ("onmt_train", "-config", CONFIG),
        read_opennmt,
    ),
    "eole": Peer("Eole", "eole", ("eole", "aiohttp"), _eole, ("eole", "train", "-config", CONFIG), read_opennmt),
    "joeynmt": Peer(
        "JoeyNMT",
        "joeynmt",
        ("joeynmt", "importlib_metadata", "sentencepiece==0.2.0"),
        _joeynmt,
        ("python", "-m", "joeynmt", "train", CONFIG, "--skip-test"),
        read_joeynmt,
    ),
}
