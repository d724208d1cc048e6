"""`saccade demo`: trains a small Transformer on the phrasebook and shows its attention."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import final

import torch
from rich.console import Console
from torch import Tensor

from saccade import manifest
from saccade.data.text.corpus import Corpus, Pair
from saccade.datasets.made.phrasebook import SENTENCES, write_phrasebook
from saccade.inspection.draw import braille, heatmap
from saccade.inspection.insight import merge_pieces
from saccade.runs import check, train
from saccade.runs import config as config_file
from saccade.runs.events import TrainingEvent
from saccade.runs.load import load_run
from saccade.tasks.translate.config import TranslateConfig
from saccade.tasks.translate.predictor import Translator

STEPS = 1300
READABLE, LOOKED = 50.0, 100  # BLEU from which on an alignment is worth a look, and sentences to choose one from
SHORT = 72  # columns of a drawing: sentences of about six words
SHOWN = (  # a negation, an adjective that changes its place, a question
    r" not | never | no longer ",
    r"\b(red|green|blue|white|black|yellow|brown) ",
    r"^(Do|Does|Did|Is|Are) .*\b(him|her|them)\b",
)


def run(*, out: Path, steps: int, sentences: int, seed: int, console: Console) -> float:
    """Write the phrasebook, train, translate the held-out part and draw; return the share translated exactly."""
    console.print(f"A small Transformer learns English to French from {sentences:,} sentences of a phrasebook.")
    write_phrasebook(out / "data", sentences=sentences, seed=seed)
    made = config(out / "data", steps=steps, sentences=sentences, seed=seed)
    train.train(made, out, console, callbacks=[FirstAlignment(out, console)])
    translator = load_run(out)
    share, right = examine(translator, out / "data", console)
    show_curves(out, console)
    show_alignments(translator, right, out, console)
    write_examples(right, out)
    manifest.record(out, check.PICTURE, *(f"{manifest.DATA}{path.name}" for path in (out / "data").iterdir()))
    print_next_steps(out, console)
    return share


@final
class FirstAlignment:
    """A callback that draws an alignment once the model writes sentences right: nobody has to wait for the end."""

    def __init__(self, out: Path, console: Console) -> None:
        self.out, self.console, self.is_drawn = out, console, False

    def __call__(self, event: TrainingEvent) -> None:
        if self.is_drawn or event.kind != "validation" or event.figures["valid_bleu"] < READABLE:
            return
        with torch.random.fork_rng(devices=[]):  # the training goes on as if nobody had looked
            translator = load_run(self.out)
            pairs = read_pairs(self.out / "data", "valid")[:LOOKED]
            right = [pair for pair, found in translate(translator, pairs) if found == pair.target]
            for pair in choose_examples(right, self.console.width)[:1]:
                done = f"After {event.step:,} of {event.max_steps:,} steps"
                self.console.print(f"\n{done} it reads the English (across) like this:\n", highlight=False)
                queries, keys, weight_TS = alignment(translator, pair)
                self.console.print(heatmap.in_terminal(weight_TS, queries=queries, keys=keys, console=self.console), "")
                self.is_drawn = True


def config(data: Path, *, steps: int, sentences: int, seed: int) -> TranslateConfig:
    """Return a config that trains in two minutes on two cores; with few sentences, the vocabulary is smaller."""

    def files(name: str) -> dict[str, str]:
        return {"source": str(data / f"{name}.en"), "target": str(data / f"{name}.fr")}

    return config_file.check_config(
        {
            "seed": seed,
            "languages": {"source": "en", "target": "fr"},
            "data": {name: files(name) for name in ("train", "valid", "test")},
            "tokenizer": {"kind": "unigram", "vocabulary_size": 2400 if sentences >= SENTENCES // 2 else 1000},
            "model": {"kind": "transformer", "size": "tiny", "dropout": 0.0},
            "training": {
                "max_steps": steps,
                "tokens_per_batch": 1024,
                "learning_rate": 0.003,
                "warmup_steps": 100,
                "schedule": "cosine",
                "label_smoothing": 0.0,
                "ema": 0.99,
                "validate_every": 150,
                "save_every": 100,
            },
            "decoding": {"beam": 1},
        },
        "demo",
    )


def read_pairs(data: Path, part: str) -> list[Pair]:
    """Read a part of the phrasebook: train, valid or test."""
    return list(Corpus(str(data / f"{part}.en"), str(data / f"{part}.fr")).pairs())


def translate(translator: Translator, pairs: Sequence[Pair]) -> list[tuple[Pair, str]]:
    """Return the pairs, each with the translation of its source."""
    outputs = translator.predict([pair.source for pair in pairs], width=1)
    return [(pair, found.text) for pair, found in zip(pairs, outputs, strict=True)]


def examine(translator: Translator, data: Path, console: Console) -> tuple[float, list[Pair]]:
    """Translate the held-out sentences; return the share translated exactly, and those pairs."""
    translated = translate(translator, read_pairs(data, "test"))
    right = [pair for pair, found in translated if found == pair.target]
    share = len(right) / len(translated)
    console.print(
        f"\n{share:.1%} of {len(translated):,} held-out sentences are translated exactly, to the last letter."
    )
    for pair, found in [both for both in translated if both[1] != both[0].target][:1]:
        console.print(f"A wrong one: {pair.source}\n  it wrote:  {found}\n  right is:  {pair.target}", highlight=False)
    return share, right


def show_curves(out: Path, console: Console) -> None:
    """Print the curves of the loss and of BLEU."""
    found = {
        "loss in training": braille.read_curve(out / "log.jsonl", "loss"),
        "BLEU of the validation sentences": braille.read_curve(out / "log.jsonl", "valid_bleu"),
    }
    console.print("", braille.in_terminal(found, console=console))


def show_alignments(translator: Translator, pairs: Sequence[Pair], out: Path, console: Console) -> None:
    """Print the alignments of three sentences, and draw the first one as a picture."""
    console.print("Where it looked in the English (across) while it wrote the French (down):\n")
    for number, pair in enumerate(choose_examples(pairs, console.width)):
        queries, keys, weight_TS = alignment(translator, pair)
        console.print(heatmap.in_terminal(weight_TS, queries=queries, keys=keys, console=console), "")
        if number == 0:
            heatmap.to_file(weight_TS, out / check.PICTURE, queries=queries, keys=keys, title=pair.source)


def write_examples(pairs: Sequence[Pair], out: Path) -> None:
    """Write example sentences for the page of the served run."""
    manifest.write(out, check.EXAMPLES, "".join(f"{pair.source}\n" for pair in choose_examples(pairs, SHORT)))


def choose_examples(pairs: Sequence[Pair], width: int) -> list[Pair]:
    """Choose one sentence for each pattern of SHOWN: the longest whose drawing fits the terminal."""
    fitting = sorted((pair for pair in pairs if _drawn_width(pair) <= width), key=_drawn_width, reverse=True)
    found = (next((pair for pair in fitting if re.search(pattern, pair.source)), None) for pattern in SHOWN)
    return [pair for pair in dict.fromkeys(found) if pair]


def _drawn_width(pair: Pair) -> int:
    source, target = (text.split() for text in pair)
    widest = [min(heatmap.WIDEST_WORD, max(len(word) for word in side)) + 1 for side in (source, target)]
    return widest[0] * len(source) + widest[1]


def alignment(translator: Translator, pair: Pair) -> tuple[list[str], list[str], Tensor]:
    """Return target words, source words and their weights [T, S]: the heads' mean in the sharpest layer."""
    (seen,) = translator.look([pair.source], targets=[pair.target])
    output, source = seen.sides["output"], seen.sides["source"]
    weight_LTS = merge_pieces(seen.map("cross").weight_LHTS.mean(1), output, source)[:, :-1, :-1]  # without </s>
    sharpness_L = weight_LTS.amax(-1).mean(-1)
    return output.words[:-1], source.words[:-1], weight_LTS[int(sharpness_L.argmax())]


def print_next_steps(out: Path, console: Console) -> None:
    """Print commands to try with the trained run."""
    command = os.path.relpath(sys.argv[0]) if Path(sys.argv[0]).name == "saccade" else "saccade"
    data = out / "data"
    console.print(f"Look at {out / 'report.html'} and {out / check.PICTURE}.\n\nNext:", highlight=False)
    for line in (
        f'echo "She does not see the old house." | {command} predict {out}',
        f"{command} evaluate {out} {data / 'test.en'} {data / 'test.fr'}",
        f'{command} look {out} "She does not see the old house." --draw look.html',
        f"{command} serve {out}   # a page at http://127.0.0.1:5000",
        f"{command} train configs/translate.yaml data.train.source=my.en ...   # your own texts",
    ):
        console.print(f"  {line}", highlight=False, soft_wrap=True)
