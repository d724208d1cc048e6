"""Show, Attend and Tell (Xu 2015): an LSTM that writes a sentence and attends to the picture for each word."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from saccade.attention.normalizers import Hard
from saccade.layers.clip_encoder import ClipEncoder
from saccade.layers.image_encoder import FeatureEncoder, ImageEncoder
from saccade.layers.recurrent.layers import Recurrent
from saccade.layers.recurrent.scan import Hidden
from saccade.layers.recurrent.unrolled import stack_states
from saccade.models.seq2seq import RecurrentSizes, RecurrentState
from saccade.models.seq2seq_attention import ADDITIVE, AttentionOptions, Source, SourceAttention, StepwiseAttention
from saccade.ops.dropout import dropout

Encoder = ImageEncoder | ClipEncoder | FeatureEncoder
ATTENTIONS = ("soft", "hard")
STARTS = ("mean", "zeros")
MOMENTUM = 0.9  # of the baseline (Xu 2015, section 4.1)


class PlaceWeights(NamedTuple):
    """The weights of each word on the places of a picture, those expected, and log p of the place that was picked.

    With soft attention the first two are the same, and the third is 0.
    """

    weight_BTS: Tensor
    expected_BTS: Tensor
    log_probability_BT: Tensor


@final
class CaptionAttention(nn.Module):
    """z_t = sum_i a_ti v_i: the expected vector (soft, Xu 2015, section 4.2) or that of one place (hard, 4.1).

    Hard attention takes a sampled place in training and the likeliest one otherwise; rows where `expect_B` is True
    take the expected vector.
    """

    kind = "cross"

    def __init__(self, width: int, options: AttentionOptions, *, is_hard: bool) -> None:
        super().__init__()
        self.aligner = SourceAttention(width, options, kind=None)  # not recorded: hard attention uses other weights
        self.hard = Hard() if is_hard else None

    def forward(
        self, query_BD: Tensor, expected: StepwiseAttention, value_BSD: Tensor, expect_B: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the next step's context [B, D] and its `PlaceWeights`."""
        context_BD, expected_BTS = expected.with_weights(query_BD)
        if self.hard is None:
            return context_BD, expected_BTS, expected_BTS, expected_BTS.new_zeros(expected_BTS.shape[:2])
        score_BTS = expected_BTS.clamp_min(torch.finfo(expected_BTS.dtype).tiny).log()  # softmax gives them back
        weight_BTS = self.hard(score_BTS)
        log_probability_BT = self.hard.log_probability(score_BTS, None, weight_BTS)
        if expect_B is not None:
            weight_BTS = torch.where(expect_B[:, None, None], expected_BTS, weight_BTS)
            log_probability_BT = log_probability_BT.masked_fill(expect_B[:, None], 0.0)
        return (weight_BTS @ value_BSD).squeeze(1), weight_BTS, expected_BTS, log_probability_BT

    def value_norms(self, _query_BD: Tensor, _expected: StepwiseAttention, value_BSD: Tensor, *_: Any) -> Tensor:
        """Return the lengths of the places' vectors, [B, 1, S]."""
        return value_BSD.norm(dim=-1).unsqueeze(1)


@final
class CaptionDecoder(nn.Module):
    """z_t from h_t-1, gated by b_t = sigmoid(W h_t-1); h_t = LSTM(y_t-1, z_t); y_t from tanh(y_t-1 + L [h_t; z_t]).

    Xu 2015, sections 3.1.2 (the LSTM, equation 7: the deep output) and 4.2.1 (the gating scalar).
    """

    def __init__(self, sizes: RecurrentSizes, options: AttentionOptions, *, is_hard: bool, forgetting: float) -> None:
        super().__init__()
        self.gaze = CaptionAttention(sizes.width, options, is_hard=is_hard)  # a name that is in saved weights
        self.gate = nn.Linear(sizes.width, 1)
        self.layers = Recurrent(
            sizes.embedding_width + sizes.width,
            sizes.width,
            cell=sizes.cell,
            num_layers=sizes.num_layers,
            dropout=sizes.dropout,
        )
        self.readout = nn.Linear(2 * sizes.width, sizes.embedding_width)
        self.dropout, self.forgetting = sizes.dropout, forgetting

    def forward(
        self, x_BTD: Tensor, state: RecurrentState, expect_B: Tensor | None
    ) -> tuple[Tensor, RecurrentState, list[PlaceWeights]]:
        """Compute step by step; only what depends on the step before is inside the loop."""
        value_BSD, num_steps = state.source.value_BSD, x_BTD.shape[1]
        expected, cells = StepwiseAttention(self.gaze.aligner, state.source, 0), self.layers.unroll(x_BTD)
        states, contexts, outputs, weights = cells.begin(state.hidden), [], [], []
        for step in range(num_steps):
            query_BD = states[-1].read_BD
            context_BD, *used = self.gaze(query_BD, expected, value_BSD, expect_B)
            weights.append(PlaceWeights(*used))
            contexts.append(torch.sigmoid(self.gate(query_BD)) * context_BD)
            kept_BD = contexts[-1] * dropout(torch.ones_like(context_BD[:, :1]), self.forgetting, self.training)
            output_BD, states = cells(step, kept_BD, states)
            outputs.append(output_BD)
        both_BTD = torch.cat([torch.stack(outputs, 1), torch.stack(contexts, 1)], -1)
        vectors_BTD = self.readout(dropout(both_BTD, self.dropout, self.training))
        return torch.tanh(x_BTD + vectors_BTD), state._replace(hidden=stack_states(states)), weights


@final
class Captioner(nn.Module):
    """A model that describes pictures or clips: from pixels or feature maps to distributions over words."""

    baseline: Tensor

    def __init__(
        self,
        encoder: Encoder,
        *,
        vocabulary: int,
        sizes: RecurrentSizes,
        attention_options: AttentionOptions = ADDITIVE,
        attention: str = "soft",
        start: str = "mean",
        forgetting: float = 0.0,
        share_output: bool = False,
    ) -> None:
        super().__init__()
        for name, value, allowed in (("attention", attention, ATTENTIONS), ("start", start, STARTS)):
            if value not in allowed:
                raise ValueError(f"{name}: {value!r} given; allowed: {', '.join(allowed)}")
        if attention == "hard" and attention_options.normalizer != "softmax":
            raise ValueError(f"normalizer: {attention_options.normalizer!r} given; hard attention samples from softmax")
        self.encoder, self.is_hard = encoder, attention == "hard"
        width = sizes.embedding_width
        self.target = nn.Embedding(vocabulary, width)
        self.output = self.target if share_output else nn.Embedding(vocabulary, width)
        for embedding in dict.fromkeys((self.target, self.output)):
            nn.init.normal_(embedding.weight, std=width**-0.5)
        self.decoder = CaptionDecoder(sizes, attention_options, is_hard=self.is_hard, forgetting=forgetting)
        num_states = 2 if sizes.cell == "lstm" else 1
        self.num_layers, self.width, self.num_states = sizes.num_layers, sizes.width, num_states
        self.first = nn.Linear(sizes.width, num_states * sizes.num_layers * sizes.width) if start == "mean" else None
        self.dropout, self.scale = sizes.dropout, width**0.5
        self.register_buffer("baseline", torch.tensor(-math.log(vocabulary)))  # of the reward, log p of a word

    def start(self, source: Tensor, source_length_B: Tensor) -> RecurrentState:
        """Read the picture [B, C, Y, X], clip [B, F, C, Y, X] or features [B, Y * X, C]; return the first state.

        `source_length_B` counts its places; those of a clip are the cells of the first frame, of the second, and so on.
        """
        value_BSD = self.encoder(source)
        places = Source(value_BSD, self.decoder.gaze.aligner.score.memory(value_BSD), source_length_B)
        return RecurrentState(
            self._first(value_BSD, source_length_B), value_BSD.new_zeros(len(value_BSD), 0), places, 0
        )

    def advance(self, state: RecurrentState, read_BT: Tensor) -> tuple[Tensor, RecurrentState]:
        """Read some words and return a vector for each, [B, T, D], and the state after them."""
        vectors_BTD, later, _ = self.decoder(self._embed(read_BT), state, None)
        return vectors_BTD, later._replace(num_steps=state.num_steps + read_BT.shape[1])

    def logits(self, vectors: Tensor) -> Tensor:
        """Return the unnormalised log-probabilities of the next word, [..., V]."""
        return vectors @ self.output.weight.mT

    def forward(self, source: Tensor, source_length_B: Tensor, read_BT: Tensor) -> tuple[Tensor, PlaceWeights]:
        """Read a whole sentence (teacher forcing) and return a vector for each word, [B, T, D], and its weights.

        While hard attention trains, half of the rows take the expected vector instead of a sample (section 4.1).
        """
        state = self.start(source, source_length_B)
        halves = self.is_hard and self.training
        expect_B = torch.rand(len(read_BT), device=read_BT.device) < 0.5 if halves else None
        vectors_BTD, _, weights = self.decoder(self._embed(read_BT), state, expect_B)
        return vectors_BTD, PlaceWeights(*(torch.cat(parts, 1) for parts in zip(*weights, strict=True)))

    @torch.no_grad()
    def remember(self, reward: Tensor) -> None:
        """Update the moving average of rewards: b <- 0.9 b + 0.1 r (Xu 2015, section 4.1)."""
        later = MOMENTUM * self.baseline + (1 - MOMENTUM) * reward
        self.baseline.copy_(later.where(later.isfinite(), self.baseline))  # a step that is skipped leaves no trace

    def _embed(self, read_BT: Tensor) -> Tensor:
        return dropout(self.target(read_BT) * self.scale, self.dropout, self.training)

    def _first(self, value_BSD: Tensor, length_B: Tensor) -> Hidden:
        """Compute h_0 and c_0 of every layer: tanh(W mean_i v_i) (Xu 2015, section 3.1.2), or zeros."""
        count = self.num_states * self.num_layers
        if self.first is None:
            states = value_BSD.new_zeros(count, len(value_BSD), self.width)
        else:
            mean_BD = mean_vector(value_BSD, length_B) if isinstance(self.encoder, ClipEncoder) else value_BSD.mean(1)
            states = torch.tanh(self.first(mean_BD)).unflatten(-1, (count, -1)).movedim(1, 0)
        return tuple(state.contiguous() for state in states.chunk(self.num_states))


def mean_vector(value_BSD: Tensor, length_B: Tensor) -> Tensor:
    """Return the mean of the first vectors of each row, [B, D]."""
    real_BS = torch.arange(value_BSD.shape[1], device=value_BSD.device) < length_B[:, None]
    return (value_BSD * real_BS[..., None]).sum(1) / length_B[:, None]
