"""`saccade serve`: arguments in, one call out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saccade.cli.flags import Device, Engine, Quantization, ShortlistFile, set_threads
from saccade.errors import UserError, describe_missing
from saccade.export.choice import EngineChoice
from saccade.serving.settings import Settings

if TYPE_CHECKING:
    from saccade.serving.models import ServedRun

DEFAULT = Settings()


def serve(
    runs: Annotated[list[Path], typer.Argument(help="Run folders of any task.")],
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 is every address.")] = DEFAULT.host,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on (0: a free one).")] = DEFAULT.port,
    languages: Annotated[
        list[str] | None, typer.Option(help="RUN=en-fr, for a run that does not name its languages; repeatable.")
    ] = None,
    glossary: Annotated[
        list[str] | None, typer.Option(help="RUN=terms.tsv, or terms.tsv for a single run: terms of all requests.")
    ] = None,
    api_keys: Annotated[
        Path | None, typer.Option(help="A file with an API key a line; without it no key is needed.")
    ] = None,
    max_queue: Annotated[
        int, typer.Option(min=1, help="The most sentences that may wait for a model.")
    ] = DEFAULT.max_queue,
    timeout: Annotated[float, typer.Option(min=0.1, help="The most seconds for an answer.")] = DEFAULT.timeout,
    batch_wait: Annotated[
        float, typer.Option(min=0, max=60_000, help="Milliseconds that a request waits for others to join its batch.")
    ] = 1000 * DEFAULT.batch_wait,
    max_characters: Annotated[
        int, typer.Option(min=1, help="The most characters of one request.")
    ] = DEFAULT.max_characters,
    max_batch: Annotated[int, typer.Option(min=1, help="The most texts of one request.")] = DEFAULT.max_texts,
    max_body: Annotated[int, typer.Option(min=1024, help="The most bytes of one request.")] = DEFAULT.max_body,
    rate: Annotated[
        int, typer.Option(min=0, help="The most requests a minute from one key or address; 0: no limit.")
    ] = DEFAULT.rate,
    max_connections: Annotated[
        int, typer.Option(min=1, help="The most connections; one address has at most half of them.")
    ] = DEFAULT.max_connections,
    drain_wait: Annotated[
        float, typer.Option(min=0, help="Seconds to go on after SIGTERM while /ready says 503.")
    ] = DEFAULT.drain_wait,
    drain_timeout: Annotated[
        float, typer.Option(min=0, help="Seconds after that to answer what has been accepted.")
    ] = DEFAULT.drain_timeout,
    cors: Annotated[
        list[str] | None, typer.Option(help="Allow pages of this origin, or * for all; repeatable.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Answer to this host name too, or * for all; repeatable.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU cores for each model. (default: the models share half of them)")
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, help="Processes that answer at this port, each with models of its own.")
    ] = 1,
    reload: Annotated[
        bool, typer.Option("--reload", help="When a run folder has changed, load it anew: other processes take over.")
    ] = False,
    device: Device = None,
    engine: Engine = "auto",
    quantization: Quantization = "float32",
    shortlist: ShortlistFile = None,
    suggestions: Annotated[
        Path | None, typer.Option(help="A file to which better translations from users are added.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log failures only.")] = False,
) -> None:
    """Serve runs over HTTP: a page at /, LibreTranslate's interface, and /v1."""
    try:
        from saccade.serving import server
        from saccade.serving.http.origins import read_names, read_origins
        from saccade.serving.http.security import read_keys
        from saccade.serving.models import load_runs
        from saccade.serving.processes import team
        from saccade.training.determinism import count_cores
    except ModuleNotFoundError as error:
        raise UserError(describe_missing("serving", error, "serve")) from None
    settings = Settings(
        host=host,
        port=port,
        max_queue=max_queue,
        timeout=timeout,
        batch_wait=batch_wait / 1000,
        max_characters=max_characters,
        max_texts=max_batch,
        max_body=max_body,
        rate=rate,
        max_connections=max_connections,
        drain_wait=drain_wait,
        drain_timeout=drain_timeout,
        cors=read_origins(cors or ()),
        hosts=read_names(allow_host or ()),
        keys=() if api_keys is None else read_keys(api_keys),
        threads=threads or max(1, count_cores() // 2 // len(runs) // processes),  # the rest is for HTTP
        suggestions=suggestions,
        quiet=quiet,
    )
    choice = EngineChoice(engine, quantization, shortlist)
    load = partial(load_runs, runs, languages or (), choice, glossary or (), device)
    if processes > 1 or reload:
        if rate:
            why = f"--processes {processes}, which do not" if processes > 1 else "--reload, whose processes do not"
            raise UserError(f"--rate: {rate} given with {why} count together")
        team.run(partial(_load_with, settings.threads, load), settings, processes, runs if reload else ())
        return
    set_threads(settings.threads)  # an engine chooses its threads when it is loaded
    server.run(load(), settings)


def _load_with(threads: int, load: Callable[[], list[ServedRun]]) -> list[ServedRun]:
    set_threads(threads)
    return load()
