"""The command line: a file a command, arguments in, one call out."""

from __future__ import annotations

import gc
import keyword
import platform
import sys
from importlib import import_module
from importlib.metadata import version as version_of
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import saccade
from saccade.cli import terminal
from saccade.errors import LostProcess, NonFiniteLoss, UserError, describe_missing, is_out_of_memory

COMMANDS = {  # each in the file of its name, in the order of the help
    "demo": "Train a small Transformer on a phrasebook, English to French, and show what it reads (two minutes).",
    "train": "Train a model, or continue an interrupted run.",
    "predict": "Answer each line or file of the input, in order.",
    "evaluate": "Score a model on a test set: BLEU and chrF, exact matches, accuracy, F1, word errors.",
    "look": "Show the attention of a model: the words, or the parts of a picture, that it read.",
    "export": "Write a model for another engine, and prove that it answers the same there.",
    "import": "Make a run of a model of another toolkit, and prove that it answers the same here.",
    "explain": "Say which engine suits a run on this machine, and why the others can't run it.",
    "shortlist": "Learn which tokens can stand for those of a source: the native engine is faster with them.",
    "serve": "Serve runs over HTTP: a page at /, LibreTranslate's interface, and /v1.",
    "recipes": "List recipes: configs to begin with. Also show and copy them.",
    "data": "List the data sets of recipes, or bring one: made here, or fetched from where it is public.",
    "bench": "Measure saccade and other toolkits in one run.",
    "compare": "Train variants of a config with the same budget, and say which is better, and how sure that is.",
    "lab": "Try a claim, run an experiment, or prepare its data.",
    "config": "Describe config files; accept an edited one.",
}


class LazyGroup(TyperGroup):
    """Commands that are imported when they are called, so that help and completion of their names start at once."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Replace the stub of a command by the command itself."""
        name, stub, rest = super().resolve_command(ctx, args)
        found = None if stub is None else load_command(str(name))
        if not gc.isenabled():  # `main` has begun to import
            gc.freeze()
            gc.enable()
        return name, found, rest


def load_command(name: str) -> Any:
    """Import a command, or a group of them, from the file of its name."""
    called = f"{name}_" if keyword.iskeyword(name) else name
    module = import_module(f"saccade.cli.{called}")
    if hasattr(module, "app"):
        return typer.main.get_group(module.app)
    alone = typer.Typer(add_completion=False)
    alone.command(name)(getattr(module, called))
    return typer.main.get_command(alone)


app = typer.Typer(
    cls=LazyGroup,
    help="Attention models you can train, run fast and look into.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, _help in COMMANDS.items():
    app.command(_name, help=_help)(lambda: None)


def _version(wanted: bool) -> None:
    if wanted:
        python = platform.python_version()
        typer.echo(f"saccade {saccade.__version__} (torch {version_of('torch')}, Python {python})")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    del version


def main() -> None:
    """Run the `saccade` command: exit code 0 fine, 2 the user's mistake, 1 ours."""
    terminal.escape_unknown_letters()
    gc.disable()  # until the command is imported: to look through all that again and again takes a quarter of a second
    try:
        with terminal.shorten_warnings():
            code = app(prog_name="saccade", standalone_mode=False)
        sys.exit(code)
    except terminal.Misuse as error:
        _fail(terminal.explain_misuse(error), 2)
    except typer.Abort:
        _fail("stopped: an answer was asked for, and the input had ended", 1)
    except UserError as error:
        _fail(str(error), 2)
    except (LostProcess, NonFiniteLoss) as error:
        _fail(str(error), 1)
    except ModuleNotFoundError as error:
        _fail(describe_missing("this command", error), 2)
    except (MemoryError, RuntimeError, ValueError) as error:
        if not is_out_of_memory(error):
            raise
        _fail(f"not enough memory: {str(error).splitlines()[0] or 'Python has none left'}", 2)
    except BrokenPipeError:
        terminal.forget_output()
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _fail(f"{error.strerror or error}{where}", 2)


def _fail(message: str, code: int) -> None:
    """Print one clear line, and end with the exit code."""
    if message:
        typer.echo(f"saccade: {message}", err=True)
    sys.exit(code)
