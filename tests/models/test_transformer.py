"""The Transformer: step by step equals all at once, padding changes nothing, and torch computes the same."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
import torch
from torch import nn

from cases import SCORE_NAMES
from saccade.attention import KeyValue
from saccade.attention.positions import POSITIONS, Positions, Relative, Rotary, Sinusoidal
from saccade.data.packing import PackedRow
from saccade.inspection.record import cross_weights
from saccade.models.transformer import BlockSizes, Transformer


def build(
    norm: str = "pre",
    activation: str = "relu",
    score: str = "scaled_dot",
    positions: str = "sinusoidal",
    window: int | None = None,
) -> Transformer:
    model = Transformer(
        source=11,
        target_vocabulary=13,
        sizes=BlockSizes(12, 3, 20, activation=activation, norm=norm, score=score, positions=positions, window=window),
        num_encoder_layers=2,
        num_decoder_layers=2,
        share_embeddings=False,
    )
    with torch.no_grad():
        for bias in (model.encoder_bias, model.decoder_bias):
            if bias is not None:
                bias.table.normal_()
    return model.double().eval()


SOURCE, LENGTH = torch.randint(0, 11, (3, 7)), torch.tensor([7, 2, 5])
READ = torch.randint(0, 13, (3, 5))


def check_steps(model: Transformer) -> None:
    state, steps = model.start(SOURCE, LENGTH), []
    for step in range(5):
        vectors, state = model.advance(state, READ[:, step : step + 1])
        steps.append(vectors)
    torch.testing.assert_close(torch.cat(steps, 1), model(SOURCE, LENGTH, READ))
    assert state.num_steps == 5


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("score", SCORE_NAMES)
def test_step_by_step_equals_all_at_once(norm: str, score: str) -> None:
    check_steps(build(norm, score=score))


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("window", [None, 1])
def test_step_by_step_with_any_positions_and_a_window(positions: str, window: int | None) -> None:
    check_steps(build(positions=positions, window=window))


def test_a_window_hides_what_is_far() -> None:
    model = build(window=1)
    far, near = SOURCE.clone(), SOURCE.clone()
    far[0, 6], near[0, 1] = (SOURCE[0, 6] + 1) % 11, (SOURCE[0, 1] + 1) % 11
    memories = [cast(KeyValue, model.start(source, LENGTH).blocks[0].source) for source in (SOURCE, far, near)]
    first = [memory.value[0, :, 0, 0] for memory in memories]
    torch.testing.assert_close(first[0], first[1])  # two layers see two steps away, not six
    assert not torch.allclose(first[0], first[2])


def test_halves_are_the_same_sinusoids_in_another_order() -> None:
    interleaved_TD, halves_TD = (Sinusoidal(10, halves=halves)(places(3, 7)) for halves in (False, True))
    torch.testing.assert_close(halves_TD, torch.cat([interleaved_TD[:, 0::2], interleaved_TD[:, 1::2]], 1))


def places(first: int, count: int) -> Positions:
    return Positions.following(first, count, torch.device("cpu"))


def test_rotary_positions_see_distances_only() -> None:
    rotary, query, key = Rotary(8).double(), torch.randn(1, 2, 5, 8).double(), torch.randn(1, 2, 5, 8).double()
    here, there = (rotary(query, places(first, 5)) @ rotary(key, places(first, 5)).mT for first in (0, 17))
    torch.testing.assert_close(here, there)
    torch.testing.assert_close(rotary(query, places(3, 5)).norm(dim=-1), query.norm(dim=-1))
    assert not torch.allclose(here, query @ key.mT)


def test_relative_positions_share_a_bias_between_equal_distances() -> None:
    bias = Relative(3, causal=False, num_buckets=8, max_distance=20)
    with torch.no_grad():
        bias.table.copy_(torch.arange(24.0).view(8, 3))
    table_TS = bias(places(0, 40), 40)[0] / 3  # the bucket's number
    assert [int(table_TS[5, 5 + distance]) for distance in (0, -1, 1, 2)] == [0, 1, 5, 6]
    assert int(table_TS[39, 0]) == 3  # far to the left: the last bucket of that side
    assert int(table_TS[0, 39]) == 7
    torch.testing.assert_close(bias(places(7, 2), 9)[:, 0, 3], bias(places(4, 1), 1)[:, 0, 0])
    causal = Relative(3, causal=True, num_buckets=8)
    assert causal._bucket(torch.tensor([3, 0, -1, -3])).tolist() == [0, 0, 1, 3]


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_padding_and_batch_mates_change_nothing(activation: str, positions: str) -> None:
    model = build(activation=activation, positions=positions)
    together = model(SOURCE, LENGTH, READ)
    for row, length in enumerate(LENGTH.tolist()):
        alone = model(SOURCE[row : row + 1, :length], LENGTH[row : row + 1], READ[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone)


def test_reordered_rows_go_on_as_themselves() -> None:
    model, order = build(), torch.tensor([2, 0, 0])
    _, state = model.advance(model.start(SOURCE, LENGTH), READ[:, :2])
    vectors, _ = model.advance(state.rows(order), READ[order, 2:])
    torch.testing.assert_close(vectors, model(SOURCE, LENGTH, READ)[order, 2:])


def test_one_vocabulary_shares_all_three_embeddings() -> None:
    model = Transformer(
        source=11,
        target_vocabulary=11,
        sizes=BlockSizes(12, 3, 20),
        num_encoder_layers=1,
        num_decoder_layers=1,
        share_embeddings=True,
    )
    assert model.source is model.target
    assert sum(name.endswith(("source.weight", "target.weight")) for name, _ in model.named_parameters()) == 1


def test_every_layer_and_head_weighs_the_source() -> None:
    model = build()
    weight_BLHTS = cross_weights(model, SOURCE, LENGTH, READ)
    assert weight_BLHTS.shape == (3, 2, 3, 5, 7)
    torch.testing.assert_close(weight_BLHTS.sum(-1), torch.ones(3, 2, 3, 5, dtype=torch.float64))
    for row, length in enumerate(LENGTH.tolist()):
        assert (weight_BLHTS[row, ..., length:] == 0).all()
    changed = cross_weights(model, SOURCE, LENGTH, READ.flip(0))
    assert not torch.allclose(weight_BLHTS, changed)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_equals_torchs_transformer_with_the_same_weights(norm: str) -> None:
    ours = build(norm)
    theirs = nn.Transformer(
        12, 3, 2, 2, 20, dropout=0.0, batch_first=True, norm_first=norm == "pre", dtype=torch.float64
    ).eval()
    if norm == "post":
        theirs.encoder.norm = theirs.decoder.norm = None
    copy_weights(ours, theirs)
    source = ours._embed_source(SOURCE, LENGTH)[0]
    (read,) = ours._embed(ours.target, (READ, places(0, 5)))
    padding = torch.arange(7) >= LENGTH[:, None]
    causal = torch.ones(5, 5, dtype=torch.bool).triu(1)
    expected = theirs(source, read, tgt_mask=causal, src_key_padding_mask=padding, memory_key_padding_mask=padding)
    torch.testing.assert_close(ours(SOURCE, LENGTH, READ), expected)


def copy_weights(ours: Transformer, theirs: nn.Transformer) -> None:
    def attention(mine: nn.Module, other: nn.MultiheadAttention) -> None:
        layers = [mine.get_submodule(name) for name in ("query", "key", "value")]
        other.in_proj_weight.copy_(torch.cat([layer.get_parameter("weight") for layer in layers]))
        other.in_proj_bias.copy_(torch.cat([layer.get_parameter("bias") for layer in layers]))
        other.out_proj.load_state_dict(mine.get_submodule("output").state_dict())

    def rest(mine: nn.Module, other: nn.Module, norms: int) -> None:
        other.get_submodule("linear1").load_state_dict(mine.get_submodule("feed_forward.inner").state_dict())
        other.get_submodule("linear2").load_state_dict(mine.get_submodule("feed_forward.outer").state_dict())
        for index in range(norms):
            norm = mine.get_submodule(f"residuals.{index}.norm")
            other.get_submodule(f"norm{index + 1}").load_state_dict(norm.state_dict())

    with torch.no_grad():
        for parameter in ours.parameters():
            nn.init.normal_(parameter, std=0.3)
        for mine, other in zip(ours.encoder, theirs.encoder.layers, strict=True):
            attention(mine.get_submodule("attention"), other.self_attn)
            rest(mine, other, 2)
        for mine, other in zip(ours.decoder, theirs.decoder.layers, strict=True):
            attention(mine.get_submodule("own"), other.self_attn)
            attention(mine.get_submodule("cross"), other.multihead_attn)
            rest(mine, other, 3)
        if theirs.encoder.norm is not None:
            theirs.encoder.norm.load_state_dict(ours.encoder_norm.state_dict())
            theirs.decoder.norm.load_state_dict(ours.decoder_norm.state_dict())


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
@pytest.mark.parametrize("window", [None, 2])
def test_packed_sentences_are_read_as_if_alone(positions: str, window: int | None) -> None:
    model = build(positions=positions, window=window)
    sources, targets = [[3, 4, 5, 6], [7], [8, 9, 3]], [[1, 4], [1, 5, 6, 7], [1]]
    source, target = packed_row(sources, 11), packed_row(targets, 9)
    vectors_TD = model.forward_packed(source, target)[0]
    for number, (ids, read) in enumerate(zip(sources, targets, strict=True)):
        alone_TD = model(torch.tensor([ids]), torch.tensor([len(ids)]), torch.tensor([read]))[0]
        start, end = target.start_N[number : number + 2].tolist()
        torch.testing.assert_close(vectors_TD[start:end], alone_TD)


def packed_row(sentences: list[list[int]], size: int) -> PackedRow:
    ids, lengths = [token for one in sentences for token in one], [len(one) for one in sentences]
    places = [place for length in lengths for place in range(length)]
    starts = [0, *torch.tensor(lengths).cumsum(0).tolist()]
    padding = [0] * (size - len(ids))
    return PackedRow(
        torch.tensor([ids + padding]),
        torch.tensor([*starts, starts[-1], starts[-1]], dtype=torch.int32),  # two slots are free
        torch.tensor(places + padding),
        longest=max(lengths),
    )


def test_sinusoids_are_exact_far_from_the_start() -> None:
    """An angle of float32 would be off by 3e-4 there."""
    place = np.arange(9000, 9011, dtype=np.float64)[:, None]
    angle = place / 10_000 ** (np.arange(0, 14, 2) / 14)
    wanted = np.stack([np.sin(angle), np.cos(angle)], -1).reshape(11, 14)
    found = Sinusoidal(14)(Positions.following(9000, 11, torch.device("cpu")))
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), wanted, rtol=0, atol=1e-7)
    np.testing.assert_allclose(Sinusoidal(14).table(9011)[9000:].numpy(), wanted, rtol=0, atol=1e-7)
    np.testing.assert_allclose(
        Sinusoidal(14).double()(Positions.following(9000, 11, torch.device("cpu"))).numpy(), wanted, rtol=0, atol=1e-11
    )
