"""Text encoders that the native library runs, in the place of those of a classifier or a tagger.

A network that answers in one pass keeps its embeddings and poolings in torch: most of its time is in the encoder and in
a tagger's chain, where torch goes from operator to operator, and in an RNN from step to step.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention.positions import Learned
from saccade.export.native.chain import NativeChain
from saccade.export.native.library import OpenedModel, choose_kernels, load_library
from saccade.export.native.pack import PANEL, refuse
from saccade.inspection.record import find_attention
from saccade.layers.crf import LinearChain
from saccade.models.text_encoder import RecurrentTextEncoder, TextEncoderOutput, TransformerTextEncoder, last_steps

Encoder = RecurrentTextEncoder | TransformerTextEncoder


class EncoderSlot(NamedTuple):
    """An encoder of a network, and the module that has it under a name."""

    parent: nn.Module
    name: str
    encoder: Encoder


@final
class NativeReader(nn.Module):
    """A text encoder whose vectors the native library computes.

    Where its attention is recorded, or gradients are wanted, the encoder itself computes them.
    """

    def __init__(self, encoder: Encoder, packed: Path, kernels: str | None = None, threads: int | None = None) -> None:
        super().__init__()
        self.encoder, self.width = encoder, encoder.width
        count = torch.get_num_threads() if threads is None else threads
        self._opened = OpenedModel(packed, choose_kernels() if kernels is None else kernels, count)
        positions = encoder.positions if isinstance(encoder, TransformerTextEncoder) else None
        self._longest = len(positions.table) if isinstance(positions, Learned) else None

    @property
    def kernels(self) -> str:
        """The name of the kernels that it runs."""
        return self._opened.kernels

    @property
    def input_width(self) -> int:
        """The width of the vectors that it reads."""
        if isinstance(self.encoder, RecurrentTextEncoder):
            return self.encoder.layers.layers.cells.input_size
        return self.encoder.project.in_features if isinstance(self.encoder.project, nn.Linear) else self.width

    def forward(self, x_BSD: Tensor, length_B: Tensor) -> TextEncoderOutput:
        """Return the vectors of all steps, zeros behind the length, and one of each text."""
        if not self._can_read(x_BSD, length_B):
            found: TextEncoderOutput = self.encoder(x_BSD, length_B)
            return found
        real_BS = torch.arange(x_BSD.shape[1]) < length_B[:, None]
        out_ND, last_BD = self._read(x_BSD[real_BS], length_B)
        memory_BSD = x_BSD.new_zeros(*real_BS.shape, self.width)
        memory_BSD[real_BS] = out_ND
        is_recurrent = isinstance(self.encoder, RecurrentTextEncoder)
        return TextEncoderOutput(memory_BSD, last_BD if is_recurrent else last_steps(memory_BSD, length_B))

    def _can_read(self, x_BSD: Tensor, length_B: Tensor) -> bool:
        is_plain = x_BSD.dtype == torch.float32 and x_BSD.device.type == "cpu" and not torch.is_grad_enabled()
        fits = self._longest is None or x_BSD.shape[1] <= self._longest
        is_watched = any(module._forward_hooks for module in find_attention(self.encoder).values())
        return is_plain and fits and not is_watched and len(length_B) > 0 and int(length_B.min()) > 0

    def _read(self, row_NI: Tensor, length_B: Tensor) -> tuple[Tensor, Tensor]:
        """Read the steps of all texts, one after the other."""
        padded_NI = F.pad(row_NI, (0, -row_NI.shape[1] % PANEL)).contiguous()
        room, lengths = self.width + -self.width % PANEL, length_B.numpy().astype(np.int32)
        out_ND, last_BD = (torch.empty(count, room) for count in (len(row_NI), len(lengths)))
        failed = load_library().saccade_read(
            self._opened.handle,
            len(lengths),
            lengths.ctypes.data,
            padded_NI.data_ptr(),
            out_ND.data_ptr(),
            last_BD.data_ptr(),
        )
        if failed:
            raise MemoryError("there is no memory for the states of these texts")
        return out_ND[:, : self.width], last_BD[:, : self.width]


def find_encoders(network: nn.Module) -> Iterator[EncoderSlot]:
    """Yield the text encoders of a network."""
    for parent in network.modules():
        for name, module in parent.named_children():
            if isinstance(module, RecurrentTextEncoder | TransformerTextEncoder):
                yield EncoderSlot(parent, name, module)


def refuse_network(network: nn.Module) -> str | None:
    """Say why the library can't read texts for a network; None if it can."""
    encoders = [place.encoder for place in find_encoders(network)]
    if not encoders:
        return "a model without a recurrent or self-attentive encoder of text"
    return next((reason for encoder in encoders if (reason := refuse(encoder)) is not None), None)


def replace_encoders(network: nn.Module, make: Callable[[Encoder], NativeReader]) -> nn.Module:
    """Return a copy of a network with other encoders, and with chains that the library follows."""
    other = copy.deepcopy(network)
    for parent, name, encoder in list(find_encoders(other)):
        setattr(parent, name, make(encoder))
    for module in list(other.modules()):
        for name, part in list(module.named_children()):
            if isinstance(part, LinearChain) and not isinstance(module, NativeChain):
                setattr(module, name, NativeChain(part))
    return other


def difference(reader: NativeReader, longest: int) -> float:
    """Return how far the vectors of some texts are from the encoder's own, as a share of the largest."""
    draw = torch.Generator().manual_seed(1)
    length_B = torch.arange(1, longest + 1, max(1, longest // 8))
    x_BSD = torch.randn(len(length_B), int(length_B.max()), reader.input_width, generator=draw)
    with torch.no_grad():
        ours, theirs = reader.encoder(x_BSD, length_B), reader(x_BSD, length_B)
    real_BS1 = (torch.arange(x_BSD.shape[1]) < length_B[:, None])[..., None]
    apart = ((ours.memory_BSD - theirs.memory_BSD) * real_BS1).abs().max(), (ours.last_BD - theirs.last_BD).abs().max()
    return float(torch.stack(apart).max() / ours.memory_BSD.abs().max().clamp_min(1e-30))
