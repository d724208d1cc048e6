"""Do gradients vanish or explode with distance? By how much a loss at the last step depends on each step before it."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from saccade.attention import MultiHeadAttention, masks
from saccade.lab.experiment import Check, Experiment, Measurements, Panel, Points, slope
from saccade.layers.recurrent.layers import Recurrent

WIDTH, BATCH, HEADS = 64, 16, 4
STEPS, FULL_STEPS = 64, 256
TINIEST = 1e-200  # float64 says nothing below
LARGE = 3.0  # the norm of recurrent weights that stretch
OPEN = 3.0  # the bias of forget gates that stay open: sigmoid(3) = 0.95

Model = Callable[[Tensor], Tensor]  # from [B, T, D] to [B, T, D]


def measure(seed: int, is_full: bool) -> Measurements:
    """Measure |d loss_T / d x_s| by the distance T - s, and by what factor it changes with each step."""
    torch.manual_seed(seed)
    num_steps = FULL_STEPS if is_full else STEPS
    x_BTD = torch.randn(BATCH, num_steps, WIDTH, dtype=torch.float64, requires_grad=True)
    direction_BD = nn.functional.normalize(torch.randn(BATCH, WIDTH, dtype=torch.float64), dim=1)
    lines, numbers = dict[str, Points](), dict[str, float]()
    for name, model in _models().items():
        loss = (model(x_BTD)[:, -1] * direction_BD).sum()
        (grad_BTD,) = torch.autograd.grad(loss, x_BTD)
        norms = grad_BTD.norm(dim=-1).mean(0).flip(0).tolist()
        lines[name] = [(distance, norm) for distance, norm in enumerate(norms) if norm > TINIEST]
        inner = [(distance, math.log(norm)) for distance, norm in lines[name] if 0 < distance < num_steps - 1]
        numbers[name] = math.exp(slope(inner))
    numbers |= {f"{gated} over RNN": numbers[gated] / numbers["RNN"] for gated in ("GRU", "LSTM")}
    return Measurements({"norms": lines}, numbers)


def _models() -> dict[str, Model]:
    """Make one layer of each kind, as it is before training."""

    def recurrent(cell: str, change: Callable[[nn.RNNBase], object] | None = None) -> Model:
        cells = Recurrent(WIDTH, WIDTH, cell=cell).double().cells
        if change is not None:
            change(cells)
        return lambda x_BTD: cells(x_BTD)[0]

    attention = MultiHeadAttention(WIDTH, HEADS).double()
    return {
        "RNN": recurrent("rnn"),
        "RNN, large weights": recurrent("rnn", _enlarge),
        "GRU": recurrent("gru"),
        "LSTM": recurrent("lstm"),
        "LSTM, open gates": recurrent("lstm", _open_gates),
        "self-attention": lambda x_BTD: attention(x_BTD, x_BTD, mask=masks.causal()),
    }


def _enlarge(cells: nn.RNNBase) -> None:
    """Make the recurrent weights `LARGE` times a rotation."""
    nn.init.orthogonal_(cells.get_parameter("weight_hh_l0"), LARGE)


@torch.no_grad()
def _open_gates(cells: nn.RNNBase) -> None:
    """Let the forget gates, which are second, keep nearly everything."""
    cells.get_parameter("bias_ih_l0")[cells.hidden_size : 2 * cells.hidden_size] = OPEN


GRADIENTS = Experiment(
    name="gradients",
    question="How much does a loss at the last step depend on a step long before it?",
    claim="In recurrent nets the gradient is a product of Jacobians, which vanishes or explodes with the distance; "
    "gates slow this down; through attention the path has length 1, whatever the distance.",
    source="Bengio 1994; Pascanu 2013, section 2; Vaswani 2017, section 4",
    setup=f"One layer of width {WIDTH} before training, float64, on {STEPS} steps of normal noise (--full: "
    f"{FULL_STEPS}). The norm of d loss_T / d x_s by the distance T - s; the factor a step is that of the best "
    "exponential. Cells begin as saccade's do: a rotation from state to state, an LSTM's forget gates with a bias of "
    f"1. Large weights are {LARGE:g} times a rotation, open gates have a bias of {OPEN:g}.",
    prediction="The RNN loses more than half of the gradient with each step, with large weights it grows by more than "
    "a tenth; GRU and LSTM lose less than the RNN; with open gates less than 3% is lost; with attention nothing.",
    checks=(
        Check("RNN", "the gradient of a plain RNN vanishes: its factor a step", most=0.9),
        Check("RNN, large weights", "with large weights it explodes", least=1.1),
        Check("GRU over RNN", "gates slow this down: a GRU's factor over the RNN's", least=1.0),
        Check("LSTM over RNN", "and an LSTM's", least=1.0),
        Check("LSTM, open gates", "with open forget gates an LSTM's gradient hardly changes", least=0.95, most=1.05),
        Check("self-attention", "through attention it depends on the distance not at all", least=0.99, most=1.01),
    ),
    panels={"norms": Panel("Gradient by distance", "distance T - s", "|d loss_T / d x_s|", log_up=True)},
    measure=measure,
    minutes="a few seconds",
)
