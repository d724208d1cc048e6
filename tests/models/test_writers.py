"""Language models: reading step by step is reading at once, nobody sees the future, and windows carry the state on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from saccade.data.stream import FollowingWindows, TextWindow
from saccade.data.text.tokenizer import END, START
from saccade.decoding import BeamOptions, SamplingOptions, search
from saccade.layers.recurrent.lookback import NgramStates, StateAttention
from saccade.layers.recurrent.lstmn import Lstmn
from saccade.models.continued import ContinuedWriter
from saccade.models.recurrent_writer import PlainCells, RecurrentWriter, WriterDropouts
from saccade.models.transformer import BlockSizes
from saccade.models.transformer_writer import TransformerWriter

VOCABULARY, CONTEXT = 19, 23
RNNS = ["rnn", "gru", "lstm", "states", "key_value", "key_value_predict", "ngram", "lstmn"]
Writer = TransformerWriter | RecurrentWriter


def transformer(**options: Any) -> TransformerWriter:
    torch.manual_seed(5)
    sizes = BlockSizes(10, 1, 14, **options)
    return TransformerWriter(vocabulary=VOCABULARY, sizes=sizes, num_layers=2, context=CONTEXT).eval()


def recurrent(kind: str, **options: Any) -> RecurrentWriter:
    torch.manual_seed(5)
    cells: Any = PlainCells(7, 12, cell=kind if kind in ("rnn", "gru") else "lstm", num_layers=2, dropout=0.0)
    looking: Any = None
    if kind == "lstmn":
        cells = Lstmn(7, 12, num_layers=2, span=3)
    elif kind == "ngram":
        looking = NgramStates(12, order=4)
    elif kind not in ("rnn", "gru", "lstm"):
        parts = {"states": 1, "key_value": 2, "key_value_predict": 3}[kind]
        looking = StateAttention(12, num_parts=parts, span=3, **options)
    model = RecurrentWriter(vocabulary=VOCABULARY, embedding_width=7, cells=cells, lookback=looking)
    torch.nn.init.normal_(model.embedding.weight)
    return model.eval()


def every_writer() -> list[Any]:
    kinds = [{"positions": name} for name in ("sinusoidal", "learned", "rotary", "relative")]
    others: list[dict[str, Any]] = [{"window": 3}, {"norm": "post"}, {"score": "additive", "normalizer": "entmax15"}]
    found = [pytest.param(lambda one=one: transformer(**one), id=str(one)) for one in [*kinds, *others]]
    return [*found, *(pytest.param(lambda one=one: recurrent(one), id=one) for one in RNNS)]


def ids(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(4, VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


def window(read_BT: torch.Tensor) -> TextWindow:
    return TextWindow(read_BT, read_BT, torch.tensor(0), torch.tensor(True))


@torch.inference_mode()
@pytest.mark.parametrize("make", every_writer())
def test_step_by_step_is_all_at_once_and_the_future_is_not_seen(make: Any) -> None:
    model, read_BT = make(), ids(3, 17)
    whole_BTD = model(window(read_BT))
    state, found = model.begin(3), []
    for part in read_BT.split([1, 5, 1, 1, 9], 1):
        vectors, state = model.advance(state, part)
        found.append(vectors)
    torch.testing.assert_close(torch.cat(found, 1), whole_BTD, atol=2e-5, rtol=1e-4)
    other_BT = read_BT.clone()
    other_BT[:, 11] = (other_BT[:, 11] - 3) % 15 + 4
    changed_BTD = model(window(other_BT))
    torch.testing.assert_close(changed_BTD[:, :11], whole_BTD[:, :11], atol=1e-6, rtol=1e-5)
    assert (changed_BTD[:, 11:] - whole_BTD[:, 11:]).abs().amax() > 1e-3


@torch.inference_mode()
@pytest.mark.parametrize("make", every_writer())
def test_rows_of_a_state_are_those_of_a_beam(make: Any) -> None:
    model, read_BT, index = make(), ids(3, 5), torch.tensor([2, 0, 0, 1])
    state = model.advance(model.begin(3), read_BT)[1].rows(index)
    vectors, _ = model.advance(state, ids(4, 1, seed=2))
    alone, _ = model.advance(model.advance(model.begin(4), read_BT[index])[1], ids(4, 1, seed=2))
    torch.testing.assert_close(vectors, alone, atol=2e-6, rtol=1e-5)


@torch.inference_mode()
def test_a_transformer_whose_context_is_full_reads_its_later_half_again() -> None:
    model, read_1T = transformer(), ids(1, 40)
    state = model.begin(1)
    for step in range(40):
        vectors, state = model.advance(state, read_1T[:, step : step + 1])
    # 23 steps, then 11 read again and 12 more are 23, then 11 and 5: the last context begins at place 24
    wanted = model(window(read_1T[:, 24:]))[:, -1:]
    torch.testing.assert_close(vectors, wanted, atol=2e-5, rtol=1e-4)
    assert state.read_BS.tolist() == read_1T[:, 24:].tolist()


@pytest.mark.parametrize("kind", RNNS)
def test_windows_that_follow_each_other_are_one_long_text(kind: str) -> None:
    stream = np.where(np.arange(101) % 9 == 8, END, np.arange(101) % 15 + 4).astype(np.int32)
    plan = FollowingWindows(stream, steps=7, batch_size=3, seed=2)
    model = recurrent(kind)
    alone = recurrent(kind)
    model.carry(3)
    batches = [plan.load(one) for one in plan.epoch(0)]
    with torch.inference_mode():
        model(batches[1])  # of another epoch, left where the first window reads: it must be forgotten
        for batch in batches[:2]:
            model(batch)
        again = [model(batches[2]) for _ in range(3)]  # as where a graph is recorded: nothing moves
        torch.testing.assert_close(again[2], again[0], atol=0, rtol=0)
        found = torch.cat([again[0], *(model(batch) for batch in batches[3:])], 1)
        wanted = alone(window(torch.cat([batch.read_BT for batch in batches], 1)))[:, 14:]
    torch.testing.assert_close(found, wanted, atol=2e-5, rtol=1e-4)
    names = {name for name, _ in model.named_buffers()}
    assert names <= set(model.state_dict())  # a checkpoint has them
    assert names


def test_a_narrow_tied_output_reads_a_projection_of_the_state() -> None:
    cells = PlainCells(7, 12, cell="lstm", num_layers=1, dropout=0.0)
    model = RecurrentWriter(vocabulary=VOCABULARY, embedding_width=7, cells=cells, is_tied=True).eval()
    h_BTD, _ = cells(model.embedding(ids(2, 5)), cells.begin(2, torch.device("cpu")))
    assert model.projection is not None
    logits_BTV = h_BTD @ model.projection.weight.mT @ model.embedding.weight.mT
    torch.testing.assert_close(model.logits(model(window(ids(2, 5)))), logits_BTV)


def test_dropped_words_have_no_embedding_anywhere_in_a_step() -> None:
    model = recurrent("lstm")
    model.dropouts = WriterDropouts(vocabulary=0.4)
    read_BT = torch.arange(VOCABULARY).repeat(2, 1)
    factor_BTD = model.train()._embed(read_BT) / model.embedding(read_BT)
    factor_BV = factor_BTD[..., 0].detach()
    torch.testing.assert_close(factor_BTD.detach(), factor_BV[..., None].expand_as(factor_BTD))
    torch.testing.assert_close(factor_BV[0], factor_BV[1])  # the same words in every row
    assert set(factor_BV[0].mul(0.6).round(decimals=3).tolist()) == {0.0, 1.0}
    torch.testing.assert_close(model.eval()._embed(read_BT), model.embedding(read_BT))


def test_what_is_not_finite_is_not_carried_on() -> None:
    model = recurrent("gru")
    model.carry(2)
    batch = window(ids(2, 5))
    with torch.no_grad():
        weight = model.embedding.weight.clone()
        model.embedding.weight.fill_(torch.nan)
        model(batch)
        model.embedding.weight.copy_(weight)
        later = model(batch._replace(place=torch.tensor(1), is_first=torch.tensor(False)))
    assert later.isfinite().all()


@pytest.mark.parametrize("make", every_writer())
def test_a_text_goes_on_from_its_beginning(make: Any) -> None:
    """Greedy search finds what arg max over whole texts says, step by step."""
    model, source_BS = make(), torch.cat([torch.full((2, 1), START), ids(2, 6)], 1)
    options = BeamOptions(max_length=9, max_length_factor=99.0, max_rounds=0)
    found = search(ContinuedWriter(model), source_BS, torch.tensor([7, 7]), options)
    for row, (best,) in enumerate(found):
        text = source_BS[row].tolist()
        for index, step in zip(best.ids, best.log_probabilities, strict=False):
            with torch.inference_mode():
                vectors, _ = model.advance(model.begin(1), torch.tensor([text]))
                log_p = model.logits(vectors[0, -1]).log_softmax(-1)
            log_p_allowed = log_p.clone()
            log_p_allowed[[0, 1]] = -torch.inf
            assert index == int(log_p_allowed.argmax())
            assert step == pytest.approx(float(log_p[index]), abs=1e-3)
            text.append(index)


def test_samples_depend_on_the_beginning_and_the_seed_alone() -> None:
    model, source_BS = recurrent("lstm"), torch.cat([torch.full((3, 1), START), ids(3, 6)], 1)
    options = SamplingOptions(max_length=9, max_length_factor=99.0, seed=4)
    together = search(ContinuedWriter(model), source_BS, torch.tensor([7, 7, 7]), options)
    (alone,) = search(ContinuedWriter(model), source_BS[1:2], torch.tensor([7]), options)
    assert together[1][0].ids == alone[0].ids
    assert len({tuple(best[0].ids) for best in together}) == 3


def test_widths_that_do_not_fit_are_refused() -> None:
    cells = PlainCells(7, 12, cell="gru", num_layers=1, dropout=0.0)
    with pytest.raises(ValueError, match="embedding_width: 13 given; tied to the output it must be at most 12"):
        RecurrentWriter(vocabulary=VOCABULARY, embedding_width=13, cells=cells, is_tied=True)
    with pytest.raises(ValueError, match="width: 13 given; it must be a multiple of 3"):
        StateAttention(13, num_parts=3, span=2)
    with pytest.raises(ValueError, match="width: 13 given; it must be a multiple of 3"):
        NgramStates(13, order=4)
