"""Neural Turing machine: a network that writes into a memory and reads from it, step by step (Graves 2014)."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention import NORMALIZERS, SCORES, attend
from saccade.attention.addressing import Addressing, Moves
from saccade.layers.recurrent.fused_heads import can_fuse, memory_step
from saccade.layers.recurrent.layers import Recurrent

EMPTY = 1e-6  # in every cell before a sequence: all places are alike, and none is a zero vector, which has no direction
STAY = -2.0  # the gate's bias at first: heads go on from where they were, as nothing tells empty places apart
REACH = 1  # places that a head moves in a step, at most


class MachineMemory(NamedTuple):
    """The cells [B, S, K] of all places, and where the heads [B, H, S] are: first those that read."""

    cell_BSK: Tensor
    weight_BHS: Tensor


@final
class MemoryHeads(nn.Module):
    """Heads that look for a key in a memory, by any score, and move from there (`Addressing`); they read, or write.

    r = sum_i w(i) M(i); M(i) becomes M(i) (1 - w(i) e) + w(i) a (equations 2 to 4). All heads see the memory as it was.
    """

    kind = "decoder"

    def __init__(
        self, width: int, *, num_reading: int, num_writing: int, places: int, cells: int, score: str, normalizer: str
    ) -> None:
        super().__init__()
        self.num_reading, self.num_writing, self.places, self.cells = num_reading, num_writing, places, cells
        self.score = SCORES[score](cells, cells)
        self.normalizer = NORMALIZERS[normalizer]()
        self.where = nn.Linear(width, (num_reading + num_writing) * (cells + 2 * REACH + 4))
        self.what = nn.Linear(width, num_writing * 2 * cells)
        for layer in (self.where, self.what):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        with torch.no_grad():
            self.where.bias.view(num_reading + num_writing, -1)[:, cells + 1] = STAY

    def begin(self, x_BTC: Tensor) -> MachineMemory:
        """Return an empty memory for each row of inputs, with every head at its first place."""
        cell_BSK = x_BTC.new_full((len(x_BTC), self.places, self.cells), EMPTY)
        weight_BHS = x_BTC.new_zeros(len(x_BTC), self.num_reading + self.num_writing, self.places)
        weight_BHS[..., 0] = 1
        return MachineMemory(cell_BSK, weight_BHS)

    def forward(self, state_BD: Tensor, memory: MachineMemory, return_weights: bool = False) -> Any:
        """Return what was read, [B, R K], and the memory afterwards; between them the weights, [B, H, 1, S]."""
        if can_fuse(memory.cell_BSK, (self.num_reading, self.num_writing), self.score, self.normalizer):
            read_BD, after = self._step_fused(state_BD, memory)
        else:
            read_BD, after = self._step(state_BD, memory)
        return (read_BD, after.weight_BHS.unsqueeze(2), after) if return_weights else (read_BD, after)

    def _step_fused(self, state_BD: Tensor, memory: MachineMemory) -> tuple[Tensor, MachineMemory]:
        where_BHW = self.where(state_BD).unflatten(-1, (2, -1))
        beta = self.score.get_parameter("beta")
        read_BD, *after = memory_step(where_BHW, self.what(state_BD), memory.cell_BSK, memory.weight_BHS, beta)
        return read_BD, MachineMemory(*after)

    def _step(self, state_BD: Tensor, memory: MachineMemory) -> tuple[Tensor, MachineMemory]:
        key_BHK, moves = self._decide(state_BD)
        read_BHK, weight_BHS = attend(
            key_BHK,
            memory.cell_BSK,
            memory.cell_BSK,
            score=self.score,
            normalizer=Addressing(memory.weight_BHS, moves, self.normalizer),
            return_weights=True,
        )
        erase_BWK, add_BWK = self.what(state_BD).unflatten(-1, (self.num_writing, -1)).chunk(2, -1)
        weight_BWS = weight_BHS[:, self.num_reading :]
        after = MachineMemory(write(memory.cell_BSK, weight_BWS, erase_BWK.sigmoid(), add_BWK.tanh()), weight_BHS)
        return read_BHK[:, : self.num_reading].flatten(1), after

    def value_norms(self, state_BD: Tensor, memory: MachineMemory, **_: Any) -> Tensor:
        """Return the lengths of what is in the places, [B, 1, S]."""
        del state_BD
        return memory.cell_BSK.norm(dim=-1).unsqueeze(1)

    def _decide(self, state_BD: Tensor) -> tuple[Tensor, Moves]:
        """Return the key that each head looks for, and how it moves."""
        sizes = (self.cells, 1, 1, 2 * REACH + 1, 1)
        parts = self.where(state_BD).unflatten(-1, (-1, sum(sizes))).split(sizes, -1)
        key_BHK, sharpness_BH1, gate_BH1, shift_BHJ, focus_BH1 = parts
        moves = Moves(F.softplus(sharpness_BH1), gate_BH1.sigmoid(), shift_BHJ.softmax(-1), 1 + F.softplus(focus_BH1))
        return key_BHK.tanh(), moves


def write(cell_BSK: Tensor, weight_BWS: Tensor, erase_BWK: Tensor, add_BWK: Tensor) -> Tensor:
    """Erase and add: M(i) prod_w (1 - w(i) e) + sum_w w(i) a (section 3.2); W counts the heads that write."""
    for weight_BS, erase_BK in zip(weight_BWS.unbind(1), erase_BWK.unbind(1), strict=True):
        cell_BSK = cell_BSK * (1 - weight_BS.unsqueeze(-1) * erase_BK.unsqueeze(1))
    return cell_BSK + weight_BWS.mT @ add_BWK


@final
class TuringMachine(nn.Module):
    """y_t = W [h_t; r_t]: a controller h_t = f(x_t, r_t-1) moves the heads, which read r_t (section 3)."""

    def __init__(
        self,
        input_width: int,
        output_width: int,
        *,
        width: int,
        controller: str = "lstm",
        num_reading: int = 1,
        num_writing: int = 1,
        places: int = 128,
        cells: int = 20,
        score: str = "cosine",
        normalizer: str = "softmax",
    ) -> None:
        super().__init__()
        sizes = {"num_reading": num_reading, "num_writing": num_writing, "places": places, "cells": cells}
        self.heads = MemoryHeads(width, score=score, normalizer=normalizer, **sizes)
        self.width, self.read_width = width, num_reading * cells
        known = input_width + self.read_width
        self.controller = Recurrent(known, width, cell="lstm") if controller == "lstm" else nn.Linear(known, width)
        self.output = nn.Linear(width + self.read_width, output_width)

    def forward(self, x_BTC: Tensor) -> Tensor:
        """Return unnormalised outputs for every step, [B, T, V]."""
        memory = self.heads.begin(x_BTC)
        read_BD, step, seen = x_BTC.new_zeros(len(x_BTC), self.read_width), self._controller(x_BTC), []
        for number in range(x_BTC.shape[1]):
            state_BD = step(number, read_BD)
            read_BD, memory = self.heads(state_BD, memory)
            seen.append(torch.cat([state_BD, read_BD], -1))
        output_BTV: Tensor = self.output(torch.stack(seen, 1))
        return output_BTV

    def _controller(self, x_BTC: Tensor) -> Any:
        """Return a function of a step's number and of what was read in the step before."""
        if not isinstance(self.controller, Recurrent):
            controller = self.controller
            return lambda step, read_BD: controller(torch.cat([x_BTC[:, step], read_BD], -1)).tanh()
        cells = self.controller.unroll(x_BTC)
        nothing = x_BTC.new_zeros(1, len(x_BTC), self.width)
        states = cells.begin((nothing, nothing))

        def step(number: int, read_BD: Tensor) -> Tensor:
            nonlocal states
            state_BD, states = cells(number, read_BD, states)
            return state_BD

        return step


@final
class PlainRecurrent(nn.Module):
    """y_t = W h_t of an RNN: what a machine without a memory of its own remembers."""

    def __init__(
        self, input_width: int, output_width: int, *, width: int, cell: str = "lstm", num_layers: int = 1
    ) -> None:
        super().__init__()
        self.layers = Recurrent(input_width, width, cell=cell, num_layers=num_layers)
        self.output = nn.Linear(width, output_width)

    def forward(self, x_BTC: Tensor) -> Tensor:
        """Return unnormalised outputs for every step, [B, T, V]."""
        output_BTV: Tensor = self.output(self.layers(x_BTC)[0])
        return output_BTV
