"""What is written in slots is what the plain decoders write, sentence by sentence."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from saccade.attention import MultiHeadAttention, slots
from saccade.attention.kernels.decode.step import attend_step
from saccade.data.text.tokenizer import END
from saccade.decoding import BeamOptions, DecodingEngine, Hypothesis, SamplingOptions, beam_search
from saccade.decoding.continuous import sources as reader
from saccade.decoding.continuous import step
from saccade.decoding.continuous.greedy_state import StateSize
from saccade.decoding.continuous.scheduler import SETTINGS, SchedulerSettings, SlotFactory, generate
from saccade.models import transformer
from saccade.models.transformer import BlockSizes, Transformer
from slot_cases import assert_same, random_sources, small_model, work_of

CPU = torch.device("cpu")
LAGGING = SETTINGS["cuda"]._replace(first_steps=4)


class Endless(nn.Module):
    """A model that never ends, or seldom, with `less` for </s>."""

    max_places = None

    def __init__(self, model: Transformer, less: float = torch.inf) -> None:
        super().__init__()
        self.start, self.advance, self.slots = model.start, model.advance, model.slots
        self._logits, self._less = model.logits, less

    def logits(self, vectors: Tensor) -> Tensor:
        logits = self._logits(vectors)
        logits[..., END] -= self._less
        return logits


def compare(
    model: Any,
    sources: list[Tensor],
    options: BeamOptions,
    prefixes: Sequence[Sequence[int]] = (),
    pace: SchedulerSettings = SETTINGS["cpu"],
    made: Any = None,
) -> list[list[Hypothesis]]:
    work = work_of(sources, prefixes)
    found = generate(SlotFactory(model, options, CPU, pace, made), work)
    assert_same(found, beam_search(model, *work.load(range(len(sources))), options, prefixes))
    return found


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "relative"])
def test_readings_and_entries_that_are_replayed(positions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a graph would be recorded, the call is made again and its results are put where the first were."""
    replays = []

    def recorded(call: Callable[[], Any]) -> tuple[Any, Any]:
        first = call()

        def replay() -> None:
            replays.append(1)
            for mine, theirs in zip(pytree.tree_leaves(first), pytree.tree_leaves(call()), strict=True):
                if isinstance(mine, Tensor):
                    mine.copy_(theirs)

        return SimpleNamespace(replay=replay), first

    monkeypatch.setattr(reader, "record", recorded)
    monkeypatch.setattr(reader, "warm_up", lambda call, device: call())
    monkeypatch.setattr(step, "record", recorded)
    torch.manual_seed(4)
    model, options = small_model(positions=positions), BeamOptions(width=2)
    made: dict[StateSize, step.SlotBatch] = {}
    factory = SlotFactory(model, options, CPU, LAGGING._replace(rows=6), made, reader.SourceEncoder(model, CPU))
    for _ in range(4):
        work = work_of(random_sources(11))
        assert_same(generate(factory, work), beam_search(model, *work.load(range(11)), options))
    assert len(replays) > 2
    assert any(
        isinstance(entry, step._EntryGraph) for one in made.values() for entry in one._entry_graphs._graphs.values()
    )


@pytest.mark.parametrize("fused", [True, False])
def test_a_copy_has_the_weights_that_an_optimizer_left(fused: bool) -> None:
    model = small_model()
    writer = DecodingEngine(model)
    writer._update_copy()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=fused)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    for mine, theirs in zip(writer._update_copy().parameters(), model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("seed", range(24))
def test_anything_goes(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    kinds = ("sinusoidal", "learned", "rotary", "relative")
    model = small_model(
        positions=kinds[seed % 4],
        norm=random.choice(["pre", "post"]),
        window=random.choice([None, None, 3]),
        score=random.choice(["scaled_dot", "cosine", "general", "additive", "mean"]),
        normalizer=random.choice(["softmax", "softmax", "sparsemax"]),
    )
    sources = random_sources(random.randint(1, 9))
    width = random.randint(1, 5)
    options = BeamOptions(
        width=width,
        num_best=random.randint(1, width),
        length_penalty=random.choice([0, 0.6, 1.5]),
        min_length=random.choice([0, 0, 3]),
        max_length=random.choice([4096, 50, 7]),
        max_length_factor=random.choice([2.0, 5.0]),
        no_repeat_ngram=random.choice([0, 0, 1, 2, 3]),
        max_rounds=random.choice([8, 2, 0]),
        writes_unknown=random.choice([True, False]),
    )
    prefix_of = random.choice([0, 4])
    prefixes = [torch.randint(3, 11, (random.randint(0, prefix_of),)).tolist() for _ in sources]
    pace = random.choice([SETTINGS["cpu"], LAGGING])
    compare(model, sources, options, prefixes, pace._replace(rows=random.choice([width, 2 * width, 3 * width, 64])))


@pytest.mark.parametrize("width", [1, 3])
def test_many_sentences_through_few_slots(width: int) -> None:
    torch.manual_seed(3)
    random.seed(3)
    made: Any = {}
    model, options = small_model(), BeamOptions(width=width, num_best=width)
    for _ in range(2):  # the second time the stages are there
        compare(model, random_sources(30), options, pace=LAGGING._replace(rows=4 * width), made=made)
    assert all(size.batch <= 4 for size in made)
    assert len({size.steps for size in made}) > 1  # there was more to write than room at first


@pytest.mark.parametrize("width", [1, 4])
def test_loops_are_cut_alike(width: int) -> None:
    torch.manual_seed(1)
    model = Endless(small_model())
    options = BeamOptions(width=width, num_best=min(2, width), max_length=700, max_length_factor=100.0)
    looping = torch.tensor([4, 5] * 12)  # a source that loops may be answered in kind, for a while
    found = compare(model, [torch.tensor([4, 6, 8]), torch.tensor([9, 5]), looping], options)
    assert all(not one.ended and len(one.ids) < 700 for best in found for one in best)


@pytest.mark.parametrize(
    ("options", "cut"),
    [({"max_rounds": 0}, "max_length_factor"), ({"max_rounds": 2, "max_length_factor": 20.0}, "max_rounds")],
)
def test_outputs_that_ended_name_what_cut_better_ones_alike(options: dict[str, Any], cut: str) -> None:
    torch.manual_seed(6)
    model = Endless(small_model(), less=2.0)
    found = compare(model, random_sources(12), BeamOptions(width=3, **options), pace=LAGGING)
    assert cut in {best[0].cut for best in found if best[0].ended}


def test_long_outputs_get_fewer_slots() -> None:
    torch.manual_seed(2)
    random.seed(2)
    pace = SETTINGS["cpu"]._replace(row_steps=128, rows=12)
    compare(small_model(), [*random_sources(6, 5), *random_sources(2, 40)], BeamOptions(width=2), pace=pace)


@pytest.mark.parametrize("score", ["dot", "scaled_dot", "general", "cosine"])
@pytest.mark.parametrize("width", [1, 3])
def test_the_kernel_for_steps_is_asked_the_same(score: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(4)
    random.seed(4)
    asked: list[int] = []

    def counted(*given: Any, **how: Any) -> Tensor:
        asked.append(1)
        return attend_step(*given, **how)

    monkeypatch.setattr(transformer, "can_step", lambda *_: True)
    monkeypatch.setattr(slots, "attend_step", counted)
    compare(small_model(score=score, positions="rotary"), random_sources(5), BeamOptions(width=width, num_best=width))
    assert asked


def test_joined_projections_change_nothing() -> None:
    torch.manual_seed(5)
    model = small_model()
    work = work_of([torch.tensor([4, 5, 6])])
    expected = generate(SlotFactory(model, BeamOptions(width=2), CPU, SETTINGS["cpu"]), work)
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.join()
            module.join()
    assert_same(generate(SlotFactory(model, BeamOptions(width=2), CPU, SETTINGS["cpu"]), work), expected)


def test_what_a_writer_refuses() -> None:
    work = work_of([torch.tensor([4, 5, 6])])
    model = small_model()
    assert DecodingEngine(model).refuses(BeamOptions(), work) is None
    assert DecodingEngine(model).refuses(SamplingOptions(), work) == "samples are drawn on the host"
    assert DecodingEngine(nn.Linear(1, 1)).refuses(BeamOptions(), work) == "Linear has no slots"
    assert DecodingEngine(model.train()).refuses(BeamOptions(), work) == "dropout is on"
    assert "positions" in str(DecodingEngine(small_model(score="location")).refuses(BeamOptions(), work))
    assert "more than 255" in str(DecodingEngine(small_model()).refuses(BeamOptions(width=300), work))
    few = Transformer(
        source=11,
        target_vocabulary=11,
        sizes=BlockSizes(16, 2, 32, positions="learned"),
        num_encoder_layers=1,
        num_decoder_layers=1,
        max_length=16,
    ).eval()
    assert DecodingEngine(few).refuses(BeamOptions(), work) is None  # 16 ids at most
    assert "16 positions" in str(DecodingEngine(few).refuses(BeamOptions(max_length_factor=3), work))
    compare(few, [torch.tensor([4, 5, 6])], BeamOptions(width=2))


def test_no_sentences() -> None:
    assert DecodingEngine(small_model()).generate(work_of([]), BeamOptions()) == []


def test_lengths_are_counted_as_in_batches() -> None:
    torch.manual_seed(5)
    model, options = small_model(), BeamOptions(width=3, length_penalty=1.0, length_offset=0)
    work = work_of(random_sources(9))
    expected = beam_search(model, *work.load(range(9)), options)
    assert_same(generate(SlotFactory(model, options, CPU, SETTINGS["cpu"]), work), expected)
