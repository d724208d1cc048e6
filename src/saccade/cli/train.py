"""`saccade train`: from a config to a trained run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from saccade.cli import terminal
from saccade.cli.flags import Device, Threads
from saccade.datasets.bring import point_to_data
from saccade.errors import UserError
from saccade.runs import adapt, verify
from saccade.runs import config as config_file
from saccade.runs import train as runs
from saccade.runs.recipes import find_config
from saccade.tasks.console import say
from saccade.training.signals import TrainingInterrupted


def train(
    config: Annotated[Path, typer.Argument(help="The config: a YAML file, or the name of a recipe.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="section.field=value changes a field of the config; repeatable.")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="The run folder. (default: runs/<name of the config>)")] = None,
    verify_resume: Annotated[
        bool, typer.Option("--verify-resume", help="Don't train; prove that killed runs end with the same weights.")
    ] = False,
    kills: Annotated[
        int | None, typer.Option(min=1, help="With --verify-resume: the number of kills. (default: 3)")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=2, help="With --verify-resume: the number of training steps. (default: 24)")
    ] = None,
    threads: Threads = None,
    device: Device = None,
    rehearse: Annotated[
        bool, typer.Option(help="On a CUDA device: have kernels compiled ahead, by a process beside this one.")
    ] = True,
) -> None:
    """Train a model, or continue an interrupted run."""
    config = find_config(config)
    folder = Path("runs") / config.stem if run is None else run
    overrides = [*(overrides or ()), *([] if device is None else [f"device={device}"])]
    console = Console()
    if verify_resume and run is not None:
        raise UserError("--run: given with --verify-resume, which trains in a folder of its own and leaves nothing")
    if verify_resume:
        _verify_resume(config, overrides, kills=kills or 3, steps=steps or 24, threads=threads, console=console)
        return
    if kills or steps:
        raise UserError(f"--{'kills' if kills else 'steps'}: it goes with --verify-resume; training.max_steps=N trains")
    try:
        with terminal.shorten_warnings():
            checked = config_file.load_config(config, overrides, partial(adapt.fill_in, run=folder))
            point_to_data(checked)
            runs.train(checked, folder, console, threads=threads, rehearses=rehearse)
    except TrainingInterrupted:
        console.print("\nInterrupted and saved. The same command continues the run.")
        raise typer.Exit(130) from None
    except KeyboardInterrupt:
        console.print("\nInterrupted. The same command continues the run.")
        raise typer.Exit(130) from None
    said = f"The model is in {folder}. Next: saccade evaluate {folder}, or saccade predict {folder} --input FILE"
    say(console, said)


def _verify_resume(
    config: Path, overrides: list[str], *, kills: int, steps: int, threads: int | None, console: Console
) -> None:
    config_file.load_config(config, overrides, partial(adapt.fill_in, run=Path()))
    verdict = verify.verify(config, overrides, kills=kills, steps=steps, threads=threads, console=console)
    if not verdict.is_same:
        console.print("The weights differ: this run does not resume exactly. Please report it, with the config.")
        raise typer.Exit(1)
    times = f"{verdict.num_kills} kill{'s' if verdict.num_kills > 1 else ''}"
    console.print(f"Verified: {verdict.num_steps:,} steps with {times} end with bitwise the same weights as without.")
