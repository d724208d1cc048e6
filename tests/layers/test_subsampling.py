"""Subsampling: shapes and lengths, padding and batch-mates change nothing, equations by hand; augmentation."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from torch.nn import functional as F

from saccade.inspection.record import cross_weights
from saccade.layers.augmentation import Augmentation, MaskLimits, draw_masks, stretch
from saccade.layers.recurrent.layers import RecurrentEncoder
from saccade.layers.subsampling import (
    SUBSAMPLINGS,
    Convolutions,
    FrameEncoder,
    Pyramid,
    halve_length,
    pair_steps,
    shorten_length,
)
from saccade.models.seq2seq import DECODERS, RecurrentSizes, Seq2Seq
from saccade.models.transformer import BlockSizes, Transformer

FRAMES, LENGTH = torch.randn(3, 23, 7).double(), torch.tensor([23, 6, 13])
READ = torch.randint(0, 13, (3, 5))


@pytest.mark.parametrize("kind", SUBSAMPLINGS)
def test_four_frames_become_one_vector_and_padding_changes_nothing(kind: str) -> None:
    layer = SUBSAMPLINGS[kind](7, 12, dropout=0.3).double().eval()
    together, length_B = layer(FRAMES, LENGTH)
    assert together.shape == (3, 6, 12)
    assert length_B.tolist() == shorten_length(LENGTH).tolist() == [6, 2, 4]
    for row, length in enumerate(LENGTH.tolist()):
        alone, own = layer(FRAMES[row : row + 1, :length], LENGTH[row : row + 1])
        assert own.tolist() == [alone.shape[1]]
        torch.testing.assert_close(together[row : row + 1, : own[0]], alone)
    noisy = FRAMES.clone()
    noisy[1, 6:] = 99.0  # whatever lies behind a length
    torch.testing.assert_close(layer(noisy, LENGTH)[0][1, :2], together[1, :2])


@pytest.mark.parametrize("kind", SUBSAMPLINGS)
def test_gradients(kind: str) -> None:
    layer = SUBSAMPLINGS[kind](3, 2).double()
    layer.norm = torch.nn.Identity()  # type: ignore[assignment]  # with a width of two it gives signs
    frames = torch.randn(2, 5, 3).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: layer(x, torch.tensor([5, 3]))[0], frames)


def test_pairs_by_hand() -> None:
    x_BSD = torch.arange(6.0).view(1, 3, 2)
    assert pair_steps(x_BSD).tolist() == [[[0, 1, 2, 3], [4, 5, 0, 0]]]
    assert halve_length(torch.tensor([1, 2, 3])).tolist() == [1, 1, 2]


def test_the_pyramid_is_two_lstms_with_pairs_joined() -> None:
    layer = Pyramid(7, 12).double().eval()
    first, second = (cast(RecurrentEncoder, block).layers.cells for block in layer.layers)
    lower = first(FRAMES[:1])[0]
    upper = second(torch.cat([F.pad(lower, (0, 0, 0, 1))[:, 0::2], F.pad(lower, (0, 0, 0, 1))[:, 1::2]], -1))[0]
    expected = layer.norm(layer.project(torch.cat([upper[:, 0::2], upper[:, 1::2]], -1)))
    torch.testing.assert_close(layer(FRAMES[:1], LENGTH[:1])[0], expected)


def test_a_convolution_sees_one_frame_to_either_side() -> None:
    layer = Convolutions(7, 12).double().eval()
    frames = FRAMES[:1].clone().requires_grad_()
    layer(frames, LENGTH[:1])[0][0, 2, 0].backward()
    assert frames.grad is not None
    touched = frames.grad[0].abs().sum(1).gt(0).nonzero()[:, 0].tolist()
    assert touched == list(range(5, 12))  # 2 * (2 * 2 - 1) - 1 to 2 * (2 * 2 + 1) + 1


def network(kind: str, subsampling: str) -> Transformer | Seq2Seq:
    encoder = FrameEncoder(SUBSAMPLINGS[subsampling](7, 12))
    if kind == "transformer":
        return Transformer(
            source=encoder,
            target_vocabulary=13,
            sizes=BlockSizes(12, 2, 17),
            num_encoder_layers=2,
            num_decoder_layers=2,
        )
    return Seq2Seq(source=encoder, target_vocabulary=13, sizes=RecurrentSizes(10, 12), attention=kind)


@pytest.mark.parametrize("subsampling", SUBSAMPLINGS)
@pytest.mark.parametrize("kind", ["transformer", *DECODERS])
def test_models_read_frames(kind: str, subsampling: str) -> None:
    model = network(kind, subsampling).double().eval()
    together = model(FRAMES, LENGTH, READ)
    for row, length in enumerate(LENGTH.tolist()):
        alone = model(FRAMES[row : row + 1, :length], LENGTH[row : row + 1], READ[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone)
    state, steps = model.start(FRAMES, LENGTH), []
    for step in range(5):
        vectors, state = model.advance(state, READ[:, step : step + 1])  # type: ignore[arg-type, type-var]
        steps.append(vectors)
    torch.testing.assert_close(torch.cat(steps, 1), together)
    weight_BLHTS = cross_weights(model, FRAMES, LENGTH, READ)
    assert (weight_BLHTS.shape[1] == 0) == (kind == "none")
    if kind != "none":
        assert weight_BLHTS.shape[3:] == (5, 6)
        assert weight_BLHTS[1, ..., 2:].eq(0).all()


def test_augmentation_is_for_training_and_a_function_of_the_seed() -> None:
    layer = Augmentation(time=MaskLimits(2, 4), frequency=MaskLimits(1, 1), tempo=0.2)
    frames, length_B = layer.eval()(FRAMES, LENGTH)
    assert torch.equal(frames, FRAMES)
    layer.train()
    torch.manual_seed(3)
    first, first_length = layer(FRAMES, LENGTH)
    torch.manual_seed(3)
    second, _ = layer(FRAMES, LENGTH)
    assert torch.equal(first, second)
    assert not torch.equal(first, layer(FRAMES, LENGTH)[0])
    assert first_length[0] == first.shape[1] != 23
    assert length_B.tolist() == LENGTH.tolist()


def test_masks_lie_inside_and_are_no_longer_than_they_may() -> None:
    length_B = torch.full((5000,), 17)
    seen_BS = draw_masks(length_B, 23, MaskLimits(1, 9))
    assert seen_BS[:, 17:].eq(1).all()
    widths = 23 - seen_BS.sum(1)
    assert sorted(set(widths.tolist())) == [0, 1, 2, 3]  # a fifth of 17
    assert seen_BS[:, :17].eq(0).any(0).all()  # anywhere
    short = 23 - draw_masks(length_B, 23, MaskLimits(1, 2)).sum(1)
    assert [round(float((short == width).float().mean()), 1) for width in range(3)] == [0.3, 0.3, 0.3]
    assert draw_masks(length_B, 23, MaskLimits(0, 9)).eq(1).all()
    assert (23 - draw_masks(length_B, 23, MaskLimits(2, 3)).sum(1)).max() == 6


def test_stretching_by_hand() -> None:
    frames = torch.tensor([[[0.0], [2.0], [4.0], [6.0]]])
    slower, length = stretch(frames, torch.tensor([4]), 2.0)
    assert slower[0, :, 0].tolist() == [0, 0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6]
    assert length.tolist() == [8]
    assert stretch(torch.randn(2, 10, 3), torch.tensor([10, 5]), 0.8)[1].tolist() == [8, 4]
