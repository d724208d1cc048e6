"""The memory of a recurrent encoder's last state: symbols asked for by place, and copying backwards."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.data.batches import PairBatch, collate_pairs
from saccade.lab.experiment import Check, Experiment, Measurements, Panel, Points
from saccade.lab.fit import FIRST, draw_symbols, fit
from saccade.layers.recurrent.layers import Recurrent
from saccade.models.seq2seq import RecurrentSizes, Seq2Seq
from saccade.training.losses import sequence_loss

SYMBOLS, WIDTH, EMBEDDING, BATCH, RATE, CLIP = 16, 64, 32, 32, 0.005, 1.0
LENGTH, FULL_LENGTH = 24, 48
COPIED, FULL_COPIED = 12, 24
STEPS, FULL_STEPS = 600, 6000
TESTED = 512  # sequences
ENDS = 4  # symbols that are the start, or the end, of a source
CELLS = {"RNN": "rnn", "RNN, torch's start": "rnn", "GRU": "gru", "LSTM": "lstm"}
READING = {"from its start": "forward", "from its end": "backward"}


def measure(seed: int, is_full: bool) -> Measurements:
    """Measure what each cell's last state knows of each place, and copying with a source read in both directions."""
    length, copied, num_steps = (FULL_LENGTH, FULL_COPIED, FULL_STEPS) if is_full else (LENGTH, COPIED, STEPS)
    recalled = {name: recall(name, seed, length, num_steps) for name in CELLS}
    written = {name: copy(direction, seed, copied, num_steps) for name, direction in READING.items()}
    means = {name: _mean(points) for name, points in (recalled | written).items()}
    from_start, from_end = (means[name] for name in READING)
    numbers = {f"{name}, end over start": _mean(at[:ENDS]) - _mean(at[-ENDS:]) for name, at in recalled.items()}
    for name in ("GRU", "LSTM"):
        numbers |= {f"{name} over RNN": means[name] - means["RNN"]}
        numbers |= {f"{name} over small": means[name] - means["RNN, torch's start"]}
    return Measurements({"recalled": recalled, "written": written}, numbers | {"reversed": from_end - from_start})


def recall(name: str, seed: int, length: int, num_steps: int) -> Points:
    """Learn to tell every symbol from the last state and its place; return right answers by distance from the end."""
    torch.manual_seed(seed)
    embedding, cells = nn.Embedding(FIRST + SYMBOLS, EMBEDDING), Recurrent(EMBEDDING, WIDTH, cell=CELLS[name])
    if name == "RNN, torch's start":
        cells.cells.reset_parameters()
    place_SD = nn.Parameter(torch.randn(length, WIDTH))
    read, answer = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, FIRST + SYMBOLS)

    def logits(source_BS: Tensor) -> Tensor:
        """Ask the last state for each place, [B, S, V]."""
        last_BD = cells(embedding(source_BS))[1][0][-1]
        return answer(torch.tanh(read(last_BD)[:, None] * place_SD))

    def draw_loss() -> Tensor:
        source_BS = draw_symbols(BATCH, length, num_symbols=SYMBOLS)
        return F.cross_entropy(logits(source_BS).flatten(0, 1), source_BS.flatten())

    weights = [*embedding.parameters(), *cells.parameters(), place_SD, *read.parameters(), *answer.parameters()]
    fit(weights, draw_loss, num_steps=num_steps, rate=RATE, most_norm=CLIP, falls=True)
    return _score_by_place(logits, draw_symbols(TESTED, length, num_symbols=SYMBOLS), is_from_end=True)


def copy(direction: str, seed: int, length: int, num_steps: int) -> Points:
    """Learn to copy through the last state of an encoder that reads in one direction; return right symbols by place."""
    torch.manual_seed(seed)
    network = Seq2Seq(
        source=FIRST + SYMBOLS,
        target_vocabulary=FIRST + SYMBOLS,
        sizes=RecurrentSizes(WIDTH, EMBEDDING),
        attention="none",
        direction=direction,
    )

    def draw_loss() -> Tensor:
        batch = _pair(draw_symbols(BATCH, length, num_symbols=SYMBOLS))
        return sequence_loss(network, batch)[0] / batch.num_items

    def logits(source_BS: Tensor) -> Tensor:
        batch = _pair(source_BS)
        return network.logits(network(batch.source_BS, batch.source_length_B, batch.read_BT))[:, :length]

    fit(network.parameters(), draw_loss, num_steps=num_steps, rate=RATE, most_norm=CLIP, falls=True)
    return _score_by_place(logits, draw_symbols(TESTED, length, num_symbols=SYMBOLS))


def _pair(source_BS: Tensor) -> PairBatch:
    rows = list(source_BS.numpy())
    return collate_pairs(rows, rows)


@torch.no_grad()
def _score_by_place(
    logits: Callable[[Tensor], Tensor], source_BS: Tensor, *, is_from_end: bool = False
) -> list[tuple[float, float]]:
    """Return the share of sequences whose symbol is right, by its place, from 1 on."""
    shares_S = (logits(source_BS).argmax(-1) == source_BS).float().mean(0)
    return list(enumerate((shares_S.flip(0) if is_from_end else shares_S).tolist(), 1))


def _mean(points: Points) -> float:
    return statistics.mean(share for _, share in points)


FORGETTING = Experiment(
    name="forgetting",
    question="What does the last state of a recurrent encoder remember of its source?",
    claim="The end of a source is remembered better than its start; gated cells remember more than plain ones; reading "
    "the source backwards helps an encoder-decoder without attention, as its first words are then near.",
    source="Sutskever 2014, section 3.3; Hochreiter 1997; the lectures",
    setup=f"One layer of width {WIDTH} reads {LENGTH} of {SYMBOLS} random symbols (--full: {FULL_LENGTH}); its last "
    f"state is asked for the symbol at each place. Cells begin with a rotation from state to state, "
    f"and one plain RNN with torch's small weights. Then GRUs copy {COPIED} symbols (--full: {FULL_COPIED}) without "
    f"attention, the source read from its start or from its end. {STEPS} steps of {BATCH} sequences (--full: "
    f"{FULL_STEPS}). Share of right symbols; a guess has {1 / SYMBOLS:.3f}. Start and end are {ENDS} symbols each.",
    prediction="Every cell has at least 0.3 more of the end than of the start; GRU and LSTM have at least 0.1 more of "
    "all symbols than the plain RNN; reading backwards gains at least 0.1 in copying.",
    checks=(
        Check("RNN, end over start", "a plain RNN has more of the end than of the start, by", least=0.1),
        Check("GRU, end over start", "so has a GRU", least=0.1),
        Check("LSTM, end over start", "and an LSTM", least=0.1),
        Check(
            "GRU over RNN", "a GRU has more of all symbols than a plain RNN that starts as a rotation, by", least=0.02
        ),
        Check("LSTM over RNN", "and an LSTM", least=0.02),
        Check("GRU over small", "a GRU has more than a plain RNN that starts with torch's weights, by", least=0.02),
        Check("LSTM over small", "and an LSTM has", least=0.02),
        Check("reversed", "reading backwards gains in copying", least=0.05),
    ),
    panels={
        "recalled": Panel("Known of each place", "symbols from the end", "share of right answers"),
        "written": Panel("Copied, source read", "place in the output", "share of right symbols"),
    },
    measure=measure,
    minutes="a minute",
)
