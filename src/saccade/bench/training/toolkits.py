"""`saccade bench train`: we and other toolkits train one small Transformer, one after another, in one run.

The figure is the number of real target tokens (with </s>, without padding) a second in steady state. The time is that
between two steps of the same training, with loading of batches, without set-up, validation or checkpoints.
"""

from __future__ import annotations

import functools
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast, final

import torch

import saccade
from saccade.bench.peers import configs
from saccade.bench.peers.configs import ToolkitJob
from saccade.bench.peers.environments import PeerError
from saccade.bench.peers.toolkits import PEERS, Mark, Toolkit, ToolkitOutcome, Versions
from saccade.bench.training import trainers
from saccade.bench.training.flops import ModelSizes
from saccade.bench.training.sentences import TrainingText
from saccade.bench.training.trainers import TrainJob
from saccade.data.store import Store
from saccade.data.text.tokenizer import UNKNOWN, SentencePiece
from saccade.errors import UserError
from saccade.files import replace_file
from saccade.tasks import devices
from saccade.tasks.translate import batches, corpora, task
from saccade.tasks.translate.config import TranslateConfig
from saccade.tasks.translate.tokenizers import prepare_tokenizers
from saccade.training.checkpoints import Progress
from saccade.training.loop import Trainer

Say = Callable[[str], None]
LANGUAGES = ("de", "en")
FEW = 8  # pairs for a peer that insists on a validation set
LOOPS = ("torch", "torch-compiled")  # of `trainers.PEERS`: the usual loop of torch's users, in this process
NEVER = (1 << 31) - 1  # steps


@final
@dataclass(frozen=True)
class ToolkitPlan:
    """The data, peers, steps and rounds of a comparison with other toolkits."""

    data: Path
    names: tuple[str, ...]  # of peers
    peers_folder: Path
    steps: int = 100  # counted ones
    warmup: int = 20  # steps before them
    rounds: int = 2
    threads: int = 2
    report_every: int = 10
    precision: str = "auto"  # ours; the others compute in float32

    def job(self) -> ToolkitJob:
        """Return the model, to be trained for the warm-up and the counted steps."""
        return ToolkitJob(steps=self.warmup + self.steps, report_every=self.report_every)


@final
@dataclass(frozen=True)
class Round:
    """The tokens and time of one training, and the rate that the toolkit itself printed."""

    tokens: float
    seconds: float
    printed_rate: float | None

    @property
    def rate(self) -> float:
        """The number of real target tokens a second."""
        return self.tokens / self.seconds


@final
@dataclass
class ToolkitRow:
    """A toolkit and its trainings, or the reason why there are none."""

    title: str
    versions: Versions | None = None
    rounds: list[Round] = field(default_factory=list)
    problem: str | None = None

    @property
    def rate(self) -> float | None:
        """The rate of the best round, because other work on the machine can only slow a training down."""
        return max((one.rate for one in self.rounds), default=None)

    def as_dict(self) -> dict[str, Any]:
        rounds = [{**asdict(one), "rate": one.rate} for one in self.rounds]
        versions = None if self.versions is None else self.versions._asdict()
        return {"title": self.title, "versions": versions, "rate": self.rate, "rounds": rounds, "problem": self.problem}


def run(plan: ToolkitPlan, say: Say) -> list[ToolkitRow]:
    """Train with every toolkit in turns, round by round; our row is the first."""
    config = _config(plan.job(), _files(plan.data), plan.precision)
    torch.set_num_threads(plan.threads)
    contestants = [_Contestant(_make_row("saccade", saccade.__version__), train_ours_steadily)]
    contestants += [_make_ready(name, plan, say) for name in plan.names]
    with tempfile.TemporaryDirectory(prefix="saccade-bench-") as name:
        folder = Path(name)
        say("cutting the text into pieces")
        write_peer_files(config, folder)
        for number in range(1, plan.rounds + 1):
            for row, train in contestants:
                if row.problem is None:
                    say(f"round {number} of {plan.rounds}: {row.title}")
                    try:
                        row.rounds.append(train(plan, config, folder))
                    except PeerError as error:
                        row.problem = str(error)
    return [contestant.row for contestant in contestants]


class _Contestant(NamedTuple):
    """A row, and the training that fills it: of a plan, with our config, in the folder of the peers' files."""

    row: ToolkitRow
    train: Callable[[ToolkitPlan, TranslateConfig, Path], Round]


def _make_row(title: str, version: str) -> ToolkitRow:
    return ToolkitRow(title, Versions(version, torch.__version__))


def _make_ready(name: str, plan: ToolkitPlan, say: Say) -> _Contestant:
    """Install a peer if it isn't there, and read its versions."""
    if name in LOOPS:
        title = trainers.PEERS[name].title
        return _Contestant(_make_row(title, torch.__version__), functools.partial(train_loop, name))
    toolkit = Toolkit.at(PEERS[name], plan.peers_folder / name)
    row = ToolkitRow(toolkit.peer.title)
    try:
        if not toolkit.environment.is_ready:
            say(f"installing {row.title} into {toolkit.environment.folder} (once; it takes minutes)")
            toolkit.environment.install()
        row.versions = toolkit.versions()
    except PeerError as error:
        row.problem = str(error)
    return _Contestant(row, functools.partial(_train_toolkit, toolkit))


def _train_toolkit(toolkit: Toolkit, plan: ToolkitPlan, config: TranslateConfig, folder: Path) -> Round:
    del config
    return measure_steady(toolkit.train(plan.job(), folder, plan.threads), plan.warmup)


def train_ours_steadily(plan: ToolkitPlan, config: TranslateConfig, folder: Path) -> Round:
    """Train with our own loop, and count what follows the warm-up."""
    return measure_steady(train_ours(config, folder), plan.warmup)


def train_loop(name: str, plan: ToolkitPlan, config: TranslateConfig, folder: Path) -> Round:
    """Train a model of torch's layers in this process, on the same sentences, padded to a few widths.

    Its batches lie ready, its dropout acts on residuals alone, and nothing is clipped: each only makes it faster.
    """
    (store,) = corpora.stores(config, prepare_tokenizers(config, folder), folder / "store")
    job, work = plan.job(), read_lengths(store, cast(int, config.training.tokens_per_batch))
    sizes = ModelSizes(job.width, job.num_layers, job.vocabulary_size, job.num_heads, job.hidden_width)
    given = TrainJob(torch.device("cpu"), sizes, work.tokens, plan.steps, plan.warmup)
    torch.manual_seed(job.seed)
    try:
        trained = trainers.measure_peer(trainers.PEERS[name], given, work, store)
    except Exception as error:  # whatever a compiler says
        raise PeerError(f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}") from error
    return Round(trained.tokens, trained.seconds, None)


def read_lengths(store: Store, tokens: int) -> TrainingText:
    """Return the lengths of a corpus, </s> included."""
    return TrainingText("Multi30k", store.source.lengths + 1, store.target.lengths + 1, tokens)


def measure_steady(trained: ToolkitOutcome, warmup: int) -> Round:
    """Count tokens and time between the first mark after the warm-up and the last."""
    counted = [mark for mark in trained.marks if mark.step >= warmup]
    if len(counted) < 2:
        reached = trained.marks[-1].step if trained.marks else 0
        raise PeerError(f"its log ends at step {reached}, before there is something to count")
    first, last = counted[0], counted[-1]
    return Round(last.tokens - first.tokens, last.seconds - first.seconds, trained.printed_rate)


def train_ours(config: TranslateConfig, folder: Path) -> ToolkitOutcome:
    """Train with our own loop over the store, as `saccade train` does, with a mark at every step."""
    both = prepare_tokenizers(config, folder)
    stores = corpora.stores(config, both, folder / "store")
    network = task.model(config, both).train()
    plan = batches.plan(config, batches.TrainingPairs.of(stores))
    options = devices.training_options(config, network)
    marks: list[Mark] = []

    def mark(progress: Progress, measured: dict[str, Any]) -> None:
        if "score" not in measured:  # validation is none of the training
            marks.append(Mark(progress.step, time.perf_counter(), progress.items))

    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        loss = batches.choose_loss(config, network)
        trainer = Trainer(network, plan, loss, options, Path(scratch))
        trainer.run(lambda: {"score": 0.0}, mark)
    return ToolkitOutcome(marks)


def write_peer_files(config: TranslateConfig, folder: Path) -> None:
    """Write the peers' files: the text, the same in pieces, the vocabulary, and the SentencePiece model."""
    tokenizer = prepare_tokenizers(config, folder)[0]
    assert isinstance(tokenizer, SentencePiece)
    texts = corpora.training_corpora(config)
    pairs = [pair for corpus in texts for pair in corpus.pairs() if pair.source and pair.target]
    tokenizer.save(folder / configs.SENTENCEPIECE_MODEL)
    _write(folder / configs.VOCABULARY, tokenizer.pieces(range(UNKNOWN + 1, tokenizer.size)))
    cut = (configs.SOURCE_PIECES, configs.TARGET_PIECES)
    for side, (language, pieces) in enumerate(zip(LANGUAGES, cut, strict=True)):
        lines = [pair[side] for pair in pairs]
        _write(folder / f"train.{language}", lines)
        _write(folder / f"few.{language}", lines[:FEW])
        _write(folder / pieces, (" ".join(tokenizer.pieces(tokenizer.encode(text))) for text in lines))


def _write(path: Path, lines: Iterable[str]) -> None:
    with replace_file(path) as draft:
        draft.write_text("".join(line + "\n" for line in lines), "utf-8")


def _config(job: ToolkitJob, files: dict[str, str], precision: str = "float32") -> TranslateConfig:
    """Write the job as a config of ours."""
    tokenizer = {"kind": "unigram", "vocabulary_size": job.vocabulary_size, "shared": True}
    model = {
        "width": job.width,
        "num_heads": job.num_heads,
        "hidden_width": job.hidden_width,
        "num_layers": job.num_layers,
        "dropout": job.dropout,
        "attention_dropout": job.dropout,
        "activation_dropout": job.dropout,
    }
    training = {
        "max_steps": job.steps,
        "tokens_per_batch": job.tokens_per_batch,
        "learning_rate": job.learning_rate,
        "warmup_steps": job.warmup_steps,
        "schedule": "inverse_square_root",
        "label_smoothing": job.label_smoothing,
        "clip_norm": job.clip_norm,
        "adam_betas": job.adam_betas,
        "precision": precision,
        "validate_every": NEVER,
        "save_every": NEVER,
    }
    data = {"train": files, "valid": files, "max_length": job.max_length}
    sections = {"data": data, "tokenizer": tokenizer, "model": model, "training": training}
    return TranslateConfig.model_validate({"seed": job.seed, "device": "cpu", **sections})


def _files(folder: Path) -> dict[str, str]:
    """Return both sides of the training text, or raise a `UserError` that names a missing file."""
    paths = [folder / f"train.{language}.gz" for language in LANGUAGES]
    if missing := [path for path in paths if not path.is_file()]:
        wanted = "a folder with Multi30k's train.de.gz and train.en.gz"
        raise UserError(f"--data: there is no file at {missing[0]}; wanted: {wanted} (or set SACCADE_DATA)")
    return {"source": str(paths[0]), "target": str(paths[1])}


def default_data() -> Path:
    """Return Multi30k's folder in SACCADE_DATA, or in ../shared/data without it."""
    root = os.environ.get("SACCADE_DATA")
    return (Path(root) if root else Path("..") / "shared" / "data") / "multi30k"


def choose_toolkits(names: str | None) -> tuple[str, ...]:
    """Parse a list of peers: names with commas, or none; without a list, return all."""
    if names is None:
        return (*PEERS, *LOOPS)
    asked = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    allowed = [*PEERS, *LOOPS]
    if unknown := [name for name in asked if name not in allowed and asked != ("none",)]:
        raise UserError(f"--peers: {unknown[0]!r} given; allowed: none, or some of {','.join(allowed)}")
    return () if asked == ("none",) else asked


def plot(rows: Sequence[ToolkitRow], path: Path) -> None:
    """Draw a bar for each toolkit's rate."""
    from matplotlib.figure import Figure

    shown = [row for row in rows if row.rate is not None]
    figure = Figure(figsize=(6.4, 0.6 * len(shown) + 1.2), layout="constrained")
    axes = figure.subplots()
    colours = ["tab:orange" if row is rows[0] else "tab:gray" for row in shown]
    bars = axes.barh([row.title for row in shown], [row.rate or 0.0 for row in shown], color=colours)
    axes.bar_label(bars, fmt="{:,.0f}", padding=3)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel("real target tokens a second")
    axes.spines[["top", "right"]].set_visible(False)
    with replace_file(path) as draft:
        figure.savefig(draft, dpi=150, format="png")
