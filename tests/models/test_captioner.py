"""Show, Attend and Tell: the equations by hand, step by step equals all at once, hard attention picks one place."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from saccade.data.text.tokenizer import START
from saccade.decoding import BeamOptions, SamplingOptions, beam_search, search
from saccade.inspection.record import cross_weights
from saccade.layers.image_encoder import FeatureEncoder, ImageEncoder
from saccade.models.captioner import ATTENTIONS, STARTS, Captioner
from saccade.models.seq2seq import RecurrentSizes
from saccade.models.seq2seq_attention import ADDITIVE, AttentionOptions

FEATURE, PLACES = torch.randn(3, 6, 5, dtype=torch.float64), torch.full((3,), 6)
PICTURE = torch.randint(0, 256, (3, 3, 12, 8), dtype=torch.uint8)
READ = torch.randint(0, 13, (3, 5))


def build(
    attention: str = "soft", attention_options: AttentionOptions = ADDITIVE, cell: str = "lstm", **options: Any
) -> Captioner:
    encoder = FeatureEncoder(12, rows=2, columns=3, channels=5, dropout=0.1)
    sizes = RecurrentSizes(12, 10, num_layers=2, cell=cell, dropout=0.3)
    captioner = Captioner(
        encoder, vocabulary=13, sizes=sizes, attention_options=attention_options, attention=attention, **options
    )
    return captioner.double().eval()


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_steps_rows_and_batch_mates(attention: str, start: str, cell: str) -> None:
    model = build(attention, start=start, cell=cell, forgetting=0.5)
    vectors, _ = model(FEATURE, PLACES, READ)
    state, steps = model.start(FEATURE, PLACES), []
    for step in range(5):
        vector, state = model.advance(state, READ[:, step : step + 1])
        steps.append(vector)
    torch.testing.assert_close(torch.cat(steps, 1), vectors)
    assert state.num_steps == 5
    order = torch.tensor([2, 0, 0])
    _, state = model.advance(model.start(FEATURE, PLACES), READ[:, :2])
    torch.testing.assert_close(model.advance(state.rows(order), READ[order, 2:])[0], vectors[order, 2:])
    torch.testing.assert_close(model(FEATURE[1:2], PLACES[:1], READ[1:2])[0], vectors[1:2])


def test_a_step_by_hand() -> None:
    """h_0, c_0 = tanh(W mean v); z = sigmoid(W h) sum a v; h = LSTM([E y; z]); vector = tanh(E y + L [h; z])."""
    encoder = FeatureEncoder(12, rows=2, columns=3, channels=5)
    model = Captioner(encoder, vocabulary=13, sizes=RecurrentSizes(12, 10, cell="lstm")).double().eval()
    value_BSD = model.encoder(FEATURE)
    assert model.first is not None
    hidden_BD, memory_BD = model.first(value_BSD.mean(1)).tanh().chunk(2, -1)
    aligner, decoder = model.decoder.gaze.aligner, model.decoder
    weight_BS = aligner.score(hidden_BD[:, None], aligner.score.memory(value_BSD)).softmax(-1)[:, 0]
    context_BD = torch.einsum("bs,bsd->bd", weight_BS, value_BSD)
    gated_BD = decoder.gate(hidden_BD).sigmoid() * context_BD
    word_BD = model.target(READ[:, 0]) * 10**0.5
    cells: Any = decoder.layers.cells
    gates = torch.cat([word_BD, gated_BD], -1) @ cells.weight_ih_l0.mT + cells.bias_ih_l0
    gates = gates + hidden_BD @ cells.weight_hh_l0.mT + cells.bias_hh_l0
    read, forget, new, out = gates.chunk(4, -1)
    memory_BD = forget.sigmoid() * memory_BD + read.sigmoid() * new.tanh()
    hidden_BD = out.sigmoid() * memory_BD.tanh()
    expected = (word_BD + decoder.readout(torch.cat([hidden_BD, gated_BD], -1))).tanh()
    vectors, glance = model(FEATURE, PLACES, READ[:, :1])
    torch.testing.assert_close(vectors[:, 0], expected)
    torch.testing.assert_close(glance.weight_BTS[:, 0], weight_BS)
    torch.testing.assert_close(model.logits(vectors), vectors @ model.output.weight.T)


def test_the_state_starts_from_the_mean_or_from_nothing() -> None:
    assert all((state == 0).all() for state in build(start="zeros").start(FEATURE, PLACES).hidden)
    assert not any((state == 0).any() for state in build().start(FEATURE, PLACES).hidden)


@pytest.mark.parametrize(
    "attention_options",
    [AttentionOptions("general", "entmax15"), AttentionOptions("dot"), AttentionOptions("additive", "sparsemax")],
)
def test_any_score_and_normalizer(attention_options: AttentionOptions) -> None:
    weight_BLHTS = cross_weights(build(attention_options=attention_options), FEATURE, PLACES, READ)
    assert weight_BLHTS.shape == (3, 1, 1, 5, 6)
    torch.testing.assert_close(weight_BLHTS.sum(-1), torch.ones(3, 1, 1, 5, dtype=torch.float64))


def test_hard_attention_takes_the_likeliest_place_when_it_is_used() -> None:
    model = build("hard")
    glance = model(FEATURE, PLACES, READ)[1]
    picked = F.one_hot(glance.expected_BTS.argmax(-1), 6).double()
    assert torch.equal(glance.weight_BTS, picked)
    assert torch.equal(cross_weights(model, FEATURE, PLACES, READ)[:, 0, 0], picked)


def test_hard_attention_samples_half_of_the_rows_when_it_learns() -> None:
    model = build("hard").train()
    feature, read = FEATURE[:1].expand(400, -1, -1), READ[:1].expand(400, -1)
    _, glance = model(feature, torch.full((400,), 6), read)
    is_expected = (glance.weight_BTS == glance.expected_BTS).all((1, 2))
    assert 150 < int(is_expected.sum()) < 250
    sampled = glance.weight_BTS[~is_expected]
    assert torch.equal(sampled.amax(-1), torch.ones_like(sampled[..., 0]))
    assert torch.equal(sampled.sum(-1), torch.ones_like(sampled[..., 0]))
    assert (glance.log_probability_BT[is_expected] == 0).all()
    chosen = (glance.expected_BTS * glance.weight_BTS).sum(-1)[~is_expected]
    torch.testing.assert_close(glance.log_probability_BT[~is_expected], chosen.log())
    assert glance.log_probability_BT.requires_grad


def test_forgetting_leaves_the_word_its_look() -> None:
    """What the LSTM doesn't get, the word still does; without training nothing is forgotten."""
    encoder = FeatureEncoder(12, rows=2, columns=3, channels=5)
    sizes = RecurrentSizes(12, 10, cell="lstm")
    model = Captioner(encoder, vocabulary=13, sizes=sizes, forgetting=0.5).double()
    feature, places = FEATURE[:1].expand(64, -1, -1), torch.full((64,), 6)
    state = model.train().advance(model.start(feature, places), READ[:1, :1].expand(64, -1))[1]
    seen = model.eval().advance(model.start(feature, places), READ[:1, :1].expand(64, -1))[1]
    kinds = {tuple(row) for row in state.hidden[0][0].detach().round(decimals=9).tolist()}
    assert len(kinds) == 2
    assert len({tuple(row) for row in seen.hidden[0][0].detach().round(decimals=9).tolist()}) == 1


def test_a_bad_reward_leaves_the_baseline() -> None:
    model = build("hard")
    before = float(model.baseline)
    model.remember(torch.tensor(torch.nan))
    assert float(model.baseline) == before
    model.remember(torch.tensor(-1.0))
    assert float(model.baseline) == pytest.approx(0.9 * before - 0.1)
    assert "baseline" in model.state_dict()


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("width", [1, 3])
def test_pictures_are_decoded_as_everything_else(attention: str, width: int) -> None:
    encoder = ImageEncoder(8, rows=12, columns=8)
    sizes = RecurrentSizes(8, 6, cell="lstm")
    model = Captioner(encoder, vocabulary=11, sizes=sizes, attention=attention).double().eval()
    torch.nn.init.normal_(model.output.weight, std=2.0)
    options = BeamOptions(width=width, max_length=9)
    together = beam_search(model, PICTURE, PLACES, options)
    for row in range(3):
        (alone,) = beam_search(model, PICTURE[row : row + 1], PLACES[:1], options)
        assert [h.ids for h in alone] == [h.ids for h in together[row]]
        read = torch.tensor([[START, *alone[0].ids]])
        vectors, _ = model(PICTURE[row : row + 1], PLACES[:1], read)
        steps = model.logits(vectors).log_softmax(-1)[0].detach()
        expected = [float(steps[t, index]) for t, index in enumerate(alone[0].ids)]
        assert alone[0].log_probabilities[: len(expected)] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("source", [PICTURE, FEATURE])
def test_samples_depend_on_the_seed_and_the_picture_alone(source: torch.Tensor) -> None:
    encoder = (
        ImageEncoder(8, rows=12, columns=8) if source is PICTURE else FeatureEncoder(8, rows=2, columns=3, channels=5)
    )
    model = Captioner(encoder, vocabulary=11, sizes=RecurrentSizes(8, 6, cell="lstm")).double().eval()
    options = SamplingOptions(seed=5, max_length=9)
    together = search(model, source, PLACES, options)
    alone = [search(model, source[row : row + 1], PLACES[:1], options)[0] for row in range(3)]
    assert [h[0].ids for h in together] == [h[0].ids for h in alone]
    other = search(model, source, PLACES, SamplingOptions(seed=6, max_length=9))
    assert [h[0].ids for h in other] != [h[0].ids for h in together]


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="attention: 'some' given; allowed: soft, hard"):
        build("some")
    with pytest.raises(ValueError, match="start: 'end' given; allowed: mean, zeros"):
        build(start="end")
    with pytest.raises(ValueError, match="normalizer: 'sparsemax' given; hard attention samples from softmax"):
        build("hard", AttentionOptions("additive", "sparsemax"))
