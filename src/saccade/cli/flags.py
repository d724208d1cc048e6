"""Flags that several commands share, and flags in groups: a dataclass a subject, of which Typer sees every field."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

from saccade.errors import UserError
from saccade.export import choice

RunFolder = Annotated[Path, typer.Argument(help="The run folder.")]
Ensemble = Annotated[list[Path] | None, typer.Option(help="Decode together with this run; repeatable.")]
Beam = Annotated[
    int | None, typer.Option("--beam", min=1, help="Number of hypotheses; 1 is greedy. (default: the run's)")
]
LengthPenalty = Annotated[
    float | None, typer.Option(min=0, help="Length penalty; 0 ranks by log p alone. (default: the run's)")
]
MaxLength = Annotated[int | None, typer.Option(min=1, help="The most tokens of an output, with </s>.")]
MaxLengthFactor = Annotated[
    float | None, typer.Option(help="The most tokens of an output for each source token. (default: the run's)")
]
MaxLengthExtra = Annotated[
    int | None, typer.Option(min=0, help="So many more tokens, whatever the source. (default: the run's)")
]
MaxRounds = Annotated[
    int | None,
    typer.Option(
        min=0, help="Cut an output that goes round the same tokens more often (0: never). (default: the run's)"
    ),
]
NoRepeat = Annotated[int | None, typer.Option(min=0, help="Never repeat an n-gram of this size (0: off).")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Number of CPU threads. (default: the cores but one, or OMP_NUM_THREADS)")
]
Device = Annotated[
    Literal["auto", "cpu", "cuda"] | None, typer.Option(help="Where to compute. (default: the run's config)")
]
Engine = Annotated[
    choice.EngineName,
    typer.Option(
        help="What searches: torch; on the CPU our native library, CTranslate2 or ONNX; auto: the native library "
        "where it can, else torch (see `saccade explain`)."
    ),
]
Quantization = Annotated[
    choice.Quantization, typer.Option(help="How the other engine stores numbers; int8 is a quarter of the bytes.")
]
ShortlistFile = Annotated[
    Path | None,
    typer.Option(
        "--shortlist", help="With the native engine: a file of `saccade shortlist`; only its tokens are written."
    ),
]
Placeholders = Annotated[
    Literal["keep", "ignore"] | None,
    typer.Option(help="keep: {0}, %s, tags, addresses and URLs come out as they went in. (default: the run's)"),
]
GlossaryFile = Annotated[
    Path | None, typer.Option(help="A file of terms: source, tab, target. Outputs have the targets as they are there.")
]
Terms = Annotated[
    Literal["annotate", "constrain"] | None,
    typer.Option(
        help="How outputs get the terms: by notes in sources, for runs trained with data.terms; by a search that must "
        "write them. (default: the first if it can, then the second)"
    ),
]
FLAGS = {"width": "--beam", "prefixes": "--prefix"}  # options that have another name on the command line


def set_threads(number: int | None) -> None:
    """Compute with this number of CPU threads, or the usual one."""
    import torch  # help is shown without it

    from saccade.training.determinism import usual_threads

    torch.set_num_threads(number or usual_threads())


def group_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take dataclasses of flags: Typer gets a function with a parameter for each of their fields."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}

    def flat(**values: Any) -> None:
        made = {name: kind(**{one.name: values.pop(one.name) for one in fields(kind)}) for name, kind in groups.items()}
        command(**values, **made)

    flat.__name__, flat.__doc__, flat.__module__ = command.__name__, command.__doc__, command.__module__
    parameters = list[inspect.Parameter]()
    for name, parameter in inspect.signature(command).parameters.items():
        parameters += _fields(groups[name]) if name in groups else [parameter.replace(annotation=hints[name])]
    vars(flat)["__signature__"] = inspect.Signature([one.replace(kind=one.KEYWORD_ONLY) for one in parameters])
    flat.__annotations__ = {one.name: one.annotation for one in parameters}
    return flat


def _fields(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(one.name, kind, default=one.default, annotation=hints[one.name]) for one in fields(group)]


def collect_options(*groups: Any) -> dict[str, Any]:
    """Return the options of a predictor that the flags of these groups ask for, by their names."""
    values = {one.name: getattr(group, one.name) for group in groups for one in fields(group)}
    return {name: value for name, value in values.items() if value is not None and value is not False}


def refuse_others(given: Mapping[str, Any], allowed: Collection[str]) -> None:
    """Refuse an option that a predictor doesn't take: it would have no effect."""
    for name in given:
        if name not in allowed:
            flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
            raise UserError(f"{flag}: given, but this model's task has no use for it")
