"""The RNN family: step by step equals all at once, padding changes nothing, the equations hold by hand."""

from __future__ import annotations

import contextlib
import gc
import weakref
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from cases import SCORE_NAMES
from saccade.inspection.record import cross_weights
from saccade.layers.recurrent.layers import CELLS, DIRECTIONS
from saccade.layers.recurrent.scan import reverse_steps
from saccade.models.seq2seq import DECODERS, BahdanauDecoder, RecurrentSizes, Seq2Seq
from saccade.models.seq2seq_attention import ADDITIVE, SCOPES, AttentionOptions

SOURCE, LENGTH = torch.randint(0, 11, (3, 7)), torch.tensor([7, 2, 5])
READ = torch.randint(0, 13, (3, 5))


def build(
    cell: str = "gru", num_layers: int = 2, attention_options: AttentionOptions = ADDITIVE, **options: Any
) -> Seq2Seq:
    sizes = RecurrentSizes(12, 10, num_layers=num_layers, cell=cell, dropout=0.3)
    options["attention_options"] = attention_options
    return Seq2Seq(source=11, target_vocabulary=13, sizes=sizes, **options).double().eval()


def check_steps(model: Seq2Seq) -> None:
    state, steps = model.start(SOURCE, LENGTH), []
    for step in range(5):
        vectors, state = model.advance(state, READ[:, step : step + 1])
        steps.append(vectors)
    torch.testing.assert_close(torch.cat(steps, 1), model(SOURCE, LENGTH, READ))
    assert state.num_steps == 5


def check_padding(model: Seq2Seq) -> None:
    together = model(SOURCE, LENGTH, READ)
    for row, length in enumerate(LENGTH.tolist()):
        alone = model(SOURCE[row : row + 1, :length], LENGTH[row : row + 1], READ[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("attention", DECODERS)
@pytest.mark.parametrize("feeds_input", [False, True])
def test_steps_padding_and_rows(cell: str, direction: str, attention: str, feeds_input: bool) -> None:
    model = build(cell, direction=direction, attention=attention, feeds_input=feeds_input)
    check_steps(model)
    check_padding(model)
    order = torch.tensor([2, 0, 0])
    _, state = model.advance(model.start(SOURCE, LENGTH), READ[:, :2])
    vectors, _ = model.advance(state.rows(order), READ[order, 2:])
    torch.testing.assert_close(vectors, model(SOURCE, LENGTH, READ)[order, 2:])


@pytest.mark.parametrize("score", SCORE_NAMES)
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("attention", ["bahdanau", "luong"])
def test_any_score_in_any_scope(score: str, scope: str, attention: str) -> None:
    model = build(attention_options=AttentionOptions(score, "softmax", scope, radius=2), attention=attention)
    check_steps(model)
    check_padding(model)
    weight_BLHTS = cross_weights(model, SOURCE, LENGTH, READ)
    assert weight_BLHTS.shape == (3, 1, 1, 5, 7)
    assert (weight_BLHTS[1, ..., 2:] == 0).all()
    if scope == "local_m":
        assert (weight_BLHTS[0, 0, 0, 0, 3:] == 0).all()
        assert (weight_BLHTS[0, 0, 0, 4, :2] == 0).all()
    if scope == "global":
        torch.testing.assert_close(weight_BLHTS.sum(-1), torch.ones(3, 1, 1, 5, dtype=torch.float64))


def test_sparse_normalizers_are_accepted() -> None:
    check_steps(build(attention_options=AttentionOptions("dot", "sparsemax"), attention="luong"))


def test_without_attention_there_are_no_weights() -> None:
    assert cross_weights(build(attention="none"), SOURCE, LENGTH, READ).shape == (3, 0, 0, 5, 7)


def test_reading_from_the_end_is_reversing_the_source() -> None:
    forward, backward = (build(direction=direction, attention="none") for direction in ("forward", "backward"))
    backward.load_state_dict(forward.state_dict())
    turned = reverse_steps(SOURCE[..., None], LENGTH)[..., 0]
    assert turned[1].tolist() == [SOURCE[1, 1], SOURCE[1, 0], *SOURCE[1, 2:]]
    torch.testing.assert_close(backward(SOURCE, LENGTH, READ), forward(turned, LENGTH, READ))


def test_bahdanaus_equations_by_hand() -> None:
    model = build(num_layers=1, attention="bahdanau")
    decoder: Any = model.decoder
    memory, (h,) = model.encoder(model.source(SOURCE) * 10**0.5, LENGTH)
    s = torch.tanh(decoder.bridge(h[0]))
    score = decoder.aligner.score
    gru = decoder.layers.cells
    for step in range(5):
        energy = torch.tanh((s @ score.W.T)[:, None] + memory @ score.U.T + score.b) @ score.v
        energy = energy.masked_fill(torch.arange(7) >= LENGTH[:, None], -torch.inf)
        context = (energy.softmax(-1)[..., None] * memory).sum(1)
        y = model.target(READ[:, step]) * 10**0.5
        i_r, i_z, i_n = F.linear(torch.cat([y, context], -1), gru.weight_ih_l0, gru.bias_ih_l0).chunk(3, -1)
        h_r, h_z, h_n = F.linear(s, gru.weight_hh_l0, gru.bias_hh_l0).chunk(3, -1)
        r, z = torch.sigmoid(i_r + h_r), torch.sigmoid(i_z + h_z)
        s = (1 - z) * torch.tanh(i_n + r * h_n) + z * s
        out = decoder.readout(torch.cat([s, y, context], -1))
        vector = torch.maximum(out[:, 0::2], out[:, 1::2])
        torch.testing.assert_close(vector, model(SOURCE, LENGTH, READ)[:, step])


def test_luongs_input_feeding_by_hand() -> None:
    model = build(
        "lstm", num_layers=1, attention_options=AttentionOptions("general"), attention="luong", direction="forward"
    )
    decoder: Any = model.decoder
    memory, hidden = model.encoder(model.source(SOURCE) * 10**0.5, LENGTH)
    fed = torch.zeros(3, 10, dtype=torch.float64)
    for step in range(5):
        y = model.target(READ[:, step]) * 10**0.5
        output, hidden = decoder.layers.cells(torch.cat([y, fed], -1)[:, None], hidden)
        energy = (output @ decoder.aligner.score.W @ memory.mT)[:, 0]
        energy = energy.masked_fill(torch.arange(7) >= LENGTH[:, None], -torch.inf)
        context = (energy.softmax(-1)[..., None] * memory).sum(1)
        fed = torch.tanh(decoder.combine(torch.cat([context, output[:, 0]], -1)))
        torch.testing.assert_close(fed, model(SOURCE, LENGTH, READ)[:, step])


def plainly(model: Seq2Seq) -> torch.Tensor:
    """The decoders as their equations say them, every step by itself."""
    decoder: Any = model.decoder
    state = model.start(SOURCE, LENGTH)
    hidden, fed, vectors = state.hidden, state.fed_BD[:, None], []
    for step in range(5):
        y = model.target(READ[:, step : step + 1]) * 10**0.5
        if isinstance(decoder, BahdanauDecoder):
            context = decoder.aligner(hidden[0][-1][:, None], state.source, step)
            output, hidden = decoder.layers(torch.cat([y, context], -1), hidden)
            vectors.append(decoder.readout(torch.cat([output, y, context], -1)).unflatten(-1, (-1, 2)).amax(-1))
        else:
            output, hidden = decoder.layers(torch.cat([y, fed], -1), hidden)
            context = decoder.aligner(output, state.source, step)
            fed = torch.tanh(decoder.combine(torch.cat([context, output], -1)))
            vectors.append(fed)
    return torch.cat(vectors, 1)


@pytest.mark.parametrize("score", SCORE_NAMES)
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("attention", ["bahdanau", "luong"])
@pytest.mark.parametrize("cell", CELLS)
def test_gradients_are_those_of_the_plain_spelling(score: str, scope: str, attention: str, cell: str) -> None:
    model = build(cell, attention_options=AttentionOptions(score, "softmax", scope, radius=2), attention=attention)
    leaves = list(model.parameters())
    factor = torch.randn(3, 5, 10, dtype=torch.float64)
    found, expected = (
        torch.autograd.grad((vectors * factor).sum(), leaves, allow_unused=True, materialize_grads=True)
        for vectors in (model(SOURCE, LENGTH, READ), plainly(model))
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("attention", ["bahdanau", "luong"])
def test_a_batch_is_forgotten_with_its_gradients(attention: str) -> None:
    model = build(attention=attention)
    gc.collect()
    gc.disable()
    try:
        state = model.start(SOURCE, LENGTH)
        value = weakref.ref(state.source.value_BSD)
        vectors, state = model.advance(state, READ)
        vectors.sum().backward()
        del vectors, state
        assert value() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("attention", DECODERS)
@pytest.mark.parametrize("scope", SCOPES)
def test_the_host_waits_for_nothing(cell: str, attention: str, scope: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of an accelerator, on a device that has shapes and no numbers: to ask for one is an error there."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)  # it doesn't know this device
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
    model = build(cell, attention=attention, attention_options=AttentionOptions(scope=scope)).float().train().to("meta")
    vectors = model(*(tensor.to("meta") for tensor in (SOURCE, LENGTH, READ)))
    vectors.sum().backward()
    assert all(parameter.grad is not None for parameter in model.decoder.parameters())


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("attention", DECODERS)
def test_bfloat16_tracks_float32(cell: str, attention: str) -> None:
    sizes, found = RecurrentSizes(48, 40, num_layers=2, cell=cell), []  # large enough that roundings average out
    model = Seq2Seq(
        source=31, target_vocabulary=33, sizes=sizes, attention_options=ADDITIVE, attention=attention
    ).eval()
    source, length, read = torch.randint(0, 31, (16, 12)), 2 + torch.arange(16) % 11, torch.randint(0, 33, (16, 9))
    for is_narrow in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=is_narrow):
            vectors = model(source, length, read)
        gradients = torch.autograd.grad(vectors.float().square().sum(), list(model.encoder.parameters()))
        assert all(gradient.dtype == torch.float32 for gradient in gradients)
        found.append((vectors.float(), torch.cat([gradient.flatten() for gradient in gradients])))
    for exact, narrow in zip(*found, strict=True):
        assert (exact - narrow).norm() < 0.03 * exact.norm()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cell": "mlp"}, "cell: 'mlp' given; allowed: rnn, gru, lstm"),
        ({"direction": "up"}, "direction: 'up' given; allowed: forward, backward, both"),
        ({"attention": "no"}, "attention: 'no' given; allowed: none, bahdanau, luong"),
        (
            {"attention_options": AttentionOptions(scope="near")},
            "scope: 'near' given; allowed: global, local_m, local_p",
        ),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**options)


def test_tied_embeddings() -> None:
    sizes = RecurrentSizes(12, 10)
    three = Seq2Seq(source=11, target_vocabulary=11, sizes=sizes, share_embeddings=True)
    assert three.source is three.target is three.output
    untied = Seq2Seq(source=11, target_vocabulary=11, sizes=sizes, share_output=False)
    assert untied.output is not untied.target
