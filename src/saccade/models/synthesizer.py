"""Text to frames of sound, by attention to the characters (Tacotron; Wang 2017, and Shen 2018)."""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.layers.location_sensitive import LocationSensitiveAttention, Reading
from saccade.layers.recurrent.layers import Recurrent
from saccade.layers.recurrent.unrolled import stack_states
from saccade.models.text_encoder import RecurrentTextEncoder
from saccade.ops.dropout import dropout


class SynthesizerOutput(NamedTuple):
    """Frames [B, T, F] before and after the postnet, logits of the end [B, L], and weights [B, L, S]; L counts steps.

    A step writes several frames.
    """

    rough_BTF: Tensor
    frame_BTF: Tensor
    end_BL: Tensor
    weight_BLS: Tensor


class SpeechSizes(NamedTuple):
    """The sizes of a synthesizer."""

    width: int = 128  # of characters, encoder and decoder
    prenet_width: int = 64
    reach: int = 15  # characters to either side that the attention's convolution sees
    frames_a_step: int = 3
    score: str = "additive"
    normalizer: str = "softmax"
    dropout: float = 0.1  # of the encoder
    prenet_dropout: float = 0.5


@final
class Synthesizer(nn.Module):
    """s_t = LSTM(prenet(y_t-1), c_t-1); c_t = attention(s_t, h); y_t, end_t = W [s_t; c_t], several frames at once.

    h are characters read by a convolution and in both directions. The postnet adds what it sees around each frame.
    """

    def __init__(self, vocabulary: int, num_mels: int, sizes: SpeechSizes) -> None:
        super().__init__()
        width, self.num_mels, self.sizes = sizes.width, num_mels, sizes
        self.embedding = nn.Embedding(vocabulary, width)
        self.convolution = nn.Conv1d(width, width, 5, padding=2)
        self.encoder = RecurrentTextEncoder(width, width, cell="lstm")
        self.prenet = nn.ModuleList(
            [nn.Linear(num_mels, sizes.prenet_width), nn.Linear(sizes.prenet_width, sizes.prenet_width)]
        )
        self.layers = Recurrent(sizes.prenet_width + width, width, cell="lstm")
        self.attention = LocationSensitiveAttention(
            width, width, score=sizes.score, normalizer=sizes.normalizer, reach=sizes.reach
        )
        self.output = nn.Linear(2 * width, sizes.frames_a_step * num_mels)
        self.end = nn.Linear(2 * width, 1)
        last = nn.Conv1d(width, num_mels, 5, padding=2)
        nn.init.zeros_(last.weight)
        self.postnet = nn.ModuleList(
            [nn.Conv1d(num_mels, width, 5, padding=2), nn.Conv1d(width, width, 5, padding=2), last]
        )

    def read(self, ids_BS: Tensor, length_B: Tensor) -> Reading:
        """Encode characters; padding becomes zeros."""
        real_BS1 = (torch.arange(ids_BS.shape[1], device=ids_BS.device) < length_B[:, None]).unsqueeze(-1)
        x_BSD = self.embedding(ids_BS) * real_BS1
        x_BSD = x_BSD + F.relu(self.convolution(x_BSD.mT)).mT
        x_BSD = dropout(x_BSD, self.sizes.dropout, self.training) * real_BS1
        return self.attention.read(self.encoder(x_BSD, length_B).memory_BSD, length_B)

    def forward(self, ids_BS: Tensor, length_B: Tensor, frame_BTF: Tensor) -> SynthesizerOutput:
        """Write frames, reading the right ones before each step (teacher forcing); there are whole steps of them."""
        source, size = self.read(ids_BS, length_B), self.sizes.frames_a_step
        last_BLF = F.pad(frame_BTF[:, size - 1 :: size], (0, 0, 1, -1))
        cells, num_steps = self.layers.unroll(self._prepare(last_BLF)), last_BLF.shape[1]
        states, seen, weights = cells.begin(self._nothing(source)), [], []
        past_B2S, context_BD = (
            self.attention.begin(source.value_BSD),
            source.value_BSD.new_zeros(len(ids_BS), self.sizes.width),
        )
        for step in range(num_steps):
            state_BD, states = cells(step, context_BD, states)
            context_BD, past_B2S = self.attention(state_BD, source, past_B2S)
            seen.append(torch.cat([state_BD, context_BD], -1))
            weights.append(past_B2S[:, 0])
        return self._finish(torch.stack(seen, 1), torch.stack(weights, 1))

    @torch.no_grad()
    def speak(self, ids_BS: Tensor, length_B: Tensor, *, most_steps: int) -> SynthesizerOutput:
        """Write frames step by step, each from its own last one, until every row has ended."""
        source = self.read(ids_BS, length_B)
        hidden, last_BF = self._nothing(source), source.value_BSD.new_zeros(len(ids_BS), self.num_mels)
        past_B2S, context_BD = (
            self.attention.begin(source.value_BSD),
            source.value_BSD.new_zeros(len(ids_BS), self.sizes.width),
        )
        seen, weights = [], []
        has_ended_B = torch.zeros(len(ids_BS), dtype=torch.bool, device=ids_BS.device)
        for _ in range(most_steps):
            cells = self.layers.unroll(self._prepare(last_BF.unsqueeze(1)))
            state_BD, states = cells(0, context_BD, cells.begin(hidden))
            hidden = stack_states(states)
            context_BD, past_B2S = self.attention(state_BD, source, past_B2S)
            seen.append(torch.cat([state_BD, context_BD], -1))
            weights.append(past_B2S[:, 0])
            last_BF = self.output(seen[-1])[:, -self.num_mels :]
            has_ended_B |= self.end(seen[-1]).squeeze(-1) > 0
            if has_ended_B.all():
                break
        return self._finish(torch.stack(seen, 1), torch.stack(weights, 1))

    def _nothing(self, source: Reading) -> tuple[Tensor, ...]:
        nothing = source.value_BSD.new_zeros(1, len(source.value_BSD), self.sizes.width)
        return nothing, nothing

    def _prepare(self, last_BLF: Tensor) -> Tensor:
        """Read the last frames through a bottleneck, so that they do not tell everything."""
        x_BLP = last_BLF
        for layer in self.prenet:
            x_BLP = dropout(F.relu(layer(x_BLP)), self.sizes.prenet_dropout, self.training)
        return x_BLP

    def _finish(self, seen_BLD: Tensor, weight_BLS: Tensor) -> SynthesizerOutput:
        rough_BTF = self.output(seen_BLD).unflatten(-1, (-1, self.num_mels)).flatten(1, 2)
        x_BCT = rough_BTF.mT
        for number, layer in enumerate(self.postnet):
            x_BCT = layer(x_BCT) if number == len(self.postnet) - 1 else layer(x_BCT).tanh()
        return SynthesizerOutput(rough_BTF, rough_BTF + x_BCT.mT, self.end(seen_BLD).squeeze(-1), weight_BLS)
