"""A decoder's step: the kernel, its plain spelling, and attention over the whole sequence agree."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from saccade import attend, masks
from saccade.attention import slots
from saccade.attention.kernels.decode.step import attend_step
from saccade.decoding import BeamOptions, DecodingEngine, beam_search
from saccade.models import transformer
from slot_cases import assert_same, small_model, work_of


@pytest.mark.parametrize("backend", ["plain", "triton"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_steps_equal_the_whole_sequence(backend: str, dtype: torch.dtype) -> None:
    rows, capacity, groups, repeats, width = 3, 37, 2, 2, 5
    key, value = (torch.randn(rows, capacity, groups, width).to(dtype) for _ in range(2))
    query = torch.randn(rows, capacity, groups * repeats, width).to(dtype)
    caches = torch.full_like(key, torch.nan), torch.full_like(key, torch.nan)
    for step in range(capacity):
        new, length = (key[:, step], value[:, step]), torch.full((rows,), step, dtype=torch.int32)
        if step not in (0, 1, 17, 36):
            caches[0][:, step], caches[1][:, step] = new
            continue
        found = attend_step(query[:, step], *caches, length, scale=width**-0.5, new=new, backend=backend)
        past = [x[:, : step + 1].double().transpose(1, 2).repeat_interleave(repeats, 1) for x in (key, value)]
        exact = attend(query[:, step, :, None].double(), *past)[:, :, 0]
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), exact, atol=8 * torch.finfo(dtype).eps, rtol=0.02)
    assert caches[0].equal(key)
    assert caches[1].equal(value)


@pytest.mark.parametrize("new", [True, False])
def test_a_beam_is_reordered_by_index(new: bool) -> None:
    rows, capacity, heads, width = 5, 19, 3, 16
    length = torch.tensor([0, 18, 18, 7, 7], dtype=torch.int32)  # an empty row and two beams of two
    ancestor = torch.tensor([0, 1, 1, 3, 3])[:, None] + torch.randint(2, (rows, capacity))
    query, key, value = random_step(rows, capacity, heads, width)
    steps = (torch.randn(rows, heads, width), torch.randn(rows, heads, width)) if new else None
    outputs, caches = [], []
    for backend in ("plain", "triton"):
        own = key.clone(), value.clone()
        outputs.append(attend_step(query, *own, length, scale=0.3, ancestor=ancestor, new=steps, backend=backend))
        caches.append(own)
    torch.testing.assert_close(outputs[1], outputs[0])
    assert all(a.equal(b) for a, b in zip(*caches, strict=True))
    if not new:
        assert (outputs[1][0] == 0).all()


@pytest.mark.parametrize("backend", ["plain", "triton"])
def test_hypotheses_read_the_source_of_their_sentence(backend: str) -> None:
    sentences, capacity, heads, width = 2, 40, 2, 8
    query, key, value = random_step(sentences, capacity, heads, width)
    query, sentence = query.repeat_interleave(3, 0), torch.arange(2).repeat_interleave(3)
    length = torch.tensor([33, 5])
    found = attend_step(query, key, value, length[sentence], scale=width**-0.5, ancestor=sentence, backend=backend)
    heads_first = (x.transpose(1, 2)[sentence] for x in (key, value))
    expected = attend(query[:, :, None], *heads_first, mask=masks.padding(length[sentence]))[:, :, 0]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("backend", ["plain", "triton"])
def test_nan_in_a_query_stays_nan_and_an_empty_row_zeros(backend: str) -> None:
    query, key, value = random_step(3, 7, 2, 8)
    query[1:] = torch.nan
    found = attend_step(query, key, value, torch.tensor([5, 5, 0]), scale=0.3, backend=backend)
    assert found[0].isfinite().all()
    assert found[1].isnan().all()
    assert (found[2] == 0).all()


@pytest.mark.parametrize("backend", ["plain", "triton"])
def test_a_full_row_is_not_written_to(backend: str) -> None:
    query, key, value = random_step(2, 4, 1, 8)
    before, length = key.clone(), torch.tensor([4, 2])
    attend_step(query, key, value, length, scale=1.0, new=(query, query), backend=backend)
    assert key[0].equal(before[0])
    assert key[1, 2].equal(query[1])


def test_an_unknown_backend_is_named() -> None:
    query, key, value = random_step(1, 2, 1, 8)
    with pytest.raises(ValueError, match="backend: 'cuda' given; allowed: auto, triton, plain"):
        attend_step(query, key, value, torch.tensor([1]), scale=1.0, backend="cuda")


def random_step(rows: int, capacity: int, heads: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return (
        torch.randn(rows, heads, width),
        torch.randn(rows, capacity, heads, width),
        torch.randn(rows, capacity, heads, width),
    )


@pytest.mark.parametrize("width", [1, 2])
def test_sentences_in_slots_are_written_with_it(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(6)
    work, options = work_of([torch.tensor([4, 5, 6]), torch.tensor([9, 7])]), BeamOptions(width=width, max_length=5)
    model = small_model()
    expected = beam_search(model, *work.load([0, 1]), options)
    monkeypatch.setattr(transformer, "can_step", lambda *_: True)
    monkeypatch.setattr(slots, "attend_step", lambda *given, **how: attend_step(*given, **how, backend="triton"))
    assert_same(DecodingEngine(model).generate(work, options), expected)
