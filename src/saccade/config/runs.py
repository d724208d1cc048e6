"""A run from its config to a trained model: prepare, train, validate, keep the best."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from saccade.config import build, summary
from saccade.config import load as config_file
from saccade.config.schema import Run
from saccade.data.batches import collate
from saccade.data.mistakes import Mistake
from saccade.tasks import translate
from saccade.training import checkpoints
from saccade.training.loop import Trainer, append_json, loss_of

LOG_EVERY = 10
MAY_CHANGE: dict[str, Any] = {
    "training": {"max_steps": True, "patience": True, "validate_every": True, "save_every": True},
    "decoding": True,
    "data": {"test": True},
}


def train(config: Run, folder: Path, console: Console) -> checkpoints.Progress:
    """Train in `folder`, or go on where it was left. The same config gives the same weights, interrupted or not."""
    _check_same_run(config, folder)
    held_out = summary.held_out(config)
    config_file.save(config, folder / "config.yaml")
    both = build.tokenizers(config, folder, console)
    stores = build.stores(config, both, folder.parent / ".data", console)
    summary.say(config, stores, held_out, console)
    network = build.model(config, both)
    plan = build.plan(config, stores)
    trainer = Trainer(network, plan, build.training(config), folder)
    if trainer.is_finished:
        console.print(f"{folder} is finished: {trainer.progress.step:,} steps. Raise training.max_steps to go on.")
        return trainer.progress
    _forget_later_log(folder / "log.jsonl", trainer.progress.step)
    validator = _Validator(config, build.translator(config, network, both), both)
    with _Bar(console, trainer, folder / "log.jsonl") as bar:
        network.train()
        return trainer.run(validator.measure, bar.report)


class _Validator:
    """Validation by real decoding, and the loss of the references."""

    def __init__(self, config: Run, translator: translate.Translator, both: build.Tokenizers) -> None:
        pairs = [pair for pair in build.corpus(config.data.valid).pairs() if pair.source and pair.target]
        if not pairs:
            raise Mistake("data.valid: no pair with text on both sides")
        self.translator, self.sources = translator, [pair.source for pair in pairs]
        self.references = [pair.target for pair in pairs]
        encoded = [[_ids(tokenizer, text) for tokenizer, text in zip(both, pair, strict=True)] for pair in pairs]
        encoded.sort(key=lambda sides: max(len(side) for side in sides))
        self.batches = [collate(*zip(*encoded[at : at + 64], strict=True)) for at in range(0, len(encoded), 64)]

    @torch.no_grad()
    def measure(self) -> dict[str, float]:
        """Greedy BLEU (higher is better) and the perplexity of the references."""
        outputs = [found.text for found in self.translator.predict(self.sources, width=1)]
        likelihood = sum(float(loss_of(self.translator.model, batch, 0.0)[1]) for batch in self.batches)
        tokens = sum(batch.num_target_tokens for batch in self.batches)
        bleu = translate.evaluate(outputs, self.references).bleu
        return {"score": bleu, "valid_bleu": bleu, "valid_perplexity": math.exp(min(50.0, likelihood / tokens))}


class _Bar:
    """What is shown and logged while a run goes on."""

    def __init__(self, console: Console, trainer: Trainer, log: Path) -> None:
        fields = "loss {task.fields[loss]:.3f}  {task.fields[rate]:,.0f} tok/s  {task.fields[valid]}"
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn(fields), TimeRemainingColumn())
        self.bar = Progress(TextColumn("training"), *columns, console=console)
        total, done = trainer.options.max_steps, trainer.progress.step
        self.task = self.bar.add_task("training", total=total, completed=done, loss=float("nan"), rate=0.0, valid="")
        self.log = log

    def __enter__(self) -> _Bar:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def report(self, progress: checkpoints.Progress, measured: dict[str, Any]) -> None:
        """One step is done."""
        shown: dict[str, Any] = {"loss": measured["loss"], "rate": measured["tokens_per_second"]}
        if "valid_bleu" in measured:
            shown["valid"] = f"BLEU {measured['valid_bleu']:.1f}"
            perplexity = measured["valid_perplexity"]
            self.bar.console.print(
                f"step {progress.step:,}: BLEU {measured['valid_bleu']:.2f}, perplexity {perplexity:.2f}"
            )
        if "valid_bleu" in measured or progress.step % LOG_EVERY == 0:
            append_json(self.log, {"step": progress.step, "epoch": progress.epoch, **measured})
        self.bar.update(self.task, completed=progress.step, **shown)


def _check_same_run(config: Run, folder: Path) -> None:
    """A folder holds one run: going on with another model or other data is a mistake, not a surprise."""
    path = folder / "config.yaml"
    if not path.exists():
        return
    earlier, now = (c.model_dump(exclude=MAY_CHANGE) for c in (config_file.load(path), config))
    changed = [section for section in now if now[section] != earlier[section]]
    if changed and not (checkpoints.steps(folder / "checkpoints") or (folder / "model.safetensors").exists()):
        for tokenizer in folder.glob("tokenizer.*"):  # nothing was learned yet: begin anew
            tokenizer.unlink()
    elif changed:
        what = ", ".join(changed)
        raise Mistake(f"{folder} holds a run with another {what}; give this one another folder (--run), or delete it")


def _forget_later_log(path: Path, step: int) -> None:
    """Lines after the checkpoint will be written again."""
    if path.exists():
        rows = [line for line in path.read_text("utf-8").splitlines() if _step_of(line) <= step]
        path.write_text("".join(row + "\n" for row in rows), "utf-8")


def _step_of(line: str) -> int:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError):
        return 1 << 60  # a line cut off by a kill


def _ids(tokenizer: Any, text: str) -> Any:
    import numpy as np

    return np.asarray(tokenizer.encode(text), np.int32)
