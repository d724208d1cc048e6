"""An independent implementation: Hugging Face's Marian with our Transformer's weights gives the same logits."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import nn

from saccade.attention.positions import Positions
from saccade.models.transformer import BlockSizes, Transformer

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers", reason="transformers is not installed (pip install transformers)")

V, D, H, F, L = 31, 24, 3, 40, 2


def ours() -> Transformer:
    torch.manual_seed(1)
    model = Transformer(
        source=V,
        target_vocabulary=V,
        sizes=BlockSizes(D, H, F, norm="post"),
        num_encoder_layers=L,
        num_decoder_layers=L,
        share_embeddings=True,
    )
    for name, parameter in model.named_parameters():
        if name not in ("target.weight",):
            nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.2)
    return model.eval()


def marian() -> Any:
    config = transformers.MarianConfig(
        vocab_size=V,
        d_model=D,
        encoder_layers=L,
        decoder_layers=L,
        encoder_attention_heads=H,
        decoder_attention_heads=H,
        encoder_ffn_dim=F,
        decoder_ffn_dim=F,
        activation_function="relu",
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=1,
        forced_eos_token_id=None,
        max_position_embeddings=64,
        attn_implementation="eager",
    )
    return transformers.MarianMTModel(config).eval()


@torch.no_grad()
def copy_weights(mine: Transformer, theirs: Any) -> None:
    def linear(source: nn.Module, target: nn.Module) -> None:
        target.load_state_dict(source.state_dict())

    def attention(source: Any, target: Any) -> None:
        linear(source.query, target.q_proj)
        linear(source.key, target.k_proj)
        linear(source.value, target.v_proj)
        linear(source.output, target.out_proj)

    def rest(block: Any, layer: Any, norms: tuple[str, ...]) -> None:
        linear(block.feed_forward.inner, layer.fc1)
        linear(block.feed_forward.outer, layer.fc2)
        for residual, name in zip(block.residuals, norms, strict=True):
            linear(residual.norm, getattr(layer, name))

    body = theirs.model
    body.shared.weight.copy_(mine.target.weight)
    positions = mine.positions(Positions.following(0, 64, torch.device("cpu")))  # type: ignore[misc]
    for half, block_of in ((body.encoder, mine.encoder), (body.decoder, mine.decoder)):
        half.embed_positions.weight.copy_(positions)
        half.embed_tokens.weight.copy_(mine.target.weight)
        assert len(half.layers) == len(block_of)
    for block, layer in zip(mine.encoder, body.encoder.layers, strict=True):
        attention(block.attention, layer.self_attn)
        rest(block, layer, ("self_attn_layer_norm", "final_layer_norm"))
    for block, layer in zip(mine.decoder, body.decoder.layers, strict=True):
        attention(block.own, layer.self_attn)
        attention(block.cross, layer.encoder_attn)
        rest(block, layer, ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"))
    theirs.lm_head.weight.copy_(mine.output.weight)


def test_marian_with_our_weights_gives_our_logits() -> None:
    mine, theirs = ours(), marian()
    copy_weights(mine, theirs)
    source_BS, length_B = torch.randint(4, V, (5, 11)), torch.tensor([11, 3, 7, 1, 9])
    read_BT = torch.randint(4, V, (5, 13))
    real_BS = (torch.arange(11) < length_B[:, None]).long()
    with torch.no_grad():
        expected = theirs(input_ids=source_BS, attention_mask=real_BS, decoder_input_ids=read_BT).logits
        logits = mine.logits(mine(source_BS, length_B, read_BT))
    assert expected.std() > 0.1
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
