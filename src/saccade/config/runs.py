"""A run from its config to a trained model: prepare, train, validate, keep the best."""

from __future__ import annotations

import importlib.metadata
import json
import math
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from saccade.config import build, reporting, summary
from saccade.config import load as config_file
from saccade.config.progress import TrainingBar
from saccade.config.schema import Run
from saccade.data.batches import Batch, collate, full_runs
from saccade.data.files import replacing
from saccade.data.mistakes import Mistake
from saccade.data.store import Store
from saccade.tasks import translate
from saccade.training import checkpoints
from saccade.training.auto_batch import largest_fitting
from saccade.training.loop import Options, Trainer, loss_of

MAY_CHANGE: dict[str, Any] = {
    "device": True,
    "training": dict.fromkeys(
        ("max_steps", "patience", "validate_every", "save_every", "tensorboard", "bleu_tokenize"), True
    ),
    "decoding": True,
    "data": {"test": True},
}
VALIDATION_TOKENS = 4096
LIBRARIES = ("saccade", "torch", "numpy", "sentencepiece", "sacrebleu", "safetensors", "pydantic")


def train(config: Run, folder: Path, console: Console) -> checkpoints.Progress:
    """Train in `folder`, or go on where it was left. The same config gives the same weights, interrupted or not."""
    config = _same_run(config, folder)
    held_out = summary.held_out(config)
    config_file.save(config, folder / "config.yaml")
    both = build.tokenizers(config, folder, console)
    stores = build.stores(config, both, folder.parent / ".data", console)
    summary.say(config, stores[: len(config.data.corpora)], held_out, console)
    _check_same_data(stores, folder)
    network, options = build.model(config, both), build.training(config)
    config = _with_what_fits(config, network, options, stores, console)
    config_file.save(config, folder / "config.yaml")
    trainer = Trainer(network, build.plan(config, stores), options, folder)
    if trainer.is_finished:
        console.print(f"{folder} is finished: {trainer.progress.step:,} steps. Raise training.max_steps to go on.")
        if not (folder / "report.html").exists():
            _report(folder, console)
        return trainer.progress
    if trainer.progress.step:
        console.print(f"Going on from step {trainer.progress.step:,}.")
    _write_versions(folder / "versions.json", options)
    validator = _Validator(config, build.translator(config, network, both), both)
    (folder / "report.html").unlink(missing_ok=True)  # it will be another
    with TrainingBar(console, trainer, tensorboard=config.training.tensorboard) as bar:
        network.train()
        progress = trainer.run(validator.measure, bar.report)
    _report(folder, console)
    return progress


def _report(folder: Path, console: Console) -> None:
    if (folder / "model.safetensors").exists():
        with console.status("writing the report"):
            console.print(f"The report: {reporting.write(folder)}", soft_wrap=True)


class _Validator:
    """Validation by real decoding, and the loss of the references."""

    def __init__(self, config: Run, translator: translate.Translator, both: build.Tokenizers) -> None:
        pairs = [pair for pair in build.corpus(config.data.valid).pairs() if pair.source and pair.target]
        self.translator, self.sources = translator, [pair.source for pair in pairs]
        self.references = [pair.target for pair in pairs]
        encoded = [
            [np.asarray(tokenizer.encode(text), np.int32) for tokenizer, text in zip(both, pair, strict=True)]
            for pair in pairs
        ]
        usable = [sides for sides in encoded if max(map(len, sides)) <= config.data.max_length]
        if not usable:
            raise Mistake("data.valid: every pair is longer than data.max_length")
        usable.sort(key=lambda sides: max(map(len, sides)))
        width = np.array([max(map(len, sides)) + 1 for sides in usable])
        runs = full_runs(width, max(VALIDATION_TOKENS, int(width[-1])))
        self.batches = [collate(*zip(*usable[run], strict=True)) for run in runs]
        self.metric, self.tokenize = config.training.metric, config.training.bleu_tokenize

    @torch.no_grad()
    def measure(self) -> dict[str, float]:
        """Greedy BLEU and chrF, and the loss of the references; "score" is the chosen one, higher is better."""
        outputs = [found.text for found in self.translator.predict(self.sources, width=1)]
        scores = translate.evaluate(outputs, self.references, tokenize=self.tokenize)
        model = self.translator.model
        device = next(model.parameters()).device
        likelihood = sum(float(loss_of(model, batch.to(device), 0.0)[1]) for batch in self.batches)
        loss = likelihood / sum(batch.num_target_tokens for batch in self.batches)
        found = {"valid_bleu": scores.bleu, "valid_chrf": scores.chrf, "valid_loss": loss}
        score = -loss if self.metric == "loss" else found[f"valid_{self.metric}"]
        return {"score": score, **found, "valid_perplexity": math.exp(min(50.0, loss))}


def _same_run(config: Run, folder: Path) -> Run:
    """A folder holds one run: going on with another model or other data is a mistake, not a surprise."""
    path = folder / "config.yaml"
    if not path.exists():
        return config
    earlier = config_file.load(path)
    for name in ("tokens_per_batch", "precision"):  # found once, then part of the run
        if getattr(config.training, name) == "auto":
            config = _with(config, name, getattr(earlier.training, name))
    before, now = (c.model_dump(exclude=MAY_CHANGE) for c in (earlier, config))
    changed = [section for section in now if now[section] != before[section]]
    if changed and not (checkpoints.steps(folder / "checkpoints") or (folder / "model.safetensors").exists()):
        for tokenizer in folder.glob("tokenizer.*"):  # nothing was learned yet: begin anew
            tokenizer.unlink()
    elif changed:
        what = ", ".join(changed)
        raise Mistake(f"{folder} holds a run with another {what}; give this one another folder (--run), or delete it")
    return config


def _with(config: Run, name: str, value: object) -> Run:
    training = config.training.model_copy(update={name: value})
    return config.model_copy(update={"training": training})


def _with_what_fits(
    config: Run, network: build.Network, options: Options, stores: list[Store], console: Console
) -> Run:
    """The config with what it leaves to be found here: the precision, and the size of a batch."""
    config = _with(config, "precision", str(options.dtype).removeprefix("torch."))
    sides = [side.lengths for store in stores for side in (store.source, store.target) if len(side)]
    if config.training.tokens_per_batch != "auto" or not sides:
        return config
    network.to(options.device).train()

    def step(batch: Batch) -> None:
        loss_of(network, batch.to(options.device), options.label_smoothing)[0].backward()
        network.zero_grad(set_to_none=True)

    longest = max(int(lengths.max()) for lengths in sides) + 1
    tokens = largest_fitting(step, longest=longest, device=options.device)
    console.print(f"tokens_per_batch: {tokens:,} fit into the memory here")
    return _with(config, "tokens_per_batch", tokens)


def _check_same_data(stores: list[Store], folder: Path) -> None:
    """Files may change under a run: going on with others would be another training."""
    path, keys = folder / "data.json", [store.key for store in stores]
    has_begun = bool(checkpoints.steps(folder / "checkpoints"))
    if has_begun and path.exists() and json.loads(path.read_text("utf-8")) != keys:
        raise Mistake(f"{folder}: the training text has changed since this run began; give another folder (--run)")
    with replacing(path) as draft:
        draft.write_text(json.dumps(keys), "utf-8")


def _write_versions(path: Path, options: Options) -> None:
    """What this run was made with."""
    versions = {name: importlib.metadata.version(name) for name in LIBRARIES}
    device = torch.cuda.get_device_name() if options.device.type == "cuda" else platform.processor() or "cpu"
    place = {"python": platform.python_version(), "system": platform.platform(), "device": device}
    with replacing(path) as draft:
        draft.write_text(json.dumps({**versions, **place, "precision": str(options.dtype)}, indent=1), "utf-8")
