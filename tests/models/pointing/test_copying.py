"""Copying: the mixture of words and copies as its equation says, for both families, and its loss."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from saccade.data.batches import PairBatch
from saccade.data.text.tokenizer import END, START, UNKNOWN
from saccade.models.pointing.copying import CopyingModel, CopyInputs, mix
from saccade.models.seq2seq import RecurrentSizes, Seq2Seq
from saccade.models.transformer import BlockSizes, Transformer
from saccade.tasks.translate.copying import loss
from saccade.tasks.translate.copying.loss import copy_loss

V = 11
SOURCE_BS = torch.tensor([[5, V, 6, V + 1, V, END], [7, V, END, 0, 0, 0]])
LENGTH_B = torch.tensor([6, 3])
READ_BT = torch.tensor([[START, V, 6, V + 1], [START, 7, 8, 0]])
WRITE_BT = torch.tensor([[V, 6, V + 1, END], [7, 8, END, 0]])
TARGET_LENGTH_B = torch.tensor([4, 3])
BATCH = PairBatch(SOURCE_BS, LENGTH_B, READ_BT, WRITE_BT, TARGET_LENGTH_B)


def make(kind: str, *, covers: bool = False) -> CopyingModel:
    torch.manual_seed(3)
    common: dict[str, Any] = {"source": V, "target_vocabulary": V, "share_embeddings": True}
    if kind == "transformer":
        below: nn.Module = Transformer(
            sizes=BlockSizes(14, 2, 22), num_encoder_layers=1, num_decoder_layers=2, output_bias=True, **common
        )
        width, source_width, score = 14, 14, "scaled_dot"
    else:
        below = Seq2Seq(sizes=RecurrentSizes(10, 14), attention=kind, **common)
        width, source_width, score = 14, 10, "additive"
    model = CopyingModel(below, width=width, source_width=source_width, score=score, covers=covers)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    if covers:
        nn.init.constant_(model.get_parameter("coverage"), -1.5)
    return model.double().eval()


KINDS = ("transformer", "bahdanau", "luong", "none")


def logits(model: CopyingModel, found: CopyInputs) -> Tensor:
    below: Any = model.below
    return below.logits(found.vectors_BTD)


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_the_output_is_the_mixture_of_words_and_copies(kind: str) -> None:
    model = make(kind)
    found = model(SOURCE_BS, LENGTH_B, READ_BT)
    p_BTV = mix(logits(model, found), found, SOURCE_BS).exp()
    assert p_BTV.shape == (2, 4, V + 6)
    word_BTV, gate_BT = logits(model, found).softmax(-1), found.gate_BT.sigmoid()
    for row, step, index in ((0, 0, V), (0, 1, 6), (0, 2, V + 1), (1, 0, 7), (1, 1, 8), (1, 2, END)):
        copied = sum(
            float(found.weight_BTS[row, step, place]) for place in range(6) if int(SOURCE_BS[row, place]) == index
        )
        word = float(word_BTV[row, step, index]) if index < V else 0.0
        gate = float(gate_BT[row, step])
        assert float(p_BTV[row, step, index]) == pytest.approx(gate * word + (1 - gate) * copied, rel=1e-9)
    torch.testing.assert_close(p_BTV.sum(-1), torch.ones(2, 4, dtype=torch.float64))
    assert float(p_BTV[1, :, V + 1 :].max()) == 0  # the second source has one unknown word only
    assert float(found.weight_BTS[1, :, 3:].abs().max()) == 0  # padding is never pointed at


@pytest.mark.parametrize("covers", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_step_by_step_is_the_same_as_at_once(kind: str, covers: bool) -> None:
    model = make(kind, covers=covers)
    whole_BTV, _ = model.advance(model.start(SOURCE_BS, LENGTH_B), READ_BT)
    state = model.start(SOURCE_BS, LENGTH_B).rows(torch.tensor([1, 0]))
    for step in range(READ_BT.shape[1]):
        step_B1V, state = model.advance(state, READ_BT.flip(0)[:, step : step + 1])
        state = state.rows(torch.tensor([0, 1]))
        torch.testing.assert_close(step_B1V[:, 0].flip(0), whole_BTV[:, step])


@pytest.mark.parametrize("covers", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_padding_and_batch_mates_change_nothing(kind: str, covers: bool) -> None:
    model = make(kind, covers=covers)
    both_BTV, _ = model.advance(model.start(SOURCE_BS, LENGTH_B), READ_BT)
    alone_BTV, _ = model.advance(model.start(SOURCE_BS[1:, :3], LENGTH_B[1:]), READ_BT[1:])
    torch.testing.assert_close(alone_BTV[0, :3], both_BTV[1, :3, : V + 3])


@pytest.mark.parametrize("covers", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_that_of_the_mixture(kind: str, covers: bool) -> None:
    model = make(kind, covers=covers)
    found = model(SOURCE_BS, LENGTH_B, READ_BT)
    step_BTV = mix(logits(model, found), found, SOURCE_BS)
    real_BT = torch.tensor([[True] * 4, [True] * 3 + [False]])
    at_target = step_BTV.gather(-1, WRITE_BT[..., None])[..., 0][real_BT]
    mean = logits(model, found).log_softmax(-1).mean(-1)[real_BT]
    found_loss, likelihood = copy_loss(model, BATCH, smoothing=0.1)
    torch.testing.assert_close(likelihood, -at_target.sum().detach())
    torch.testing.assert_close(found_loss, -0.9 * at_target.sum() - 0.1 * mean.sum())
    found_loss.backward()
    own = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    found = model(SOURCE_BS, LENGTH_B, READ_BT)
    step_BTV = mix(logits(model, found), found, SOURCE_BS)
    mean = logits(model, found).log_softmax(-1).mean(-1)[real_BT]
    (-0.9 * step_BTV.gather(-1, WRITE_BT[..., None])[..., 0][real_BT].sum() - 0.1 * mean.sum()).backward()
    for parameter, grad in zip(model.parameters(), own, strict=True):
        torch.testing.assert_close(parameter.grad, grad)


@pytest.mark.parametrize("kind", KINDS)
def test_more_padding_and_rows_without_targets_change_no_loss(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, wider = make(kind, covers=True), BATCH.pad_to(5, 9, 7)
    wanted = copy_loss(model, BATCH, smoothing=0.1, coverage=0.7)
    torch.testing.assert_close(copy_loss(model, wider, smoothing=0.1, coverage=0.7), wanted)
    monkeypatch.setattr(loss, "is_fused", lambda _: True)  # as on a device, where padding is computed too
    torch.testing.assert_close(copy_loss(model, wider, smoothing=0.1, coverage=0.7), wanted)


def test_an_unknown_word_that_the_source_does_not_have_is_unk() -> None:
    model = make("transformer")
    absent = BATCH._replace(write_BT=torch.tensor([[V, 6, V + 1, END], [V + 1, 8, END, 0]]))
    plain = BATCH._replace(write_BT=torch.tensor([[V, 6, V + 1, END], [UNKNOWN, 8, END, 0]]))
    assert copy_loss(model, absent)[0] == copy_loss(model, plain)[0]


def test_weights_of_zero_give_numbers() -> None:
    model = make("transformer")
    with torch.no_grad():  # so sure of another place that its weight is 0 in floating point
        model.pointer.query.weight.mul_(1e6)
    found_loss, _ = copy_loss(model, BATCH, smoothing=0.1, coverage=1.0)
    found_loss.backward()
    assert bool(torch.isfinite(found_loss))
    assert all(bool(torch.isfinite(one.grad).all()) for one in model.parameters() if one.grad is not None)
    found = model(SOURCE_BS, LENGTH_B, READ_BT)
    assert bool((found.weight_BTS[0] == 0).any())
    assert not bool(mix(logits(model, found), found, SOURCE_BS).isnan().any())


def test_the_loss_of_coverage_is_what_is_pointed_at_again() -> None:
    weight_BTS = torch.tensor([[[0.5, 0.5, 0.0], [0.25, 0.0, 0.75], [0.9, 0.1, 0.0]]])

    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.below = nn.Module()
            self.below.output = nn.Embedding(V, 4)

        def forward(self, *_: Tensor) -> CopyInputs:
            return CopyInputs(torch.ones(1, 3, 4), torch.zeros(1, 3), weight_BTS)

    batch = PairBatch(
        torch.tensor([[5, 6, END]]), torch.tensor([3]), READ_BT[:1, :3], torch.tensor([[5, 6, END]]), torch.tensor([3])
    )
    network = Fixed()
    without, with_it = (copy_loss(network, batch, coverage=share)[0] for share in (0.0, 2.0))
    # second step: min(.25, .5); third: min(.9, .75) + min(.1, .5)
    assert (with_it - without).item() == pytest.approx(2 * (0.25 + 0.75 + 0.1), rel=1e-5)


def test_coverage_turns_the_pointer_away_from_where_it_was() -> None:
    model = make("transformer", covers=True)
    with torch.no_grad():
        model.get_parameter("coverage").zero_()
        before = model(SOURCE_BS, LENGTH_B, READ_BT).weight_BTS
        model.get_parameter("coverage").fill_(-4.0)
        after = model(SOURCE_BS, LENGTH_B, READ_BT).weight_BTS
    torch.testing.assert_close(before[:, 0], after[:, 0])
    covered_BTS = after.cumsum(1) - after
    assert float((after * covered_BTS)[:, 1:].sum()) < float((before * covered_BTS)[:, 1:].sum())
