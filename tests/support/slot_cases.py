"""Small models and sentences to be written in slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from saccade.data.text.tokenizer import END
from saccade.decoding import BeamOptions, DecodingWork, Hypothesis
from saccade.decoding.constraints import Constraints
from saccade.decoding.continuous import beam_state
from saccade.decoding.continuous.beam_state import BeamState
from saccade.decoding.continuous.greedy_state import StateSize, TopTokens
from saccade.models.transformer import BlockSizes, Transformer


def small_model(**sizes: Any) -> Transformer:
    model = Transformer(
        source=11,
        target_vocabulary=11,
        sizes=BlockSizes(16, 2, 32, **sizes),
        num_encoder_layers=1,
        num_decoder_layers=2,
        share_embeddings=True,
    ).eval()
    nn.init.normal_(model.target.weight, std=0.7)
    for name, parameter in model.named_parameters():
        if "feed_forward" in name or "bias.table" in name:
            nn.init.normal_(parameter, std=0.5)
    return model


def random_sources(count: int, longest: int = 20) -> list[Tensor]:
    """The same after the same `torch.manual_seed`."""
    lengths = torch.randint(1, longest + 1, (count,)).tolist()
    return [torch.randint(4, 11, (length,)) for length in lengths]


def work_of(sources: list[Tensor], prefixes: Sequence[Sequence[int]] = ()) -> DecodingWork:
    def load(numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        rows = [sources[number] for number in numbers]
        return pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])

    return DecodingWork(load, [len(source) for source in sources], prefixes)


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert [(one.ids, one.cut) for one in mine] == [(one.ids, one.cut) for one in theirs]
        for one, other in zip(mine, theirs, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-4)
            assert one.log_probabilities == pytest.approx(other.log_probabilities, abs=1e-4)


BEAMS = [  # width, how many are wanted, ids, rounds of a loop
    (1, 1, 9, 2),
    (2, 2, 3, 2),
    (3, 2, 9, 0),
    (4, 1, 30, 2),
    (5, 4, 7, 2),
    (8, 8, 40, 2),
]


def assert_beams_updated(
    update: Callable[[BeamState, TopTokens], Tensor],
    options: BeamOptions,
    num_ids: int,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Steps of sentences that end, loop, come to their limits or aren't there: bit by bit what tensors do."""
    monkeypatch.setattr(Tensor, "topk", _stable_topk)
    monkeypatch.setattr(beam_state, "HAS_TRITON", False)
    width, rounds = options.width, options.max_rounds
    size, each = StateSize(5, width, 42, 8), min(2 * width, num_ids)
    mine, theirs = (BeamState(options, size, device) for _ in range(2))
    limits, guarded = torch.tensor([40, 40, 5, 4], device=device), torch.tensor([1, 0, 1, 1], device=device) > 0
    for first, num_steps in ((0, 6), (2, 5)):
        for state in (mine, theirs):
            index_E, prefix_E0 = torch.arange(first, 4, device=device), limits.new_zeros(4 - first, 0)
            state.enter(index_E, Constraints(options, prefix_E0, limits[first:], guarded[first:]))
            if not first:  # two that have gone round for a while
                state.place_B[:2], state.loops.run_BNK[:2, :, 1::2] = 28, 26
                state.loops.recent_BNK[:2] = torch.tensor([5, 4], device=device).repeat(8)
                state.slots.renew()
        for step in range(num_steps):
            found = _likely(5 * width, each, num_ids)
            token_XM, log_p_XM = found.token_RM[: 2 * width], found.log_p_RM[: 2 * width]  # they go on so
            token_XM[:, 1:][token_XM[:, 1:] == END] = 3
            token_XM[:, 0], log_p_XM[:, 0] = 4 + step % 2, -0.01
            found = TopTokens(*(part.to(device) for part in found))
            assert update(mine, found).equal(theirs.update(found))
            _assert_same_states(mine, theirs)
    assert mine.worth_BM.isfinite().any()
    assert bool(mine.num_cut_B[0]) == bool(rounds)
    assert mine.live_B[1]
    assert not mine.live_B[2:].all()


def _stable_topk(x: Tensor, count: int, dim: int) -> Any:
    """Of equal ones the first: torch doesn't say which."""
    found = x.sort(dim=dim, descending=True, stable=True)
    return tuple(part.narrow(dim, 0, count).contiguous() for part in found)


def _likely(num_rows: int, each: int, num_ids: int) -> TopTokens:
    """What a model might say: some ids are forbidden, some are as likely as others."""
    log_p = torch.randn(num_rows, num_ids).mul(2).round(decimals=1).log_softmax(1)
    log_p[torch.rand_like(log_p) < 0.2] = -torch.inf
    log_p[:, END] += 1.0
    log_p[torch.rand(num_rows) < 0.05] = -torch.inf
    return TopTokens(*_stable_topk(log_p, each, 1))


def _assert_same_states(mine: BeamState, theirs: BeamState) -> None:
    """Behind the step that is read next, rows are anything; so is the place of those that aren't cut."""
    seen_B1C = torch.arange(mine.size.steps, device=mine.device) <= mine.place_B[:, None, None]
    for given, expected in zip(mine._tensors(), theirs._tensors(), strict=True):
        if given is mine.row_BNC:
            given, expected = given.where(seen_B1C, 0), expected.where(seen_B1C, 0)
        elif given is mine.cut_BX2:
            given, expected = given[:, :-1], expected[:, :-1]
        torch.testing.assert_close(given, expected, rtol=0, atol=0, equal_nan=True)
    assert mine.slots.place_R.equal(theirs.slots.place_R)
    seen_RC = seen_B1C.expand_as(mine.row_BNC).flatten(0, 1)
    holders = [state.slots.holder_RC for state in (mine, theirs)]
    assert holders[0] is not None
    assert holders[1] is not None
    assert holders[0].where(seen_RC, 0).equal(holders[1].where(seen_RC, 0))
