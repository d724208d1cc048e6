"""The command line: arguments in, one call out."""

from __future__ import annotations

import json
import os
import platform
import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import saccade
from saccade.bench import attention as attention_bench
from saccade.bench import training as training_bench
from saccade.bench.peers import PEERS
from saccade.config import build, runs
from saccade.config import load as config_file
from saccade.data import corpus
from saccade.data.mistakes import Mistake
from saccade.lab import reorder
from saccade.tasks import translate

app = typer.Typer(
    help="Attention models you can train, run fast and look into.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench = typer.Typer(help="Measure saccade beside its peers, in one run.", no_args_is_help=True)
app.add_typer(bench, name="bench")


PEERS_FOLDER = Path("~/.cache/saccade/peers")


class Device(StrEnum):
    """Where to run."""

    cpu = "cpu"
    cuda = "cuda"


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"saccade {saccade.__version__} (torch {torch.__version__}, Python {platform.python_version()})")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    del version


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where the picture goes.")] = Path("runs/demo"),
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = reorder.STEPS,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Another seed, another run.")] = 1,
) -> None:
    """Train a small model with additive attention and draw what it looks at (about half a minute)."""
    reorder.run(out=out, steps=steps, seed=seed, console=Console())


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="A YAML file; see configs/.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="section.field=value, as many as you like.")] = None,
    run: Annotated[Path | None, typer.Option(help="The run's folder. [default: runs/<name of the config>]")] = None,
) -> None:
    """Train a model, or go on with one that was interrupted."""
    folder = Path("runs") / config.stem if run is None else run
    console = Console()
    try:
        runs.train(config_file.load(config, overrides or ()), folder, console)
    except KeyboardInterrupt:
        console.print(f"\nInterrupted and saved. The same command goes on: saccade train {config}")
        raise typer.Exit(130) from None
    console.print(f"The model is in {folder}. Next: saccade predict {folder}, or saccade evaluate {folder} ...")


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A run folder.")],
    source: Annotated[Path | None, typer.Option("--input", help="A file to read. [default: standard input]")] = None,
    beam: Annotated[int | None, typer.Option(min=1, help="Hypotheses kept; 1 is greedy. [default: the run's]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, with scores.")] = False,
) -> None:
    """Translate line by line, in order; blank lines stay blank."""
    translator = build.load_run(model)
    decoding = {} if beam is None else {"width": beam}
    lines = (
        corpus.read_lines(source) if source is not None else corpus.decoded_lines("standard input", sys.stdin.buffer)
    )
    for found in translator.stream(lines, **decoding):
        typer.echo(json.dumps(found._asdict(), ensure_ascii=False) if as_json else found.text)


@app.command()
def evaluate(
    model: Annotated[Path, typer.Argument(help="A run folder.")],
    source: Annotated[Path, typer.Argument(help="Texts to translate.")],
    target: Annotated[Path, typer.Argument(help="Their references, line by line.")],
    beam: Annotated[int | None, typer.Option(min=1, help="Hypotheses kept; 1 is greedy. [default: the run's]")] = None,
    tokenize: Annotated[str, typer.Option(help="sacreBLEU's tokenizer; none for text that is tokenised.")] = "13a",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for a program to read.")] = False,
) -> None:
    """Score a model on a test set: sacreBLEU and chrF, with their signatures."""
    pairs = list(corpus.Corpus(str(source), str(target)).pairs())
    if not pairs:
        raise Mistake(f"{source}: empty; there is nothing to evaluate")
    decoding = {} if beam is None else {"width": beam}
    outputs = build.load_run(model).predict([pair.source for pair in pairs], **decoding)
    references = [pair.target for pair in pairs]
    scores = translate.evaluate([found.text for found in outputs], references, tokenize=tokenize)
    if as_json:
        typer.echo(json.dumps({"num_pairs": len(pairs), **scores._asdict()}))
        return
    typer.echo(f"BLEU {scores.bleu:.2f}  ({scores.bleu_signature})\nchrF {scores.chrf:.2f}  ({scores.chrf_signature})")


@bench.command("attention")
def bench_attention(
    device: Annotated[Device, typer.Option(help="Where to run.")] = Device.cpu,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for a program to read.")] = False,
    quick: Annotated[bool, typer.Option(help="Small shapes: half a minute instead of six.")] = False,
) -> None:
    """Every score beside torch's attention: time ratio and peak memory, forward and backward, and their growth."""
    if device == Device.cuda and not torch.cuda.is_available():
        raise _mistake("--device: cuda given, but torch sees no CUDA device here; allowed: cpu")
    dtype = torch.bfloat16 if device == Device.cuda else torch.float32
    place = attention_bench.Place(torch.device(device.value), dtype)
    cases = attention_bench.all_cases(place, quick=quick)
    torch.manual_seed(1)
    with _progress(hidden=as_json) as progress:
        rows = [attention_bench.measure(case, place) for case in progress.track(cases, description="measuring")]
    if as_json:
        machine = {
            "device": device.value,
            "dtype": str(dtype),
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
        }
        typer.echo(json.dumps({"machine": machine, "rows": [row.as_dict() for row in rows]}, indent=1))
        return
    console = Console()
    console.print(f"{device.value}, {dtype}, torch {torch.__version__}, {torch.get_num_threads()} threads; medians.")
    console.print("Shapes are B x H x T x K; ratios below 1: saccade is quicker.")
    if not attention_bench.can_compile(place):
        console.print("torch.compile is left out: it needs a C++ compiler (g++), and there is none here.")
    for section, peer in dict.fromkeys((row.section, row.peer) for row in rows):
        found = [row for row in rows if (row.section, row.peer) == (section, peer)]
        console.print("", _bench_table(f"{section}, beside {peer}", found))


@bench.command("train")
def bench_train(
    data: Annotated[Path | None, typer.Option(help="Multi30k's folder. [default: $SACCADE_DATA/multi30k]")] = None,
    peers: Annotated[str, typer.Option(help="Toolkits beside ours, with commas; or none.")] = ",".join(PEERS),
    peers_folder: Annotated[Path, typer.Option(help="Where their virtual environments are kept.")] = PEERS_FOLDER,
    steps: Annotated[int, typer.Option(min=10, help="Steps that count, after 20 of warm-up.")] = 100,
    rounds: Annotated[int, typer.Option(min=1, help="Every toolkit trains so often, in turns; the best counts.")] = 2,
    threads: Annotated[int, typer.Option(min=1, help="Processor cores for each.")] = min(2, os.cpu_count() or 1),
    picture: Annotated[Path | None, typer.Option("--plot", help="Write a bar chart (PNG) here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for a program to read.")] = False,
) -> None:
    """Train one small Transformer with saccade, Eole, OpenNMT-py and JoeyNMT: real target tokens a second."""
    plan = training_bench.Plan(
        data=training_bench.default_data() if data is None else data,
        names=training_bench.chosen(peers),
        peers_folder=peers_folder.expanduser(),
        steps=steps,
        rounds=rounds,
        threads=threads,
    )
    rows = training_bench.run(plan, Console(stderr=True).print)
    if picture is not None:
        training_bench.plot(rows, picture)
    if as_json:
        report = {"job": asdict(plan.job()), "threads": threads, "rows": [row.as_dict() for row in rows]}
        typer.echo(json.dumps(report, indent=1))
        return
    console = Console()
    console.print(f"{threads} threads, {steps} steps after {plan.warmup} of warm-up, the best of {rounds} rounds.")
    console.print(_training_table(rows))


def _training_table(rows: list[training_bench.Row]) -> Table:
    table = Table(header_style="bold", box=None, pad_edge=False)
    for heading in ("toolkit", "version", "torch"):
        table.add_column(heading, no_wrap=True)
    for heading in ("target tok/s", "ours is"):
        table.add_column(heading, justify="right")
    ours = rows[0].rate
    for row in rows:
        versions = ("-", "-") if row.versions is None else row.versions
        if row.rate is None or ours is None:
            table.add_row(row.title, *versions, f"missing: {row.problem}", "-")
        else:
            table.add_row(row.title, *versions, f"{row.rate:,.0f}", f"{ours / row.rate:.2f}x")
    return table


def _bench_table(title: str, rows: list[attention_bench.Row]) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for heading in ("what", "shape", "pass"):
        table.add_column(heading, no_wrap=True)
    for heading in ("ours", "theirs", "ratio", "peak", "theirs"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.name,
            row.shape,
            "both" if row.backward else "forward",
            f"{row.seconds * 1e3:.1f} ms",
            "-" if row.peer_seconds is None else f"{row.peer_seconds * 1e3:.1f} ms",
            "-"
            if row.time_ratio is None
            else f"[{'green' if row.time_ratio <= 1.15 else 'yellow'}]{row.time_ratio:.2f}[/]",
            _mebibytes(row.peak_bytes),
            _mebibytes(row.peer_peak_bytes),
        )
    return table


def _mebibytes(count: int | None) -> str:
    return "-" if count is None else f"{count / 2**20:,.0f} MiB"


def _progress(*, hidden: bool = False) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), disable=hidden, transient=True)


def _mistake(message: str) -> typer.Exit:
    """The user's mistake: one clear line, exit code 2."""
    typer.echo(f"saccade: {message}", err=True)
    return typer.Exit(2)


def main() -> None:
    """The `saccade` command: exit code 0 fine, 2 the user's mistake, 1 ours."""
    try:
        app()
    except Mistake as error:
        _mistake(str(error))
        sys.exit(2)
    except BrokenPipeError:  # whoever read us has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _mistake(f"{error.strerror or error}{where}")
        sys.exit(2)
