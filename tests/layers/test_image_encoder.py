"""Encoders of pictures and feature maps: each place sees its own surroundings, and knows where it is."""

from __future__ import annotations

import pytest
import torch

from saccade.layers.image_encoder import FeatureEncoder, GridPositions, ImageEncoder


def test_a_place_is_its_row_plus_its_column() -> None:
    places = GridPositions(2, 2, 3)
    with torch.no_grad():
        places.row_YD.copy_(torch.tensor([[1.0, 0.0], [2.0, 0.0]]))
        places.column_XD.copy_(torch.tensor([[0.0, 10.0], [0.0, 20.0], [0.0, 30.0]]))
    expected = [[1, 10], [1, 20], [1, 30], [2, 10], [2, 20], [2, 30]]
    assert places(torch.zeros(1, 6, 2)).tolist() == [expected]


@pytest.mark.parametrize(("row", "column"), [(0, 0), (13, 7), (27, 19)])
def test_a_pixel_is_seen_only_around_it(row: int, column: int) -> None:
    encoder = ImageEncoder(16, rows=28, columns=20).double()
    picture = torch.randint(0, 256, (1, 3, 28, 20))
    changed = picture.clone()
    changed[..., row, column] = 255 - changed[..., row, column]
    moved = (encoder(picture) != encoder(changed)).any(-1).view(7, 5)
    reach = encoder.FIELD / 2
    for y in range(7):
        for x in range(5):
            middle = 4 * y + 2, 4 * x + 2
            is_near = abs(middle[0] - row - 0.5) < reach and abs(middle[1] - column - 0.5) < reach
            assert moved[y, x] == is_near


def test_batch_mates_change_nothing() -> None:
    encoder, picture = ImageEncoder(8, rows=12, columns=8).double(), torch.randint(0, 256, (5, 3, 12, 8))
    torch.testing.assert_close(encoder(picture)[2:3], encoder(picture[2:3]))


def test_features_are_standardised_then_projected() -> None:
    encoder = FeatureEncoder(2, rows=1, columns=1, channels=2).eval()
    encoder.mean_C, encoder.deviation_C = torch.tensor([1.0, 2.0]), torch.tensor([2.0, 4.0])
    with torch.no_grad():
        encoder.inner.weight.copy_(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
        encoder.inner.bias.zero_()
        encoder.places.row_YD.zero_()
        encoder.places.column_XD.fill_(0.5)
    assert encoder(torch.tensor([[[5.0, 10.0]]])).tolist() == [[[2.5, 4.5]]]
    assert set(encoder.state_dict()) >= {"mean_C", "deviation_C"}


def test_feature_dropout_is_for_training() -> None:
    encoder = FeatureEncoder(7, rows=2, columns=3, channels=5, dropout=0.5)
    feature = torch.randn(2, 6, 5)
    assert not torch.equal(encoder(feature), encoder(feature))
    assert torch.equal(encoder.eval()(feature), encoder(feature))


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="size: 30 x 20 given; both must be multiples of 4"):
        ImageEncoder(8, rows=30, columns=20)
    with pytest.raises(ValueError, match="picture: 3 x 8 x 8 given; this model reads 3 x 12 x 8"):
        ImageEncoder(8, rows=12, columns=8)(torch.zeros(1, 3, 8, 8))
    with pytest.raises(ValueError, match="features: 6 x 4 given; this model reads 6 x 5"):
        FeatureEncoder(7, rows=2, columns=3, channels=5)(torch.zeros(1, 6, 4))
