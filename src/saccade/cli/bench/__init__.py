"""`saccade bench`: arguments in, one call out."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from saccade.bench import align as aligning_bench
from saccade.bench import glimpse as glimpse_bench
from saccade.bench import glossary as glossary_bench
from saccade.bench import look as looking_bench
from saccade.bench import tables
from saccade.bench.attention import additive as additive_bench
from saccade.bench.attention import scores as attention_bench
from saccade.bench.attention.contestants import OURS
from saccade.bench.attention.goals import check_goals
from saccade.bench.choices import PEERS_FOLDER, Device, check_device, describe_machine, parse_names
from saccade.bench.configs.fuzzing import fuzz_configs
from saccade.bench.serving import load as serving_bench
from saccade.bench.serving import resistance as resistance_bench
from saccade.cli.bench.repeat import bench_repeat
from saccade.cli.bench.speed import bench_decode, bench_train
from saccade.cli.bench.start import bench_start
from saccade.cli.flags import Engine, Quantization
from saccade.errors import UserError, describe_missing
from saccade.export.choice import EngineChoice
from saccade.tasks.translate.networks import Size
from saccade.training.rate import Pace

WIDE = 140  # columns of what is read from a pipe or a file
app = typer.Typer(help="Measure saccade and other toolkits in one run.", no_args_is_help=True)
app.command("train")(bench_train)
app.command("decode")(bench_decode)
app.command("repeat")(bench_repeat)
app.command("start")(bench_start)


@app.command("attention")
def bench_attention(
    device: Annotated[Device, typer.Option(help="The device to run on.")] = Device.cpu,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quick: Annotated[bool, typer.Option(help="Use small shapes: half a minute instead of six.")] = False,
) -> None:
    """Compare every score with torch's attention: time and memory, forward and backward, and their growth."""
    check_device(device)
    dtype = torch.bfloat16 if device == Device.cuda else torch.float32
    place = attention_bench.TensorPlace(torch.device(device.value), dtype)
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
    console.print("Shapes are B x H x T x K; ratios below 1: saccade is faster.")
    if not attention_bench.can_compile(place):
        console.print("torch.compile is left out: it needs a C++ compiler (g++), and there is none here.")
    for section, peer in dict.fromkeys((row.section, row.peer) for row in rows):
        found = [row for row in rows if (row.section, row.peer) == (section, peer)]
        console.print("", tables.of_attention(f"{section}, compared with {peer}", found))


@app.command("additive")
def bench_additive(
    device: Annotated[Device, typer.Option(help="The device to run on.")] = Device.cpu,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quick: Annotated[
        bool, typer.Option(help="Use small shapes and compile nothing: seconds instead of a minute.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="Only these cases, with commas: large, small, narrow, long, step.")
    ] = None,
) -> None:
    """Compare additive attention with the plain expression, eager and compiled: time, memory, errors."""
    check_device(device)
    place = torch.device(device.value)
    cases = additive_bench.all_cases(place, quick=quick)
    wanted = parse_names("only", ",".join(only) if only else None, dict.fromkeys(case.name for case in cases))
    cases = [case for case in cases if case.name in wanted]
    rows: list[additive_bench.AdditiveRow] = []
    with _progress(hidden=as_json) as progress, contextlib.suppress(KeyboardInterrupt):  # what is found is shown
        for case in progress.track(cases, description="measuring"):
            torch.manual_seed(1)  # each case draws the same inputs, whichever ran before
            rows += additive_bench.measure(case, place, most=3 if quick else 30)
    goals = check_goals(rows, at_full_size=device == Device.cuda and not quick)
    goals = [goal for goal in goals if goal.found is not None or not only]
    if as_json:
        found = {"goals": [goal.as_dict() for goal in goals], "rows": [row.as_dict() for row in rows]}
        typer.echo(json.dumps({"machine": describe_machine(place), **found}, indent=1))
    else:
        console = Console() if sys.stdout.isatty() else Console(width=WIDE)
        console.print(
            f"{describe_machine(place)['name']}, torch {torch.__version__}. Shapes are B x T x S x D, values as wide."
        )
        console.print(
            "wall, eager, compile: how many times their rate; / plain, gradients: RMS error over the plain float32's."
        )
        for name in dict.fromkeys(row.case for row in rows):
            console.print("", tables.of_additive(name, [row for row in rows if row.case == name]))
        console.print("", tables.of_goals(goals))
        for line in tables.problems(rows):
            console.print(line, style="yellow", markup=False)
    if any(row.problem for row in rows if row.name in OURS):
        raise typer.Exit(1)


@app.command("align")
def bench_align(
    model: Annotated[Path, typer.Argument(help="The run from source to target.")],
    opposite: Annotated[Path, typer.Option("--reverse", help="The run from target to source.")],
    source: Annotated[
        Path, typer.Option("--input", help="The source texts of the gold, or both sides: source ||| target.")
    ],
    gold: Annotated[Path, typer.Option(help="Gold alignments in Pharaoh's or NAACL's format.")],
    target: Annotated[Path | None, typer.Option(help="The target texts of the gold, line by line.")] = None,
    is_lower: Annotated[bool, typer.Option("--lower", help="Give eflomal lower-cased text.")] = False,
    peers_folder: Annotated[Path, typer.Option(help="The folder for eflomal's virtual environment.")] = PEERS_FOLDER,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare the heads of two opposite runs, as word aligners, with eflomal on the same training text."""
    files = aligning_bench.AlignFiles(source, target, gold)
    plan = aligning_bench.AlignPlan((model, opposite), files, peers_folder.expanduser(), is_lower)
    rows = aligning_bench.run(plan, Console(stderr=True).print)
    if as_json:
        typer.echo(json.dumps({"rows": [row.as_dict() for row in rows]}, indent=1))
        return
    Console().print(aligning_bench.table(rows))


@app.command("glossary")
def bench_glossary(
    model: Annotated[Path, typer.Argument(help="A text-to-text run with its training and test files.")],
    sentences: Annotated[int, typer.Option(min=1, help="The most sentences of the test set.")] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Translate a test set with terms drawn from its references: how many are written, and what the scores become."""
    with _progress(hidden=as_json) as progress:
        rows = glossary_bench.run(model, sentences, lambda cases, way: progress.track(cases, description=way))
    if as_json:
        typer.echo(json.dumps([row.as_dict() for row in rows], indent=1))
        return
    Console().print(glossary_bench.table(rows))


@app.command("glimpse")
def bench_glimpse(
    device: Annotated[Device, typer.Option(help="The device to run on.")] = Device.cpu,
    batch: Annotated[int, typer.Option(min=1, help="Images in a batch; the time of one is shown.")] = 16,
    picture: Annotated[Path | None, typer.Option("--plot", help="Draw both curves to this PNG file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure the cost of glimpses by image size, and that of a convolutional network."""
    check_device(device)
    rows = glimpse_bench.run(device=torch.device(device.value), batch=batch)
    if picture is not None:
        glimpse_bench.plot(rows, picture)
    if as_json:
        machine = {"device": device.value, "torch": torch.__version__, "threads": torch.get_num_threads()}
        typer.echo(json.dumps({"machine": machine, "rows": [row.as_dict() for row in rows]}, indent=1))
        return
    Console().print(glimpse_bench.table(rows))


@app.command("serve")
def bench_serve(
    runs: Annotated[list[Path], typer.Argument(help="A run that translates text; with --fuzz several, of any task.")],
    texts: Annotated[
        Path | None, typer.Option(help="A file of texts, one a line. (default: the run's test set)")
    ] = None,
    clients: Annotated[int, typer.Option(min=1, help="Number of clients at the same time.")] = 200,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds of load.")] = 60,
    alone: Annotated[float, typer.Option(min=1, help="Seconds with one request at a time, for comparison.")] = 20,
    requests: Annotated[
        int, typer.Option(min=0, help="Number of requests while memory is measured (0: none).")
    ] = 50_000,
    fuzz: Annotated[int, typer.Option(min=0, help="Send this number of malformed requests instead.")] = 0,
    processes: Annotated[int, typer.Option(min=1, help="Processes that serve.")] = 1,
    kill: Annotated[bool, typer.Option("--kill", help="Kill one of them (SIGKILL) in the middle of the load.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU cores of each. (default: as `serve`)")] = None,
    engine: Engine = "auto",
    quantization: Quantization = "float32",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Load a server with clients that check their answers: answers a second, waiting time, memory."""
    if fuzz:
        with _show_count("sending", fuzz) as say:
            survived = serving_bench.fuzz_runs(runs, fuzz, say)
        typer.echo(json.dumps(survived.as_dict()) if as_json else str(survived))
        raise typer.Exit(1 if survived.bad else 0)
    if runs[1:]:
        raise UserError(f"{runs[1]}: a second run given; the load is of one (several are for --fuzz)")
    plan = serving_bench.LoadPlan(
        run=runs[0],
        texts=texts,
        clients=clients,
        seconds=seconds,
        alone_seconds=alone,
        num_requests=requests,
        processes=processes,
        kill=kill,
        options=[] if threads is None else ["--threads", str(threads)],
        engine=EngineChoice(engine, quantization),
    )
    report = serving_bench.run(plan, Console(stderr=True).print)
    typer.echo(json.dumps(report.as_dict(), indent=1)) if as_json else Console().print(tables.of_serving(report))


@app.command("attack")
def bench_attack(
    run: Annotated[Path, typer.Argument(help="A run that translates text.")],
    kinds: Annotated[str | None, typer.Option(help="The attacks, with commas. (default: all)")] = None,
    texts: Annotated[
        Path | None, typer.Option(help="A file of texts, one a line. (default: the run's test set)")
    ] = None,
    clients: Annotated[int, typer.Option(min=1, help="Number of well-behaved clients.")] = 50,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds of each attack.")] = 60,
    quiet: Annotated[float, typer.Option(min=1, help="Seconds without one before each.")] = 20,
    pause: Annotated[float, typer.Option(min=0, help="Seconds between the requests of a client, in the mean.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Let one client attack a server in every way: how long the others wait then, and what they lose."""
    plan = serving_bench.LoadPlan(
        run=run, texts=texts, clients=clients, seconds=seconds, alone_seconds=quiet, pause=pause
    )
    rows = resistance_bench.run(plan, kinds, Console(stderr=True).print)
    shown = [row.as_dict() for row in rows]
    typer.echo(json.dumps(shown, indent=1)) if as_json else Console().print(tables.of_attacks(rows))
    raise typer.Exit(1 if any(row.is_bad for row in rows) else 0)


@app.command("html")
def bench_html(
    count: Annotated[int, typer.Option(min=1, help="Number of fragments.")] = 5000,
    seed: Annotated[int, typer.Option(min=0, help="Another seed makes other fragments.")] = 1,
    in_browser: Annotated[bool, typer.Option("--browser", help="Compare in a Chromium instead of html5lib.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Translate HTML made by chance: browsers must find the same elements, attributes and comments afterwards."""
    try:
        from saccade.bench.html.check import check_html
    except ModuleNotFoundError as error:
        raise UserError(describe_missing("bench html", error, "serve")) from None
    with _show_count("translating", count) as say:
        found = check_html(count, seed=seed, in_browser=in_browser, say=say)
    typer.echo(json.dumps(found.as_dict(), indent=1) if as_json else str(found))
    raise typer.Exit(1 if found.bad else 0)


@app.command("fuzz")
def bench_fuzz(
    cases: Annotated[int, typer.Option(min=1, help="Number of mutated configs and data files.")] = 500,
    seed: Annotated[int, typer.Option(help="Another seed gives other mutations.")] = 1,
    keep: Annotated[Path | None, typer.Option(help="A folder for the cases that do harm.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train and predict with mutated configs and files: each case must be refused in one line, or do its work."""
    done = itertools.count(1)
    with _show_count("cases", cases) as say:
        found = fuzz_configs(cases, seed=seed, keep=keep, say=lambda case: say(next(done)))
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=1))
    else:
        ends = f"{found.codes[0]:,} did their work, {found.codes[2]:,} were refused, {found.codes[1]:,} diverged"
        typer.echo(f"{cases:,} cases: {ends}, {len(found.bad):,} did harm; the slowest took {found.slowest:.1f} s")
        for bad in found.bad:
            typer.echo(f"{bad.what}: {bad.problem}")
    raise typer.Exit(1 if found.bad else 0)


@app.command("look")
def bench_look(
    device: Annotated[Device, typer.Option(help="The device to run on.")] = Device.cpu,
    size: Annotated[Size, typer.Option(help="The size of the Transformer.")] = "base",
    sentences: Annotated[int, typer.Option(min=1, help="Number of sentences.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure the cost of recording every layer and head of a Transformer."""
    check_device(device)
    rows = looking_bench.run(device=torch.device(device.value), size=size, sentences=sentences)
    typer.echo(json.dumps([row.as_dict() for row in rows])) if as_json else Console().print(looking_bench.table(rows))


@contextlib.contextmanager
def _show_count(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Count on standard error: a bar on a terminal, elsewhere a line now and then."""
    pace, console = Pace(), Console(stderr=True)

    def say(done: int) -> None:
        progress.update(task, completed=done)
        if not console.is_terminal and pace.is_due():
            typer.echo(f"{what}: {done:,} of {total:,}", err=True)

    with _progress(hidden=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        yield say


def _progress(*, hidden: bool = False) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), disable=hidden, transient=True)
