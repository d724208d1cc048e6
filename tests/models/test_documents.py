"""Documents: a source of 4,000 tokens trains and decodes, in memory that grows with its length and not its square."""

from __future__ import annotations

import pytest
import torch

from saccade.decoding import BeamOptions, beam_search
from saccade.models.transformer import BlockSizes, Dropouts, Transformer
from saccade.training.losses import smoothed_cross_entropy
from saccade.training.memory import peak_memory


def build(window: int | None) -> Transformer:
    torch.manual_seed(1)
    return Transformer(
        source=50,
        target_vocabulary=50,
        sizes=BlockSizes(64, 2, 128, window=window, dropouts=Dropouts(0.1, 0.0, 0.1)),
        num_encoder_layers=2,
        num_decoder_layers=2,
        share_embeddings=True,
    )


def train(model: Transformer, length: int) -> None:
    source_BS, read_BT = torch.randint(4, 50, (2, length)), torch.randint(4, 50, (2, 60))
    vectors_BTD = model(source_BS, torch.tensor([length, length - 300]), read_BT)
    smoothed_cross_entropy(vectors_BTD.flatten(0, 1), model.output.weight, read_BT.flatten(), smoothing=0.1)[
        0
    ].backward()
    model.zero_grad(set_to_none=True)


@pytest.mark.parametrize("window", [None, 128])
def test_training_memory_is_linear_in_the_source(window: int | None) -> None:
    model = build(window)
    train(model, 500)
    short, long = (peak_memory(lambda n=n: train(model, n), torch.device("cpu")) for n in (2000, 4000))  # type: ignore[misc]
    if short is None or long is None:
        pytest.skip("this system doesn't tell how much memory a process held")
    assert long < 2.5 * short
    assert long < 400 * 2**20  # the weights alone of one layer, 2 x 2 heads x 4,000 x 4,000, would be 244 MiB


def test_a_long_source_is_decoded() -> None:
    model = build(None).eval()
    options = BeamOptions(width=2, max_length=12, max_rounds=0)
    (found,) = beam_search(model, torch.randint(4, 50, (1, 4000)), torch.tensor([4000]), options)
    assert 0 < len(found[0].log_probabilities) <= 12
