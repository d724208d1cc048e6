"""Beam search against brute force and greedy decoding, on models small enough to enumerate."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from saccade.data.text.tokenizer import END, PAD, START
from saccade.decoding import BeamOptions, Hypothesis, beam_search
from saccade.decoding.beam import BeamResults
from steppers import LETTERS, Counted, TableModel, Uncached, outputs, small_transformer, sources


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0, 3.0])
@pytest.mark.parametrize(("min_length", "no_repeat_ngram", "num_best"), [(0, 0, 5), (2, 0, 1), (0, 1, 3), (1, 2, 7)])
def test_a_beam_as_wide_as_the_space_is_brute_force(
    length_penalty: float, min_length: int, no_repeat_ngram: int, num_best: int
) -> None:
    model = TableModel()
    options = BeamOptions(
        width=400,
        num_best=num_best,
        length_penalty=length_penalty,
        min_length=min_length,
        no_repeat_ngram=no_repeat_ngram,
        max_length=4,  # </s> included
    )
    found = beam_search(model, *sources(3, 5), options)
    for source, hypotheses in zip((3, 5), found, strict=True):
        ranked = sorted(
            ((options.normalize_score(model.score(source, ids), len(ids) + 1), ids) for ids in outputs(options)),
            reverse=True,
        )
        assert [hypothesis.ids for hypothesis in hypotheses] == [ids for _, ids in ranked[:num_best]]
        for hypothesis, (score, ids) in zip(hypotheses, ranked, strict=False):
            assert hypothesis.score == pytest.approx(score, abs=1e-5)
            assert hypothesis.log_probabilities == pytest.approx(model.steps(source, ids), abs=1e-5)


@pytest.mark.parametrize(("offset", "worth"), [(5, -3 / (8 / 6) ** 0.5), (0, -3 / 3**0.5), (1, -3 / 2**0.5)])
def test_an_offset_says_how_lengths_are_counted(offset: int, worth: float) -> None:
    options = BeamOptions(length_penalty=0.5, length_offset=offset)
    assert options.normalize_score(-3.0, 3) == pytest.approx(worth)
    assert options.hypothesis([4, 5], [-1.0, -1.0, -1.0]).score == pytest.approx(worth)
    with pytest.raises(ValueError, match="length_offset: -1 given; it must be 0 or more"):
        BeamOptions(length_offset=-1)


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.5])
@pytest.mark.parametrize(("width", "num_best", "min_length"), [(2, 1, 0), (3, 3, 0), (5, 2, 4)])
def test_stopping_early_changes_nothing(
    length_penalty: float, width: int, num_best: int, min_length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = BeamOptions(
        width=width, num_best=num_best, length_penalty=length_penalty, min_length=min_length, max_length=14
    )
    models = [TableModel() for _ in range(5)]
    early = [beam_search(model, *sources(3, 4, 5, 6), options) for model in models]
    monkeypatch.setattr(BeamResults, "is_done", lambda self, _live, length: length >= self.limit)
    assert [beam_search(model, *sources(3, 4, 5, 6), options) for model in models] == early


def test_it_does_stop_early() -> None:
    model = Counted()
    model.table[..., END] += 12  # ends at once, and nothing that goes on can be worth more
    beam_search(model, *sources(3, 4), BeamOptions(width=3, max_length=1000, max_length_factor=1000.0))
    assert model.num_steps == 1


def test_with_patience_a_search_stops_when_so_many_have_ended() -> None:
    model = Counted()

    def search(patience: float) -> tuple[int, list[Hypothesis]]:
        model.num_steps = 0
        options = BeamOptions(width=4, num_best=4, length_penalty=9.0, patience=patience)  # the longer the better
        (found,) = beam_search(model, *sources(3), options)
        return model.num_steps, found

    (few, early), (more, later), (all_steps, whole) = (search(patience) for patience in (1, 2, 0))
    assert few < more < all_steps
    assert early[0].score <= later[0].score < whole[0].score
    assert max(len(one.log_probabilities) for one in early) == few  # the last one that it waited for
    assert search(1000) == search(0)
    assert BeamOptions(width=1, patience=0.1).most_ended == 1
    with pytest.raises(ValueError, match="patience: -1 given; it must be 0 or more"):
        BeamOptions(patience=-1)


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 3.0])
def test_a_beam_of_one_is_greedy(length_penalty: float) -> None:
    model = TableModel()
    options = BeamOptions(length_penalty=length_penalty, max_length_factor=20.0, max_rounds=0)
    found = beam_search(model, *sources(3, 4, 5, 6), options)
    for source, (hypothesis,) in zip((3, 4, 5, 6), found, strict=True):
        ids: list[int] = []
        last, now = 0, START
        while len(ids) < options.limit(2):
            row = model.table[source, last, now].clone()
            row[[PAD, START]] = -math.inf
            last, now = now, int(row.argmax())
            if now == END:
                break
            ids.append(now)
        assert hypothesis.ids == ids
        assert hypothesis.ended == (now == END)
        assert hypothesis.log_probabilities == pytest.approx(model.steps(source, ids)[: len(ids) + (now == END)])


@pytest.mark.parametrize("width", [1, 4])
def test_batch_mates_change_nothing(width: int) -> None:
    model = TableModel()
    options = BeamOptions(width=width, num_best=min(2, width))
    together = beam_search(model, *sources(3, 4, 5, 6), options)
    for source, hypotheses in zip((3, 4, 5, 6), together, strict=True):
        (alone,) = beam_search(model, *sources(source), options)
        assert [h.ids for h in alone] == [h.ids for h in hypotheses]


def test_a_beam_wider_than_the_vocabulary_allows() -> None:
    """Only one letter and </s>: what is dead stays dead."""
    model = TableModel()
    model.table[..., LETTERS[1:]] = -math.inf
    options = BeamOptions(width=6, num_best=6, max_length=3)
    for hypotheses in beam_search(model, *sources(3, 4), options):
        assert sorted(hypothesis.ids for hypothesis in hypotheses if hypothesis.ended) == [[], [3], [3, 3]]
        assert hypotheses[3:] == [hypothesis for hypothesis in hypotheses if not hypothesis.ended]
        assert [hypothesis.ids for hypothesis in hypotheses[3:]] == [[3, 3, 3]]
        assert all(math.isfinite(sum(hypothesis.log_probabilities)) for hypothesis in hypotheses)


def test_what_never_ends_is_cut_at_the_maximum_length() -> None:
    model = TableModel()
    model.table[..., END] = -math.inf
    for width in (1, 3):
        options = BeamOptions(width=width, num_best=width, max_length=9)
        for hypotheses in beam_search(model, *sources(3, 4), options):
            assert len({tuple(hypothesis.ids) for hypothesis in hypotheses}) == width
            for hypothesis in hypotheses:
                assert hypothesis.cut == "max_length"
                assert len(hypothesis.ids) == len(hypothesis.log_probabilities) == 9


@pytest.mark.parametrize(
    ("options", "cut"),
    [
        ({"max_length": 30, "max_rounds": 0}, "max_length"),
        ({"max_rounds": 0}, "max_length_factor"),
        ({"max_length_factor": 20.0}, "max_rounds"),
        ({"max_length_factor": 20.0, "max_rounds": 0, "length_penalty": 0.0}, None),
    ],
)
def test_an_output_that_ended_names_what_cut_a_better_one(options: dict[str, Any], cut: str | None) -> None:
    """To end at any step is possible, but to go on with threes for some hundred steps is likelier."""
    model = TableModel()
    model.table[:] = -20.0
    model.table[..., 3], model.table[..., END] = 0.0, -4.0
    source = torch.full((2, 12), 3), torch.tensor([12, 12])
    for hypotheses in beam_search(model, *source, BeamOptions(width=2, **options)):
        assert [(one.ended, one.cut) for one in hypotheses] == [(True, cut)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, r"width: 0 given; it must be 1 or more"),
        ({"num_best": 3, "width": 2}, r"num_best: 3 given; a beam of 2"),
        ({"length_penalty": -1.0}, r"length_penalty: -1.0 given"),
        ({"length_penalty": math.nan}, r"length_penalty: nan given"),
        ({"max_length_factor": 0.0}, r"max_length_factor: 0.0 given; it must be above 0"),
        ({"max_length_factor": math.nan}, r"max_length_factor: nan given; it must be above 0"),
        ({"max_length_extra": -1}, r"max_length_extra: -1 given; it must be 0 or more"),
        ({"min_length": 5, "max_length": 5}, r"min_length: 5 given; it must be below max_length, 5"),
        ({"max_rounds": 1}, r"max_rounds: 1 given; it must be 2 or more, or 0"),
    ],
)
def test_mistakes_are_named(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BeamOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [1, 3])
def test_a_transformer_decodes_the_same_with_and_without_batch_mates_and_cache(width: int) -> None:
    model = small_transformer()
    source, length = torch.randint(4, 11, (3, 7)), torch.tensor([7, 3, 5])
    options = BeamOptions(width=width, num_best=width)
    together = beam_search(model, source, length, options)
    uncached = beam_search(Uncached(model), source, length, options)
    for row, size in enumerate(length.tolist()):
        (alone,) = beam_search(model, source[row : row + 1, :size], length[row : row + 1], options)
        assert [h.ids for h in alone] == [h.ids for h in together[row]] == [h.ids for h in uncached[row]]
        for hypothesis in alone:  # scores are those of teacher forcing
            read = torch.tensor([[START, *hypothesis.ids]])
            vectors = model(source[row : row + 1, :size], length[row : row + 1], read)
            steps = model.logits(vectors).log_softmax(-1)[0]
            written = torch.tensor([*hypothesis.ids, END])[: len(hypothesis.log_probabilities)]
            expected = steps[: len(written)].gather(1, written[:, None])[:, 0]
            torch.testing.assert_close(torch.tensor(hypothesis.log_probabilities), expected, atol=1e-4, rtol=1e-4)
