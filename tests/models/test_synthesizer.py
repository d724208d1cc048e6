"""The synthesizer: location-sensitive attention against its equation, and what its outputs must not depend on."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from saccade.inspection.record import recording
from saccade.layers.location_sensitive import LocationSensitiveAttention
from saccade.models.synthesizer import SpeechSizes, Synthesizer

SIZES = SpeechSizes(width=14, prenet_width=6, reach=2, frames_a_step=3, dropout=0.0, prenet_dropout=0.0)


def make(**changed: object) -> Synthesizer:
    torch.manual_seed(2)
    network = Synthesizer(11, 5, SIZES._replace(**changed)).double()  # type: ignore[arg-type]
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.1)
    return network


def draw(rows: int = 2, letters: int = 7, frames: int = 12) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    ids_BS = torch.randint(4, 11, (rows, letters), generator=generator)
    frame_BTF = torch.randn(rows, frames, 5, dtype=torch.float64, generator=generator)
    return ids_BS, torch.full((rows,), letters), frame_BTF


def test_attention_by_its_equation() -> None:
    """e_s = v·tanh(W q + U k_s + b + U' f_s), with f_s the convolution of the last weights and of their sum."""
    torch.manual_seed(1)
    attention = LocationSensitiveAttention(3, 4, reach=1).double()
    key_BSD, query_BD = torch.randn(1, 5, 4).double(), torch.randn(1, 3).double()
    past_B2S = torch.rand(1, 2, 5).double()
    length_B = torch.tensor([4])
    context_BD, after_B2S = attention(query_BD, attention.read(key_BSD, length_B), past_B2S)
    score, kernel = attention.score, attention.location.weight
    around = F.pad(past_B2S[0], (1, 1))
    scores = []
    for place in range(4):
        heard = sum(kernel[:, source, j] * around[source, place + j] for source in range(2) for j in range(3))
        hidden = score.W @ query_BD[0] + score.U @ key_BSD[0, place] + score.b + heard  # type: ignore[operator]
        scores.append(score.v @ hidden.tanh())  # type: ignore[operator]
    weight_S = torch.stack([*scores, torch.tensor(-torch.inf).double()]).softmax(0)
    torch.testing.assert_close(after_B2S[0, 0], weight_S)
    torch.testing.assert_close(after_B2S[0, 1], past_B2S[0, 1] + weight_S)
    torch.testing.assert_close(context_BD[0], weight_S @ key_BSD[0])


@pytest.mark.parametrize("score", ["additive", "scaled_dot", "cosine", "general"])
def test_padding_and_later_frames_change_nothing(score: str) -> None:
    network, (ids_BS, length_B, frame_BTF) = make(score=score), draw()
    alone = network(ids_BS[:1, :5], torch.tensor([5]), frame_BTF[:1, :9])
    together = network(ids_BS, torch.tensor([5, 7]), frame_BTF)
    torch.testing.assert_close(together.rough_BTF[:1, :9], alone.rough_BTF)
    torch.testing.assert_close(together.weight_BLS[:1, :3, :5], alone.weight_BLS)
    assert (together.weight_BLS[0, :, 5:] == 0).all()
    assert length_B.tolist() == [7, 7]


def test_speaking_is_reading_what_it_wrote() -> None:
    """Frames that it writes by itself are those that it writes when these are what it hears."""
    network, (ids_BS, length_B, _) = make().eval(), draw()
    spoken = network.speak(ids_BS, length_B, most_steps=4)
    steps = spoken.end_BL.shape[1]
    forced = network(ids_BS, length_B, spoken.rough_BTF)
    assert spoken.rough_BTF.shape == (2, 3 * steps, 5)
    for name in ("rough_BTF", "frame_BTF", "end_BL", "weight_BLS"):
        torch.testing.assert_close(getattr(spoken, name), getattr(forced, name))


def test_every_parameter_gets_a_gradient_and_weights_are_recorded() -> None:
    network, given = make(), draw()
    with recording(network, kinds=("cross",)) as record:
        spoken = network(*given)
    torch.testing.assert_close(record.weights("cross")[0, :, 0], spoken.weight_BLS)
    (spoken.frame_BTF.square().sum() + spoken.end_BL.sum()).backward()
    for name, weight in network.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.abs().max() > 0, name
