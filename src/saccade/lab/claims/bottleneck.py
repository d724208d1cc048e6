"""Does one vector hold a long sequence? Copying and reversing by length, without and with attention."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from saccade.data.batches import PairBatch, collate_pairs
from saccade.lab.experiment import Check, Experiment, Measurements, Panel, Points
from saccade.lab.fit import FIRST, draw_symbols, fit
from saccade.models.seq2seq import RecurrentSizes, Seq2Seq
from saccade.models.seq2seq_attention import ADDITIVE, AttentionOptions
from saccade.training.losses import sequence_loss

SYMBOLS, EMBEDDING, BATCH, RATE, CLIP = 16, 32, 32, 0.005, 1.0
LONGEST, FULL_LONGEST = 20, 48
STEPS, FULL_STEPS = 800, 8000
TESTED = 256  # sequences of each length
TASKS = ("copy", "reverse")


class Kind(NamedTuple):
    """An encoder-decoder: its attention and its width."""

    attention: str
    width: int
    options: AttentionOptions = ADDITIVE


KINDS = {
    "one vector of 64": Kind("none", 64),
    "one vector of 128": Kind("none", 128),
    "attention, width 64": Kind("bahdanau", 64),
}


def measure(seed: int, is_full: bool) -> Measurements:
    """Train every kind on both tasks, and measure the share of right symbols by length."""
    longest, num_steps = (FULL_LONGEST, FULL_STEPS) if is_full else (LONGEST, STEPS)
    lengths = [longest * part // 5 for part in range(1, 6)]
    panels, numbers = dict[str, dict[str, Points]](), dict[str, float]()
    for task in TASKS:
        panels[task] = {}
        for name, kind in KINDS.items():
            network = train(task, kind, seed, longest=longest, num_steps=num_steps)
            panels[task][name] = points = [(length, share_right(network, task, length)) for length in lengths]
            numbers |= {f"{task}, {name}, short": points[0][1], f"{task}, {name}, long": points[-1][1]}
    return Measurements(panels, numbers)


def train(task: str, kind: Kind, seed: int, *, longest: int, num_steps: int) -> Seq2Seq:
    """Train on sequences of all lengths up to the longest; those of a batch have one length."""
    torch.manual_seed(seed)
    network = Seq2Seq(
        source=FIRST + SYMBOLS,
        target_vocabulary=FIRST + SYMBOLS,
        sizes=RecurrentSizes(kind.width, EMBEDDING),
        attention=kind.attention,
        attention_options=kind.options,
        feeds_input=False,
    )

    def draw_loss() -> Tensor:
        batch = draw_batch(task, BATCH, int(torch.randint(1, longest + 1, ())))
        return sequence_loss(network, batch)[0] / batch.num_items

    fit(network.parameters(), draw_loss, num_steps=num_steps, rate=RATE, most_norm=CLIP, falls=True)
    return network.eval()


def draw_batch(task: str, num_rows: int, length: int) -> PairBatch:
    """Draw sources of one length, with what is to be written."""
    source_BS = draw_symbols(num_rows, length, num_symbols=SYMBOLS).numpy()
    target_BS = source_BS[:, ::-1] if task == "reverse" else source_BS
    return collate_pairs(list(source_BS), list(target_BS))


@torch.no_grad()
def share_right(network: Seq2Seq, task: str, length: int) -> float:
    """Return the share of symbols that are most likely where they stand, behind the right ones."""
    batch = draw_batch(task, TESTED, length)
    chosen_BT = network.logits(network(batch.source_BS, batch.source_length_B, batch.read_BT)).argmax(-1)
    return float((chosen_BT == batch.write_BT)[:, :length].float().mean())


BOTTLENECK = Experiment(
    name="bottleneck",
    question="Does one vector hold a long sequence?",
    claim="An encoder-decoder that passes the source through one fixed vector loses long sequences; with attention, "
    "length hardly matters. A wider vector moves the limit and does not remove it.",
    source="Cho 2014b, section 4; Bahdanau 2015, figure 2",
    setup=f"GRU encoders in both directions and GRU decoders learn to copy and to reverse {SYMBOLS} random symbols: "
    f"lengths 1 to {LONGEST} (--full: {FULL_LONGEST}), {STEPS} steps of {BATCH} sequences (--full: {FULL_STEPS}). "
    f"Share of right symbols by length; a guess has {1 / SYMBOLS:.3f}.",
    prediction="All write short sequences without a mistake. At the greatest length, one vector of 64 has less than "
    "half of the symbols, one of 128 more than that of 64, and attention at least 95%.",
    checks=tuple(
        check
        for task in TASKS
        for check in (
            Check(f"{task}, one vector of 64, short", f"{task}: one vector holds short sequences", least=0.95),
            Check(f"{task}, one vector of 64, long", f"{task}: it loses the longest", most=0.6),
            Check(f"{task}, one vector of 128, long", f"{task}: so does one that is twice as wide", most=0.8),
            Check(f"{task}, attention, width 64, long", f"{task}: attention does not", least=0.9),
        )
    ),
    panels={
        "copy": Panel("Copy", "length of the source", "share of right symbols"),
        "reverse": Panel("Reverse", "length of the source", "share of right symbols"),
    },
    measure=measure,
    minutes="four minutes",
    seeds=3,
)
