"""The command line: arguments in, one call out."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union

import torch
import typer
from pydantic import TypeAdapter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import saccade
from saccade.bench import attention as attention_bench
from saccade.bench import tables
from saccade.bench import training as training_bench
from saccade.bench.peers import PEERS
from saccade.config import load as config_file
from saccade.config import runs, verify
from saccade.config.predictors import load_run
from saccade.config.tasks import TASKS
from saccade.data import corpus
from saccade.data.mistakes import Mistake
from saccade.inspection import classes, draw
from saccade.lab import demo as demonstration
from saccade.lab import lengths
from saccade.tasks import translate
from saccade.training.interruption import Interrupted
from saccade.training.loop import NonFiniteLoss

Found = TypeVar("Found")

app = typer.Typer(
    help="Attention models you can train, run fast and look into.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench = typer.Typer(help="Measure saccade beside its peers, in one run.", no_args_is_help=True)
app.add_typer(bench, name="bench")
lab = typer.Typer(help="Experiments that end in a picture.", no_args_is_help=True)
app.add_typer(lab, name="lab")
config_app = typer.Typer(help="About config files.", no_args_is_help=True)
app.add_typer(config_app, name="config")


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
    out: Annotated[Path, typer.Option(help="The run's folder.")] = Path("runs/demo"),
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = demonstration.STEPS,
    sentences: Annotated[int, typer.Option(min=2000, help="To learn from.")] = demonstration.SENTENCES,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Another seed, another run.")] = 1,
) -> None:
    """Teach a small Transformer a phrasebook, English to French, and see what it looks at (about two minutes)."""
    console = Console()
    try:
        demonstration.run(out=out, steps=steps, sentences=sentences, seed=seed, console=console)
    except KeyboardInterrupt:
        console.print("\nInterrupted. The same command goes on where it was.")
        raise typer.Exit(130) from None


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="A YAML file; see configs/.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="section.field=value, as many as you like.")] = None,
    run: Annotated[Path | None, typer.Option(help="The run's folder. [default: runs/<name of the config>]")] = None,
    verify_resume: Annotated[
        bool, typer.Option("--verify-resume", help="Don't train: prove that killed runs end with the same weights.")
    ] = False,
    kills: Annotated[int | None, typer.Option(min=1, help="With --verify-resume: how many. [default: 3]")] = None,
    steps: Annotated[int | None, typer.Option(min=2, help="With --verify-resume: how long. [default: 24]")] = None,
) -> None:
    """Train a model, or go on with one that was interrupted."""
    folder = Path("runs") / config.stem if run is None else run
    console = Console()
    if verify_resume and run is not None:
        raise Mistake("--run: given with --verify-resume, which trains in a folder of its own and leaves nothing")
    if verify_resume:
        _verify_resume(config, overrides or [], kills=kills or 3, steps=steps or 24, console=console)
        return
    if kills or steps:
        raise Mistake(f"--{'kills' if kills else 'steps'}: it goes with --verify-resume; training.max_steps=N trains")
    try:
        with _one_line_warnings():
            runs.train(config_file.load(config, overrides or ()), folder, console)
    except Interrupted:
        console.print("\nInterrupted and saved. The same command goes on.")
        raise typer.Exit(130) from None
    except KeyboardInterrupt:
        console.print("\nInterrupted. The same command goes on.")
        raise typer.Exit(130) from None
    console.print(f"The model is in {folder}. Next: saccade predict {folder}, or saccade evaluate {folder} ...")


def _verify_resume(config: Path, overrides: list[str], *, kills: int, steps: int, console: Console) -> None:
    config_file.load(config, overrides)
    verdict = verify.verify(config, overrides, kills=kills, steps=steps, console=console)
    if not verdict.is_same:
        console.print("The weights differ: this run does not resume exactly. Please report it, with the config.")
        raise typer.Exit(1)
    times = f"{verdict.num_kills} kill{'s' if verdict.num_kills > 1 else ''}"
    console.print(f"Verified: {verdict.num_steps:,} steps with {times} end with bitwise the same weights as without.")


@lab.command("lengths")
def lab_lengths(
    configs: Annotated[list[Path], typer.Argument(help="Configs with a data.test; see configs/multi30k_*.yaml.")],
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each config.")] = 3,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at the same time.")] = 1,
    out: Annotated[Path, typer.Option(help="Where the runs and the picture go.")] = Path("runs/lengths"),
) -> None:
    """Train several configs over several seeds, and draw BLEU by source length for all of them."""
    lengths.run(configs, seeds=seeds, jobs=jobs, out=out, console=Console())


RunFolder = Annotated[Path, typer.Argument(help="A run folder.")]
Ensemble = Annotated[list[Path] | None, typer.Option(help="Another run, decoded together with the first; repeatable.")]
Beam = Annotated[int | None, typer.Option(min=1, help="Hypotheses kept; 1 is greedy. [default: the run's]")]
LengthPenalty = Annotated[float | None, typer.Option(min=0, help="0 ranks by log p alone. [default: the run's]")]
NoRepeat = Annotated[int | None, typer.Option(min=0, help="So many tokens in a row are never written twice; 0: off.")]


@app.command()
def predict(
    model: RunFolder,
    source: Annotated[Path | None, typer.Option("--input", help="A file to read. [default: standard input]")] = None,
    prefix: Annotated[Path | None, typer.Option(help="What each output begins with, line by line.")] = None,
    ensemble: Ensemble = None,
    beam: Beam = None,
    num_best: Annotated[int | None, typer.Option(min=1, help="Outputs for each line; with --json.")] = None,
    length_penalty: LengthPenalty = None,
    min_length: Annotated[int | None, typer.Option(min=0, help="No output has fewer tokens.")] = None,
    max_length: Annotated[int | None, typer.Option(min=1, help="No output has more tokens, </s> included.")] = None,
    no_repeat_ngram: NoRepeat = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw instead of searching.")] = False,
    temperature: Annotated[float | None, typer.Option(help="Below 1 is bolder, above 1 wilder. [default: 1]")] = None,
    top_k: Annotated[int | None, typer.Option(min=0, help="Draw from so many tokens; 0: all.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the fewest tokens that hold this share.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Another seed, other samples. [default: 1]")] = None,
    attention: Annotated[bool, typer.Option("--attention", help="Show where the model looked.")] = False,
    layer: Annotated[int | None, typer.Option(help="The decoder layer to show. [default: the last]")] = None,
    head: Annotated[int | None, typer.Option(help="The head to show. [default: the mean of all]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, with scores.")] = False,
) -> None:
    """Translate line by line, in order; blank lines stay blank."""
    if num_best is not None and num_best > 1 and not as_json:
        raise Mistake("--num-best: more than one output a line needs --json")
    decoding = _given(
        width=beam, num_best=num_best, length_penalty=length_penalty, min_length=min_length, max_length=max_length,
        no_repeat_ngram=no_repeat_ngram, sample=sample or None, temperature=temperature, top_k=top_k, top_p=top_p,
        seed=seed, attention=attention or None, layer=layer, head=head,
    )  # fmt: skip
    translator = load_run(model, *(ensemble or ()))
    is_typed = source is None and sys.stdin.isatty()  # somebody waits for an answer to each line
    lines = corpus.decoded_lines("standard input", sys.stdin.buffer) if source is None else corpus.read_lines(source)
    prefixes = None if prefix is None else corpus.read_lines(prefix)
    window = 1 if is_typed else translate.WINDOW
    found = translator.stream_best(lines, prefixes=prefixes, window=window, **decoding)
    console = Console()
    with _quiet():
        for best in _counted(found, _num_lines(source), hidden=is_typed or sys.stdout.isatty()):
            typer.echo(_as_json(best) if as_json else best[0].text)
            if attention and not as_json:
                _draw(best[0], console)


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _as_json(best: list[translate.Translation]) -> str:
    """The best output; with several, the others in a list."""
    first, *others = [_plain(found) for found in best]
    return json.dumps({**first, "others": others} if others else first, ensure_ascii=False)


def _plain(found: translate.Translation) -> dict[str, Any]:
    shown = _given(**found._asdict())
    if found.attention is not None:
        shown["attention"] = [[round(weight, 4) for weight in row] for row in found.attention.tolist()]
    return shown


def _draw(found: translate.Translation, console: Console) -> None:
    if found.attention is not None and found.source_pieces is not None:
        pieces = [*found.pieces, "</s>"][: len(found.log_probabilities)]
        console.print(draw.in_terminal(found.attention, queries=pieces, keys=found.source_pieces, console=console))


@app.command()
def evaluate(
    model: RunFolder,
    source: Annotated[Path, typer.Argument(help="Texts to translate, plain or .gz.")],
    target: Annotated[Path, typer.Argument(help="Their references, line by line.")],
    ensemble: Ensemble = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    no_repeat_ngram: NoRepeat = None,
    tokenize: Annotated[str, typer.Option(help="sacreBLEU's tokenizer; none for text that is tokenised.")] = "13a",
    plot: Annotated[Path | None, typer.Option(help="Draw BLEU by source length to a PNG, SVG or PDF.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for a program to read.")] = False,
) -> None:
    """Score a model on a test set: sacreBLEU and chrF, with their signatures, and by source length."""
    pairs = list(corpus.Corpus(str(source), str(target)).pairs())
    if not pairs:
        raise Mistake(f"{source}: empty; there is nothing to evaluate")
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    translate.check_tokenize(tokenize)
    if plot is not None:
        draw.check_ending(plot)
    translator = load_run(model, *(ensemble or ()))
    decoding = _given(width=beam, length_penalty=length_penalty, no_repeat_ngram=no_repeat_ngram)
    with _quiet():
        found = _counted(translator.stream(sources, **decoding), len(pairs), hidden=as_json)
        outputs = [one.text for one in found]
    scores = translate.evaluate(outputs, references, tokenize=tokenize)
    by_length = translate.by_length(sources, outputs, references, tokenize=tokenize)
    if plot is not None:
        names = [f"{row.label}\n({row.num_pairs:,})" for row in by_length]
        bleu = {model.name: [row.bleu for row in by_length]}
        classes.to_file(bleu, plot, classes=names, across="words in the source (pairs)", up="BLEU")
    if as_json:
        rows = [{"label": row.label, **row._asdict()} for row in by_length]
        typer.echo(json.dumps({"num_pairs": len(pairs), **scores._asdict(), "by_length": rows}))
        return
    typer.echo(f"BLEU {scores.bleu:.2f}  ({scores.bleu_signature})\nchrF {scores.chrf:.2f}  ({scores.chrf_signature})")
    Console().print(_length_table(by_length))


def _length_table(rows: list[translate.LengthScores]) -> Table:
    table = Table(header_style="bold", box=None, pad_edge=False)
    for heading in ("words in the source", "pairs", "BLEU", "chrF"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row.label, f"{row.num_pairs:,}", f"{row.bleu:.2f}", f"{row.chrf:.2f}")
    return table


@config_app.command("schema")
def config_schema() -> None:
    """Print the JSON schema of config files: every field, its default and what it means. Editors complete from it."""
    any_of: Any = Union[tuple(task.Config for task in TASKS.values())]  # noqa: UP007
    schema = TypeAdapter(any_of).json_schema()
    typer.echo(json.dumps(schema, indent=2, ensure_ascii=False))


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
        console.print("", tables.of_attention(f"{section}, beside {peer}", found))


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
    console.print(tables.of_training(rows))


def _progress(*, hidden: bool = False) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), disable=hidden, transient=True)


def _num_lines(path: Path | None) -> int | None:
    """How many lines a plain file has; of a pipe or a compressed file nobody knows before the end."""
    if path is None or path.suffix == ".gz" or not path.is_file():
        return None
    with path.open("rb") as file:
        return sum(1 for _ in file)


def _counted(found: Iterator[Found], total: int | None, *, hidden: bool) -> Iterator[Found]:
    """Pass outputs on and say how many there were: a bar in a terminal, elsewhere a line a minute."""
    console = Console(stderr=True)
    columns = (BarColumn(), TextColumn("{task.fields[said]}"), TimeRemainingColumn())
    disabled = hidden or not console.is_terminal
    bar = Progress(*columns, console=console, disable=disabled, redirect_stdout=False)  # outputs stay on stdout
    started = told = time.monotonic()
    with bar:
        task = bar.add_task("", total=total, said="")
        for number, one in enumerate(found, 1):
            yield one
            now = time.monotonic()
            if now - told >= (60 if disabled else 0.2) or number == total:
                of = "" if total is None else f" of {total:,}"
                said = f"{number:,}{of} lines, {number / (now - started):,.0f} a second"
                bar.update(task, completed=number, said=said)
                if disabled and not hidden and now - told >= 60:
                    typer.echo(said, err=True)
                told = now


@contextmanager
def _quiet() -> Iterator[None]:
    """Warnings are one line each; Ctrl-C, and a reader who has seen enough, end the command without a fuss."""
    try:
        with _one_line_warnings():
            yield
    except KeyboardInterrupt:
        typer.echo("saccade: interrupted", err=True)
        raise typer.Exit(130) from None
    except BrokenPipeError:
        _forget_output()
        raise typer.Exit from None


@contextmanager
def _one_line_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: typer.echo(f"saccade: {message}", err=True)
        yield


def _forget_output() -> None:
    """Whoever read us has seen enough."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
    except NonFiniteLoss as error:
        typer.echo(f"saccade: {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        _forget_output()
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _mistake(f"{error.strerror or error}{where}")
        sys.exit(2)
