"""The command line: arguments in, one call out."""

from __future__ import annotations

import functools
import inspect
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union

import torch
import typer
from pydantic import TypeAdapter
from rich.console import Console

import saccade
from saccade.cli import bench as bench_commands
from saccade.cli import lab as lab_commands
from saccade.cli import look as look_commands
from saccade.cli import serve as serving_commands
from saccade.cli import terminal
from saccade.data.text import corpus
from saccade.errors import UserError
from saccade.inspection.draw import heatmap
from saccade.lab import demo as demonstration
from saccade.runs import config as config_file
from saccade.runs import train as runs
from saccade.runs import verify
from saccade.runs.load import load_run
from saccade.tasks import TASKS
from saccade.training.loop import NonFiniteLoss
from saccade.training.signals import Interrupted

Found = TypeVar("Found")

app = typer.Typer(
    help="Attention models you can train, run fast and look into.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(bench_commands.app, name="bench")
app.add_typer(lab_commands.app, name="lab")
config_app = typer.Typer(help="About config files.", no_args_is_help=True)
app.add_typer(config_app, name="config")


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
    run: Annotated[Path | None, typer.Option(help="The run's folder. (default: runs/<name of the config>)")] = None,
    verify_resume: Annotated[
        bool, typer.Option("--verify-resume", help="Don't train: prove that killed runs end with the same weights.")
    ] = False,
    kills: Annotated[int | None, typer.Option(min=1, help="With --verify-resume: how many. (default: 3)")] = None,
    steps: Annotated[int | None, typer.Option(min=2, help="With --verify-resume: how long. (default: 24)")] = None,
) -> None:
    """Train a model, or go on with one that was interrupted."""
    folder = Path("runs") / config.stem if run is None else run
    console = Console()
    if verify_resume and run is not None:
        raise UserError("--run: given with --verify-resume, which trains in a folder of its own and leaves nothing")
    if verify_resume:
        _verify_resume(config, overrides or [], kills=kills or 3, steps=steps or 24, console=console)
        return
    if kills or steps:
        raise UserError(f"--{'kills' if kills else 'steps'}: it goes with --verify-resume; training.max_steps=N trains")
    try:
        with terminal.one_line_warnings():
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


RunFolder = Annotated[Path, typer.Argument(help="A run folder.")]
Ensemble = Annotated[list[Path] | None, typer.Option(help="Another run, decoded together with the first; repeatable.")]
Beam = Annotated[int | None, typer.Option(min=1, help="Hypotheses kept; 1 is greedy. (default: the run's)")]
LengthPenalty = Annotated[float | None, typer.Option(min=0, help="0 ranks by log p alone. (default: the run's)")]
NoRepeat = Annotated[int | None, typer.Option(min=0, help="So many tokens in a row are never written twice; 0: off.")]


FLAGS = {"width": "--beam", "prefixes": "--prefix"}


@app.command()
def predict(
    model: RunFolder,
    source: Annotated[Path | None, typer.Option("--input", help="A file to read. (default: standard input)")] = None,
    prefix: Annotated[Path | None, typer.Option(help="What each output begins with, line by line.")] = None,
    ensemble: Ensemble = None,
    beam: Beam = None,
    num_best: Annotated[int | None, typer.Option(min=1, help="Outputs for each line; with --json.")] = None,
    length_penalty: LengthPenalty = None,
    min_length: Annotated[int | None, typer.Option(min=0, help="No output has fewer tokens.")] = None,
    max_length: Annotated[int | None, typer.Option(min=1, help="No output has more tokens, </s> included.")] = None,
    no_repeat_ngram: NoRepeat = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw instead of searching.")] = False,
    temperature: Annotated[float | None, typer.Option(help="Below 1 is bolder, above 1 wilder. (default: 1)")] = None,
    top_k: Annotated[int | None, typer.Option(min=0, help="Draw from so many tokens; 0: all.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the fewest tokens that hold this share.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Another seed, other samples. (default: 1)")] = None,
    attention: Annotated[bool, typer.Option("--attention", help="Show where the model looked.")] = False,
    layer: Annotated[int | None, typer.Option(help="The decoder layer to show. (default: the last)")] = None,
    head: Annotated[int | None, typer.Option(help="The head to show. (default: the mean of all)")] = None,
    key_terms: Annotated[int | None, typer.Option(min=1, help="So many words that carried the label.")] = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Those of every tag; for --draw.")] = False,
    pictures: Annotated[Path | None, typer.Option("--draw", help="A folder for a picture of each output.")] = None,
    picture_ending: Annotated[str, typer.Option("--ending", help="What kind of picture: .png, .svg, .gif.")] = ".png",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, with scores.")] = False,
) -> None:
    """Answer line by line, in order: translate, label, tag; or whatever the model reads."""
    if num_best is not None and num_best > 1 and not as_json:
        raise UserError("--num-best: more than one output a line needs --json")
    given = _given(
        width=beam, num_best=num_best, length_penalty=length_penalty, min_length=min_length, max_length=max_length,
        no_repeat_ngram=no_repeat_ngram, sample=sample or None, temperature=temperature, top_k=top_k, top_p=top_p,
        seed=seed, attention=attention or None, layer=layer, head=head, key_terms=key_terms,
        probabilities=probabilities or None,
        prefixes=None if prefix is None else corpus.read_lines(prefix),
    )  # fmt: skip
    predictor = load_run(model, *(ensemble or ()))
    stream = getattr(predictor, "stream_best", predictor.stream)
    _check_options(stream, given)
    is_typed = source is None and sys.stdin.isatty()  # somebody waits for an answer to each line
    window = {"window": 1} if is_typed and "window" in inspect.signature(stream).parameters else {}
    console = Console()
    if picture_ending != ".png" and pictures is None:
        raise UserError("--ending: given without --draw")
    if pictures is not None:
        given |= _shown_in_pictures(stream)
    found = stream(predictor.read(source), **window, **given)
    with terminal.quiet():
        for number, best in enumerate(
            terminal.counted(found, terminal.num_lines(source), hidden=is_typed or sys.stdout.isatty()), 1
        ):
            first, *others = best if isinstance(best, list) else [best]
            if pictures is not None:
                _draw(first, pictures / f"{number}{picture_ending}")
            typer.echo(_as_json(first, others) if as_json else first.line())
            if attention and not as_json and hasattr(first, "show"):
                first.show(console)


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _check_options(call: Callable[..., Any], given: dict[str, Any]) -> None:
    """What a task has no use for is refused, not ignored; whoever takes any keyword refuses for itself."""
    parameters = inspect.signature(call).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for name in given:
        if name not in parameters:
            flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
            raise UserError(f"{flag}: given, but this model's task has no use for it")


def _shown_in_pictures(stream: Callable[..., Any]) -> dict[str, bool]:
    """What a task must be asked for so that there is something to draw."""
    parameters = inspect.signature(stream).parameters
    if "probabilities" in parameters:
        return {"probabilities": True}
    return {"attention": True} if {"attention", "decoding"} & set(parameters) else {}


def _as_json(first: Any, others: list[Any]) -> str:
    """The best output; with several, the others in a list."""
    rest = {"others": [one.plain() for one in others]} if others else {}
    return json.dumps({**first.plain(), **rest}, ensure_ascii=False)


def _draw(found: Any, path: Path) -> None:
    if not hasattr(found, "draw"):
        raise UserError("--draw: there is nothing to draw for this model's task")
    found.draw(path)


@app.command()
def evaluate(
    model: RunFolder,
    files: Annotated[
        list[Path] | None, typer.Argument(help="A test set: a file, or a source and its target, line by line.")
    ] = None,
    ensemble: Ensemble = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    no_repeat_ngram: NoRepeat = None,
    tokenize: Annotated[str | None, typer.Option(help="sacreBLEU's; none for tokenised text. (default: 13a)")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it to a PNG, SVG or PDF: BLEU by source length.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for a program to read.")] = False,
) -> None:
    """Score a model on a test set; text with sacreBLEU and chrF, their signatures, and by source length."""
    if plot is not None:
        heatmap.check_ending(plot)
    predictor = load_run(model, *(ensemble or ()))
    given = _given(width=beam, length_penalty=length_penalty, no_repeat_ngram=no_repeat_ngram, tokenize=tokenize)
    _check_options(predictor.evaluate, given)
    if "watch" in inspect.signature(predictor.evaluate).parameters:
        given["watch"] = functools.partial(terminal.counted, hidden=as_json)
    if not files and getattr(predictor, "needs_files", True):
        raise UserError("files: none given; allowed: the files of a test set")
    with terminal.quiet():
        found = predictor.evaluate(files or [], **given)
    typer.echo(json.dumps(dict(found.scores)) if as_json else "\n".join(found.lines))
    if plot is not None:
        if found.draw is None:
            raise UserError("--plot: there is nothing to draw for this model's task")
        found.draw(plot)


app.command()(look_commands.look)
app.command()(serving_commands.serve)


@config_app.command("schema")
def config_schema() -> None:
    """Print the JSON schema of config files: every field, its default and what it means. Editors complete from it."""
    any_of: Any = Union[tuple(task.config for task in TASKS.values())]  # noqa: UP007
    schema = TypeAdapter(any_of).json_schema()
    typer.echo(json.dumps(schema, indent=2, ensure_ascii=False))


def _mistake(message: str) -> typer.Exit:
    """The user's mistake: one clear line, exit code 2."""
    typer.echo(f"saccade: {message}", err=True)
    return typer.Exit(2)


def main() -> None:
    """The `saccade` command: exit code 0 fine, 2 the user's mistake, 1 ours."""
    terminal.escape_unknown_letters()
    try:
        app()
    except UserError as error:
        _mistake(str(error))
        sys.exit(2)
    except NonFiniteLoss as error:
        typer.echo(f"saccade: {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        terminal.forget_output()
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _mistake(f"{error.strerror or error}{where}")
        sys.exit(2)
