"""`saccade bench train` and `saccade bench decode`: arguments in, one call out."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from rich.console import Console

from saccade.bench import decoding as decoding_bench
from saccade.bench import pictures, tables
from saccade.bench.choices import PEERS_FOLDER, Device, check_device, describe_machine, parse_numbers, refuse_options
from saccade.bench.training import accelerator, flops
from saccade.bench.training import toolkits as training_bench
from saccade.bench.training.trainers import TrainJob
from saccade.errors import UserError
from saccade.tasks.translate.networks import Size


class TrainedSize(StrEnum):
    """The sizes of model that are trained on an accelerator."""

    base = "base"
    big = "big"
    rnn = "rnn"


def bench_train(
    device: Annotated[
        Device, typer.Option(help="The device: other toolkits run on cpu, libraries on cuda.")
    ] = Device.cpu,
    data: Annotated[
        Path | None,
        typer.Option(help="The folder of Multi30k (cpu: $SACCADE_DATA/multi30k); cuda uses only its lengths."),
    ] = None,
    peers: Annotated[
        str | None, typer.Option(help="The others to measure, with commas, or none. (default: all)")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Number of measured steps. (default: 100 on cpu, 20 on cuda)")
    ] = None,
    peers_folder: Annotated[
        Path | None, typer.Option(help=f"cpu: the folder for their environments. (default: {PEERS_FOLDER})")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="cpu: trainings of each; the best counts. (default: 2)")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="cpu: cores for each. (default: 2)")] = None,
    precision: Annotated[
        Literal["auto", "float32", "bfloat16_output"] | None,
        typer.Option(help="cpu: of our products; the others compute in float32. (default: auto)"),
    ] = None,
    size: Annotated[TrainedSize | None, typer.Option(help="cuda: the model. (default: base)")] = None,
    tokens: Annotated[
        int | None, typer.Option(min=64, help="cuda: tokens of a step on each side. (default: 25600)")
    ] = None,
    vocabulary: Annotated[
        int | None, typer.Option(min=8, help="cuda: size of the vocabulary. (default: 37000, rnn 30000)")
    ] = None,
    shapes: Annotated[
        int | None, typer.Option(min=0, help="cuda: number of widths for compiled peers (0: any). (default: 6)")
    ] = None,
    growth: Annotated[bool, typer.Option(help="cuda: also vary batch, length, width and vocabulary.")] = False,
    picture: Annotated[Path | None, typer.Option("--plot", help="Draw the results to this PNG file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train one model with saccade and with others: real target tokens a second.

    On cpu with Eole, OpenNMT-py, JoeyNMT and torch's; on cuda with Hugging Face's, torch's and step-by-step loops.
    """
    check_device(device)
    here: dict[str, Any] = {"tokens": tokens, "steps": steps, "num_widths": shapes, "data": data}
    if device == Device.cuda:
        refuse_options("cpu", peers_folder=peers_folder, rounds=rounds, threads=threads, precision=precision)
        place = torch.device(device.value)
        wanted = vocabulary or (30_000 if size == TrainedSize.rnn else 37_000)
        sizes = flops.sizes_of((size or TrainedSize.base).value, wanted)
        names = accelerator.choose_model_peers(peers, is_recurrent=sizes.is_recurrent)
        given = {name: value for name, value in here.items() if value is not None}
        _show_accelerated(TrainJob(place, sizes, peers=names, **given), growth, picture, as_json)
        return
    refuse_options("cuda", size=size, tokens=tokens, vocabulary=vocabulary, shapes=shapes, growth=growth or None)
    if steps is not None and steps < 10:
        raise UserError(f"--steps: {steps} given; on a cpu it must be 10 or more, since toolkits report every ten")
    plan = training_bench.ToolkitPlan(
        data=training_bench.default_data() if data is None else data,
        names=training_bench.choose_toolkits(peers),
        peers_folder=(peers_folder or PEERS_FOLDER).expanduser(),
        steps=steps or 100,
        rounds=rounds or 2,
        threads=threads or min(2, os.cpu_count() or 1),
        precision=precision or "auto",
    )
    _show_toolkits(plan, picture, as_json)


def _show_toolkits(plan: training_bench.ToolkitPlan, picture: Path | None, as_json: bool) -> None:
    rows = training_bench.run(plan, Console(stderr=True).print)
    if picture is not None:
        training_bench.plot(rows, picture)
        Console(stderr=True).print(f"The picture: {picture}", markup=False)
    if as_json:
        report = {"job": asdict(plan.job()), "threads": plan.threads, "rows": [row.as_dict() for row in rows]}
        typer.echo(json.dumps(report, indent=1))
        return
    console = Console()
    console.print(
        f"{plan.threads} threads, {plan.steps} steps after {plan.warmup} of warm-up, the best of {plan.rounds} rounds; "
        f"ours with precision {plan.precision}."
    )
    console.print(tables.of_training(rows))


def _show_accelerated(job: TrainJob, growth: bool, picture: Path | None, as_json: bool) -> None:
    report = accelerator.run(job, Console(stderr=True).print, growth=growth)
    if picture is not None:
        pictures.of_training(report, picture)
        Console(stderr=True).print(f"The picture: {picture}", markup=False)
    if as_json:
        found = {
            "ceiling": report.ceiling,
            "model": job.sizes._asdict(),
            "tokens": job.tokens,
            "ratios": report.ratios(),
        }
        typer.echo(
            json.dumps({**describe_machine(job.device), **found, "rows": [r.as_dict() for r in report.rows]}, indent=1)
        )
    else:
        console = Console()
        console.print(
            f"{describe_machine(job.device)['name']}: a large matrix product runs at {report.ceiling / 1e12:,.3g} T/s."
        )
        console.print(f"{job.steps} steps after {job.warmup}; real: the share of the peers' tokens that isn't padding.")
        for work, rows in report.tables().items():
            console.print("", tables.on_accelerator(work, rows))
        for work, ratio in report.ratios().items():
            console.print(f"{work}: {ratio:.2f} times the best peer's rate", style="bold", highlight=False)
        for line in tables.problems(report.rows):
            console.print(line, style="yellow", markup=False)
    if any(row.problem for row in report.rows if row.name == accelerator.OURS):
        raise typer.Exit(1)


def bench_decode(
    device: Annotated[Device, typer.Option(help="The device to run on.")] = Device.cpu,
    size: Annotated[Size, typer.Option(help="The size of the Transformer.")] = "base",
    vocabulary: Annotated[
        int | None, typer.Option(min=8, help="Size of the vocabulary. (default: 32000 on cpu, 37000 on cuda)")
    ] = None,
    batches: Annotated[
        str | None, typer.Option(help="Sentences in a batch, with commas. (default: 1,64 on cpu, 1,64,512 on cuda)")
    ] = None,
    beams: Annotated[str, typer.Option(help="Beam widths, with commas; 1 is greedy.")] = "1,4",
    length: Annotated[int, typer.Option(min=1, help="Number of tokens to write for each sentence.")] = 32,
    peers: Annotated[
        str | None, typer.Option(help="The others to measure, with commas, or none. (default: all)")
    ] = None,
    with_torch: Annotated[
        bool,
        typer.Option("--torch/--no-torch", help="Measure our search in torch, too, which is slow in a wide batch."),
    ] = True,
    rounds: Annotated[
        int, typer.Option(min=1, help="The most runs of each that count, after a first one; the median is shown.")
    ] = 7,
    picture: Annotated[Path | None, typer.Option("--plot", help="Draw the results to this PNG file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Decode with untrained models: saccade, Hugging Face's generate and CTranslate2."""
    check_device(device)
    on_cpu = device == Device.cpu
    job = decoding_bench.DecodeJob(
        torch.device(device.value),
        flops.sizes_of(size, vocabulary or (32_000 if on_cpu else 37_000)),
        batches=parse_numbers("batches", batches or ("1,64" if on_cpu else "1,64,512")),
        beams=parse_numbers("beams", beams),
        output_length=length,
        peers=decoding_bench.choose_decoders(peers, device.value),
        with_torch=with_torch,
        rounds=rounds,
    )
    rows = decoding_bench.run(job, Console(stderr=True).print)
    if picture is not None:
        pictures.of_decoding(rows, picture)
        Console(stderr=True).print(f"The picture: {picture}", markup=False)
    if as_json:
        found = {"model": job.sizes._asdict(), "rows": [row.as_dict() for row in rows]}
        typer.echo(json.dumps({**describe_machine(job.device), **found}, indent=1))
        return
    console = Console()
    console.print(
        f"{describe_machine(job.device)['name']}: sources of {job.source_length} tokens, outputs of {length}; medians."
    )
    console.print(tables.of_decoding(rows))
    for line in tables.problems(rows):
        console.print(line, style="yellow", markup=False)
