"""The peers as torch modules from a padded batch to its loss, with the settings that suit them best.

Dropout acts on residuals and embeddings only, as in our base model (and Vaswani 2017, section 5.4). The loss masks the
padding of a target, so its attention doesn't. A batch without padding has no mask.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.bench.peers.environments import PeerError
from saccade.bench.training.flops import ModelSizes
from saccade.data.text.tokenizer import END, PAD, START

SMOOTHING = 0.1
LONGEST = 1024
INSTALL = {"transformers": "pip install transformers", "ctranslate2": "pip install ctranslate2"}


def import_optional(name: str) -> Any:
    """Import a peer's package, or raise an error that says how to install it."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise PeerError(f"{name} is not installed ({INSTALL[name]}): {error}") from None


def smoothed_loss(logits_BTV: Tensor, write_BT: Tensor) -> Tensor:
    """Return the mean cross-entropy of the real tokens, with label smoothing."""
    return F.cross_entropy(logits_BTV.flatten(0, 1), write_BT.flatten(), ignore_index=PAD, label_smoothing=SMOOTHING)


@final
class TorchTransformer(nn.Module):
    """A Transformer of torch.nn's encoder and decoder layers, with one embedding matrix."""

    def __init__(self, sizes: ModelSizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        nn.init.normal_(self.embedding.weight, std=sizes.width**-0.5)
        self.register_buffer("position_TD", sinusoids(LONGEST, sizes.width), persistent=False)
        self.scale = sizes.width**0.5
        self.dropout = nn.Dropout(sizes.dropout)
        shape = (sizes.width, sizes.num_heads, sizes.hidden_width, sizes.dropout)
        options: dict[str, Any] = {"batch_first": True, "norm_first": True}
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(*shape, **options),
            sizes.num_layers,
            nn.LayerNorm(sizes.width),
            enable_nested_tensor=False,
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(*shape, **options), sizes.num_layers, nn.LayerNorm(sizes.width)
        )
        for module in self.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout = nn.Dropout(0.0)  # the one inside the feed-forward network

    def forward(self, source_BS: Tensor, real_BS: Tensor | None, read_BT: Tensor, write_BT: Tensor) -> Tensor:
        padding_BS = None if real_BS is None else ~real_BS
        steps = read_BT.shape[1]
        mask_TT = torch.ones(steps, steps, dtype=torch.bool, device=read_BT.device).triu(1)
        memory_BSD = self.encoder(self._embed(source_BS), src_key_padding_mask=padding_BS)
        x_BTD = self.decoder(
            self._embed(read_BT),
            memory_BSD,
            tgt_mask=mask_TT,
            tgt_is_causal=True,
            memory_key_padding_mask=padding_BS,
        )
        return smoothed_loss(F.linear(x_BTD, self.embedding.weight), write_BT)

    def _embed(self, ids_BT: Tensor) -> Tensor:
        x_BTD = self.embedding(ids_BT) * self.scale
        return self.dropout(x_BTD + self.get_buffer("position_TD")[: ids_BT.shape[1]])


def sinusoids(steps: int, width: int) -> Tensor:
    """Return the sinusoidal positions of Vaswani 2017, section 3.5."""
    angle = torch.arange(steps)[:, None] * 10_000.0 ** (-torch.arange(0, width, 2) / width)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)


def build_marian(sizes: ModelSizes) -> Any:
    """Build Hugging Face's MarianMTModel with random weights and torch's fused attention."""
    transformers = import_optional("transformers")
    transformers.utils.logging.set_verbosity_error()
    both = {"layers": sizes.num_layers, "attention_heads": sizes.num_heads, "ffn_dim": sizes.hidden_width}
    config = transformers.MarianConfig(
        vocab_size=sizes.vocabulary,
        d_model=sizes.width,
        **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in both.items()},
        activation_function="relu",
        dropout=sizes.dropout,
        attention_dropout=0.0,
        activation_dropout=0.0,
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,
        pad_token_id=PAD,
        bos_token_id=START,
        eos_token_id=END,
        decoder_start_token_id=START,
        forced_eos_token_id=None,
        max_position_embeddings=LONGEST,
        attn_implementation="sdpa",
    )
    return transformers.MarianMTModel(config)


@final
class Marian(nn.Module):
    """MarianMTModel with the loss computed outside of it, which is fastest."""

    def __init__(self, sizes: ModelSizes) -> None:
        super().__init__()
        self.model = build_marian(sizes)

    def forward(self, source_BS: Tensor, real_BS: Tensor | None, read_BT: Tensor, write_BT: Tensor) -> Tensor:
        mask_BS = None if real_BS is None else real_BS.long()
        found = self.model(input_ids=source_BS, attention_mask=mask_BS, decoder_input_ids=read_BT, use_cache=False)
        return smoothed_loss(found.logits, write_BT)


@final
class LoopRnn(nn.Module):
    """Bahdanau's model as tutorials write it: a bidirectional GRU encoder, and a GRUCell in a loop over target tokens.

    It projects keys once and runs the output layer after the loop, which not every tutorial does.
    """

    def __init__(self, sizes: ModelSizes) -> None:
        super().__init__()
        width, embedding = sizes.width, sizes.embedding_width
        self.embedding = nn.Embedding(sizes.vocabulary, embedding)
        nn.init.normal_(self.embedding.weight, std=embedding**-0.5)
        self.encoder = nn.GRU(embedding, width // 2, batch_first=True, bidirectional=True)
        self.bridge, self.key, self.query = (nn.Linear(width, width) for _ in range(3))
        self.energy = nn.Linear(width, 1, bias=False)
        self.cell = nn.GRUCell(embedding + width, width)
        self.readout = nn.Linear(2 * width + embedding, 2 * embedding)
        self.dropout, self.scale = nn.Dropout(sizes.dropout), embedding**0.5

    def forward(self, source_BS: Tensor, real_BS: Tensor | None, read_BT: Tensor, write_BT: Tensor) -> Tensor:
        x_BSD, x_BTD = (self.dropout(self.embedding(ids) * self.scale) for ids in (source_BS, read_BT))
        with torch.autocast(source_BS.device.type, enabled=False):  # cuDNN's GRU would run in float16
            value_BSD, last_2BD = self.encoder(x_BSD.float())
        key_BSD = self.key(value_BSD)
        hidden_BD = torch.tanh(self.bridge(torch.cat([last_2BD[0], last_2BD[1]], -1)))
        hiddens, contexts = [], []
        for x_BD in x_BTD.unbind(1):
            context_BD, hidden_BD = self.step(x_BD, hidden_BD, key_BSD, value_BSD, real_BS)
            contexts.append(context_BD)
            hiddens.append(hidden_BD)
        joined_BTD = torch.cat([torch.stack(hiddens, 1), x_BTD, torch.stack(contexts, 1)], -1)
        pairs_BTD2 = self.readout(self.dropout(joined_BTD)).unflatten(-1, (-1, 2))
        return smoothed_loss(F.linear(pairs_BTD2.amax(-1), self.embedding.weight), write_BT)

    def step(
        self, x_BD: Tensor, hidden_BD: Tensor, key_BSD: Tensor, value_BSD: Tensor, real_BS: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the context and the new state for one target token."""
        score_BS = self.energy(torch.tanh(self.query(hidden_BD)[:, None] + key_BSD))[..., 0]
        if real_BS is not None:
            score_BS = score_BS.masked_fill(~real_BS, -torch.inf)
        context_BD = (score_BS.softmax(-1)[:, None].to(value_BSD.dtype) @ value_BSD)[:, 0]
        return context_BD, self.cell(torch.cat([x_BD, context_BD.to(x_BD.dtype)], -1), hidden_BD)
