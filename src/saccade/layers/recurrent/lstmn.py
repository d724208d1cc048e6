"""An LSTM that attends to its own past: a tape of states in place of the last one (LSTMN; Cheng 2016, section 3.1)."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention import NORMALIZERS, SCORES, attend
from saccade.layers.recurrent.lookback import LastStates
from saccade.ops.dropout import dropout


class Tape(NamedTuple):
    """The last states [h; c] of a layer, [B, S, 2 D], and what it read last, [B, D]."""

    states: LastStates
    read_BD: Tensor


@final
class LstmnLayer(nn.Module):
    """One layer: [h~; c~] = sum_i a_i [h_i; c_i] over the tape, scored by (x_t, h~_t-1) and h_i (equations 5-7).

    i, f, o = sigmoid, c^ = tanh of W [h~; x]; c = f c~ + i c^; h = o tanh(c) (equations 8-10).
    """

    def __init__(self, input_width: int, width: int, *, span: int, score: str, normalizer: str) -> None:
        super().__init__()
        self.width, self.span = width, span
        self.kind: str | None = "decoder"
        self.inputs, self.hidden = nn.Linear(input_width, 4 * width), nn.Linear(width, 4 * width, bias=False)
        asked, needs_equal = input_width + width, SCORES[score].equal_widths
        self.query = nn.Linear(asked, width, bias=False) if needs_equal else nn.Identity()
        self.score = SCORES[score](width if needs_equal else asked, width)
        self.normalizer = NORMALIZERS[normalizer]()
        self._initialise()

    def forward(self, x_BTD: Tensor, tape: Tape, return_weights: bool = False) -> Any:
        """Return outputs [B, T, D] and the tape after them; with `return_weights` between them the weights, [B, T, S].

        S counts the states of the tape before, and then the steps.
        """
        known_BTG, steps = self.inputs(x_BTD), x_BTD.shape[1]
        state_BSD, real_BS, read_BD = tape.states.state_BSD, tape.states.real_BS, tape.read_BD
        memory_BSM = self.score.memory(state_BSD[..., : self.width])
        outputs, weights = [], []
        for step in range(steps):
            query_B1D = self.query(torch.cat([x_BTD[:, step], read_BD.to(x_BTD.dtype)], -1).unsqueeze(1))
            read_B1D, weight_B1S = attend(
                query_B1D,
                None,
                state_BSD,
                memory=memory_BSM,
                score=self.score,
                normalizer=self.normalizer,
                mask=real_BS[:, None],
                return_weights=True,
            )
            read_BD, cell_BD = read_B1D[:, 0].split(self.width, -1)
            h_BD, c_BD = self._step(known_BTG[:, step], read_BD, cell_BD)
            outputs.append(h_BD)
            weights.append(F.pad(weight_B1S, (step, steps - step)))
            new_B1D = torch.cat([h_BD, c_BD], -1).unsqueeze(1).to(state_BSD.dtype)
            state_BSD = torch.cat([state_BSD[:, 1:], new_B1D], 1)
            memory_BSM = torch.cat([memory_BSM[:, 1:], self.score.memory(h_BD.unsqueeze(1)).to(memory_BSM.dtype)], 1)
            real_BS = F.pad(real_BS[:, 1:], (0, 1), value=True)
        after = Tape(LastStates(state_BSD, real_BS), read_BD)
        output_BTD = torch.stack(outputs, 1)
        return (output_BTD, torch.cat(weights, 1), after) if return_weights else (output_BTD, after)

    def value_norms(self, x_BTD: Tensor, tape: Tape, **_: Any) -> Tensor:
        """Return ||U h_s|| of the states that are read as h~, U from there to the gates, [B, 1, S]."""
        output_BTD, _ = self.forward(x_BTD, tape)  # without the hooks, which call this
        h_BSD = torch.cat([tape.states.state_BSD[..., : self.width], output_BTD], 1)
        return (h_BSD @ self.hidden.weight.mT).norm(dim=-1).unsqueeze(1)

    def _step(self, known_BG: Tensor, read_BD: Tensor, cell_BD: Tensor) -> tuple[Tensor, Tensor]:
        i_BD, f_BD, new_BD, o_BD = (known_BG + self.hidden(read_BD.to(known_BG.dtype))).chunk(4, -1)
        c_BD = f_BD.sigmoid() * cell_BD + i_BD.sigmoid() * new_BD.tanh()
        return o_BD.sigmoid() * c_BD.tanh(), c_BD

    @torch.no_grad()
    def _initialise(self) -> None:
        """Start as our LSTMs do: orthogonal from state to gates, Xavier from input, remembering."""
        for gate in self.hidden.weight.split(self.width):
            nn.init.orthogonal_(gate)
        nn.init.xavier_uniform_(self.inputs.weight)
        self.inputs.bias.zero_()
        self.inputs.bias[self.width : 2 * self.width] = 1.0


@final
class Lstmn(nn.Module):
    """Layers of LSTMNs, each reading the outputs of the one below (section 3.2, without the shortcuts of figure 3)."""

    def __init__(
        self,
        input_width: int,
        width: int,
        *,
        num_layers: int,
        span: int,
        score: str = "additive",
        normalizer: str = "softmax",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.width, self.span, self.dropout = width, span, dropout
        widths = [input_width, *[width] * (num_layers - 1)]
        self.layers = nn.ModuleList(
            LstmnLayer(below, width, span=span, score=score, normalizer=normalizer) for below in widths
        )

    def begin(self, num_rows: int, device: torch.device) -> tuple[Tape, ...]:
        states = LastStates.none(num_rows, self.span, 2 * self.width, device)
        return tuple(Tape(states, torch.zeros(num_rows, self.width, device=device)) for _ in self.layers)

    def forward(self, x_BTD: Tensor, tapes: tuple[Tape, ...]) -> tuple[Tensor, tuple[Tape, ...]]:
        """Return the top layer's outputs [B, T, D] and the tapes after them."""
        later = []
        for number, (layer, tape) in enumerate(zip(self.layers, tapes, strict=True)):
            x_BTD, after = layer(dropout(x_BTD, self.dropout, self.training and number > 0), tape)
            later.append(after)
        return x_BTD, tuple(later)
