"""The benchmarks of an accelerator, at tiny sizes on a CPU: the same code, peers included."""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from saccade.bench import choices, decoding, pictures, tables
from saccade.bench.peers import decoders, models, shortlists
from saccade.bench.peers.environments import PeerError
from saccade.bench.training import accelerator, flops, sentences, trainers
from saccade.bench.training.accelerator import OURS, AcceleratorReport, AcceleratorRow
from saccade.bench.training.flops import ModelSizes
from saccade.bench.training.trainers import PEERS, TrainJob
from saccade.cli.bench import app, speed
from saccade.data.text.tokenizer import END, PAD, SPECIAL, START
from saccade.errors import UserError
from saccade.tasks.translate import task

CPU = torch.device("cpu")
TINY = ModelSizes(width=12, num_layers=1, vocabulary=53, num_heads=3, hidden_width=20)
TINY_RNN = ModelSizes(width=14, num_layers=1, vocabulary=53, embedding_width=10)
HAS_TRANSFORMERS = importlib.util.find_spec("transformers") is not None


def job(sizes: ModelSizes = TINY, **given: Any) -> TrainJob:
    return TrainJob(CPU, sizes, **{"tokens": 128, "steps": 3, "warmup": 2, "mean_length": 7.0, **given})


def quiet(_: str) -> None:
    pass


# The sentences.


def test_lengths_are_log_normal_with_the_mean_that_was_asked_for() -> None:
    drawn = sentences.log_normal(28.0, 25_600, 64)
    for side in (drawn.source_N, drawn.target_N):
        assert side.mean() == pytest.approx(28, rel=0.02)
        assert side.std() == pytest.approx(28 * 0.53, rel=0.1)
        assert (side.min(), side.max()) == (pytest.approx(4, abs=2), 128)
    assert drawn.source_N.sum() == pytest.approx(64 * 25_600, rel=0.02)
    assert np.corrcoef(drawn.source_N, drawn.target_N)[0, 1] > 0.9


def test_a_store_holds_random_ids_of_these_lengths(tmp_path: Path) -> None:
    drawn = sentences.log_normal(7.0, 64, 5)
    store = drawn.store(tmp_path, 53)
    assert store.source.lengths.tolist() == (drawn.source_N - 1).tolist()  # </s> comes with the batch
    assert store.target.lengths.tolist() == (drawn.target_N - 1).tolist()
    assert set(np.asarray(store.source.steps)) == set(range(len(SPECIAL), 53))


def test_rectangles_hold_each_sentence_once_and_little_padding(tmp_path: Path) -> None:
    drawn = sentences.log_normal(28.0, 2560, 40)
    batches = sentences.padded_batches(drawn, drawn.store(tmp_path, 53), num_widths=6, count=30)
    assert len({batch.source_BS.shape for batch in batches}) <= 6
    assert all(batch.source_BS.shape == batch.read_BT.shape == batch.write_BT.shape for batch in batches)
    assert all(batch.source_BS.numel() <= 2560 for batch in batches)
    assert sum(b.num_real for b in batches) / sum(b.write_BT.numel() for b in batches) > 0.7
    for batch in batches:
        assert batch.real_BS is not None
        assert torch.equal(batch.real_BS, batch.source_BS != PAD)
        assert (batch.read_BT[:, 0] == START).all()
        assert ((batch.write_BT == END).sum(1) == 1).all()


def test_rectangles_of_equal_sentences_have_no_padding_and_no_mask(tmp_path: Path) -> None:
    equal = sentences.rectangle(5, 30, 4)
    (batch, *others) = sentences.padded_batches(equal, equal.store(tmp_path, 53), num_widths=None, count=4)
    assert batch.source_BS.shape == (5, 30)
    assert batch.real_BS is None
    assert (batch.num_real, len(others)) == (150, 3)


@pytest.mark.parametrize("most", [1, 2, 3, 9])
def test_widths_are_the_best_there_are(most: int) -> None:
    own = np.array([8] * 50 + [16] * 7 + [24] * 30 + [40] * 3 + [64])
    found = sentences.tight_widths(own, most)

    def cost(widths: tuple[int, ...]) -> int:
        return sum(min(width for width in widths if width >= one) for one in own.tolist())

    each = sorted(set(own.tolist()))
    subsets = [s for size in range(1, most + 1) for s in itertools.combinations(each, size) if s[-1] == 64]
    assert cost(tuple(found)) == min(map(cost, subsets))
    assert len(found) <= most


def test_multi30ks_own_lengths(tmp_path: Path) -> None:
    for language, text in (("de", "Ein Hund.\nZwei Katzen schlafen heute."), ("en", "A dog.\nTwo cats sleep.")):
        (tmp_path / f"train.{language}.gz").write_bytes(gzip.compress(text.encode()))
    found = sentences.multi30k(tmp_path, 20, 2)
    assert found.source_N.tolist() == [4, 6] * 4  # words, marks, </s>
    assert found.target_N.tolist() == [4, 5] * 4
    with pytest.raises(UserError, match=r"--data: there is no file at .*train\.de\.gz"):
        sentences.multi30k(tmp_path / "nowhere", 20, 2)


# The operations.


def test_operations_of_base_are_those_counted_by_hand() -> None:
    one = sentences.TrainingText("one", np.array([1]), np.array([1]), 1)
    D, F, V = 512, 2048, 37_000
    encoder, decoder = 4 * D * D + 2 * D * F, 8 * D * D + 2 * D * F
    weights = 6 * (encoder + decoder) + V * D  # of every matrix that a token is multiplied with
    assert flops.count_operations(flops.sizes_of("base", V), one) == 6 * weights + 6 * 12 * D * 3


def counted(network: nn.Module) -> int:
    """The weights of all matrices, one that is shared once."""
    return sum(weight.numel() for weight in network.parameters() if weight.dim() == 2 and 1 not in weight.shape)


@pytest.mark.parametrize("sizes", [TINY, TINY_RNN])
def test_operations_are_six_a_weight_and_token_of_our_own_model(sizes: ModelSizes) -> None:
    one = sentences.TrainingText("one", np.array([1]), np.array([1]), 1)
    config = trainers.config_of(job(sizes), one)
    network = task.model(config, (trainers.word_tokenizer(sizes.vocabulary),) * 2)
    pairs = 12 * sizes.width * (1 if sizes.is_recurrent else 3 * sizes.num_layers)
    assert flops.count_operations(sizes, one) == 6 * counted(network) + pairs


@pytest.mark.parametrize("name", PEERS)
def test_peers_have_the_matrices_that_we_have(name: str) -> None:
    peer = PEERS[name]
    if "marian" in name and not HAS_TRANSFORMERS:
        pytest.skip("transformers is not installed (pip install transformers)")
    sizes = TINY_RNN if peer.is_recurrent else TINY
    config = trainers.config_of(job(sizes), sentences.rectangle(2, 5, 1))
    ours = task.model(config, (trainers.word_tokenizer(53),) * 2)
    extra = 1024 * 12 * 2 if "marian" in name else 0  # its positions are parameters
    assert counted(peer.build(sizes)) == counted(ours) + extra


# The peers as models.


@pytest.mark.parametrize("name", ["torch", "marian", "loop"])
def test_padding_changes_no_peers_loss(name: str) -> None:
    if name == "marian" and not HAS_TRANSFORMERS:
        pytest.skip("transformers is not installed (pip install transformers)")
    peer = PEERS[name]
    model = peer.build((TINY_RNN if peer.is_recurrent else TINY)._replace(dropout=0.0)).eval()
    if peer.is_recurrent:  # its encoder reads padding, as tutorials' do
        model.encoder.flatten_parameters()  # type: ignore[operator, union-attr]
    source, read = torch.randint(4, 53, (3, 7)), torch.randint(4, 53, (3, 5))
    write = torch.randint(4, 53, (3, 5))
    plain = model(source, None, read, write)
    wide = [nn.functional.pad(ids, (0, 2), value=PAD) for ids in (source, read, write)]
    padded = model(wide[0], wide[0] != PAD, *wide[1:])
    tolerance = 0.05 if peer.is_recurrent else 1e-5
    torch.testing.assert_close(padded, plain, rtol=tolerance, atol=tolerance)


def test_a_package_that_is_missing_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = importlib.import_module

    def missing(name: str, package: str | None = None) -> Any:
        if name.startswith("transformers"):
            raise ImportError(f"No module named {name!r}")
        return plain(name, package)  # torch imports parts of itself by this, on first use

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(PeerError, match="transformers is not installed \\(pip install transformers\\)"):
        models.build_marian(TINY)
    report = accelerator.run(job(peers=("marian",)), quiet)
    assert [row.rate is None for row in report.rows] == [False, True, False, True]
    assert "pip install transformers" in str(report.rows[1].problem)
    assert report.ratios() == {}
    (_, row) = decoding.run(decoding_job(peers=("generate",)), quiet)
    assert "pip install transformers" in str(row.problem)


# Training.


def eager(function: Any, *, dynamic: bool) -> Any:
    """What is compiled is traced; code for it is none of this test."""
    return torch.compile(function, dynamic=dynamic, backend="eager")


@pytest.fixture
def no_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainers, "compile_function", eager)


@pytest.mark.usefixtures("no_inductor")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("sizes", [TINY, TINY_RNN])
def test_everybody_trains_on_the_same_sentences(sizes: ModelSizes) -> None:
    names = accelerator.choose_model_peers(None, is_recurrent=sizes.is_recurrent)
    if not HAS_TRANSFORMERS:
        names = tuple(name for name in names if "marian" not in name)
    report = accelerator.run(job(sizes, peers=names, num_widths=1, recurrent_batches=(3,)), quiet)
    assert [row.problem for row in report.rows] == [None] * len(report.rows)
    for rows in report.tables().values():
        assert [row.name for row in rows] == [OURS, *names]
        for row in rows:
            assert row.rate is not None
            assert row.step_seconds is not None
            assert row.share is not None
            assert 0 < row.rate * row.step_seconds <= 128 + 1e-6  # real tokens a step
            assert 0 < row.share < 1
    exact = list(report.tables().values())[-1]  # nothing to pad
    assert [row.real_share for row in exact] == [None, *[1.0] * len(names)]
    assert set(report.ratios()) == set(report.tables())


def test_the_rate_is_that_of_counted_steps_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1, 1000))
    monkeypatch.setattr(trainers, "synchronized_time", lambda _: float(next(clock)))
    equal = sentences.rectangle(4, 8, 5)
    (row, *_) = accelerator._measure_all(job(tokens=32), equal, 1e9, quiet)
    assert row.problem is None
    assert row.rate is not None
    assert row.rate <= 3 * 32  # three counted steps of four sentences between two ticks
    assert row.step_seconds == pytest.approx(1 / 3)


def test_growth_goes_four_ways_from_the_job() -> None:
    points: dict[str, list[float]] = {}
    for axis, point, other in accelerator.vary_job(job()):
        points.setdefault(axis, []).append(point)
        assert other.draw_text().tokens == other.tokens
    assert points == {
        "batch": [32, 64, 128, 256],
        "length": [3.5, 7, 14, 28],
        "width": [6, 12, 24],
        "vocabulary": [13, 26, 53, 106],
    }
    with pytest.raises(UserError, match="--growth: given, but it goes with --size base or big"):
        list(accelerator.vary_job(job(TINY_RNN)))


def test_growth_is_measured_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = job(steps=1, warmup=1, peers=("torch",))
    few = [found for found in accelerator.vary_job(short) if found[0] in ("batch", "width")]
    monkeypatch.setattr(accelerator, "vary_job", lambda _: few[1:3] + few[-2:-1])
    report = accelerator.run(short, quiet, growth=True)
    grown = [(row.axis, row.point, row.name) for row in report.rows if row.axis]
    assert grown == [(a, p, n) for a, p in (("batch", 64), ("batch", 128), ("width", 12)) for n in (OURS, "torch")]
    assert "growth with batch: 64" in report.tables()
    pictures.of_training(report, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")


def test_a_contestant_that_trips_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def trips(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.\nmore lines")

    monkeypatch.setattr(trainers, "measure_ours", trips)
    report = accelerator.run(job(peers=("torch",)), quiet)
    assert report.rows[0].problem == "OutOfMemoryError: CUDA out of memory."
    assert report.rows[1].rate is not None
    assert report.ratios() == {}
    assert tables.problems(report.rows) == ["saccade: OutOfMemoryError: CUDA out of memory."]


def test_what_is_found_before_an_interruption_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(trainers, "measure_peer", interrupted)
    report = accelerator.run(job(peers=("torch",)), quiet)
    assert [row.name for row in report.rows] == [OURS]
    assert report.rows[0].rate is not None
    first, calls = decoding._measure_case, []

    def once(*given: Any) -> list[decoding.DecodeRow]:
        calls.append(given)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return first(*given)

    monkeypatch.setattr(decoding, "_measure_case", once)
    rows = decoding.run(decoding_job(batches=(1, 3)), quiet)
    assert [(row.name, row.batch) for row in rows] == [(OURS, 1)]


# Decoding.


def decoding_job(**given: Any) -> decoding.DecodeJob:
    return decoding.DecodeJob(
        CPU, TINY, **{"batches": (3,), "beams": (1,), "output_length": 6, "source_length": 5, **given}
    )


@pytest.mark.parametrize("name", [OURS, *decoders.DECODERS])
def test_everybody_writes_as_many_tokens(name: str) -> None:
    package = "ctranslate2" if "ctranslate2" in name else "transformers"
    if name != OURS and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed (pip install {package})")
    peers = () if name == OURS else (name,)
    rows = decoding.run(decoding_job(peers=peers, batches=(1, 3), beams=(1, 4)), quiet)
    assert [row.problem for row in rows] == [None] * len(rows)
    assert [(row.beam, row.batch, row.tokens) for row in rows if row.name == name] == [
        (1, 1, 6),
        (1, 3, 18),
        (4, 1, 6),
        (4, 3, 18),
    ]
    assert all(row.rate == pytest.approx(row.tokens / row.seconds) for row in rows)  # type: ignore[operator]


def test_rounds_are_counted_and_torch_may_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def count(source_BS: torch.Tensor, beam: int) -> list[int]:
        calls.append(beam)
        return [6] * len(source_BS)

    monkeypatch.setattr(decoding, "DECODERS", {"quick": decoders.Decoder("quick", lambda setting: count)})
    (row,) = decoding.run(decoding_job(peers=("quick",), with_torch=False, rounds=2), quiet)
    assert (row.name, row.tokens, len(calls)) == ("quick", 18, 3)  # the first makes warm
    assert tables.of_decoding([row]).row_count == 1


def test_made_shortlists_are_those_of_text() -> None:
    """Frequent tokens have more that stand for them; a batch shares many, as sentences do."""
    listed, common = shortlists.draw_shortlist(32_000)
    assert common == list(range(204))
    assert [len(ids) for ids in listed[:4]] == [0] * 4
    sizes = [len(ids) for ids in listed[4:]]
    assert 40 < sizes[0] <= shortlists.MOST
    assert sum(sizes[:100]) > 2 * sum(sizes[-100:])
    assert all(ids == sorted(set(ids)) and ids[-1] < 32_000 for ids in listed[4:])
    sources = shortlists.draw_sources(64, 28, 32_000)
    assert sources.shape == (64, 28)
    assert 4 <= int(sources.min()) < int(sources.max()) < 32_000
    assert sources.unique().numel() < 0.6 * sources.numel()


def test_who_writes_less_has_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    lazy = decoders.Decoder("lazy", lambda setting: lambda source_BS, beam: [6, 6, 5])
    broken = decoders.Decoder("broken", lambda setting: lambda source_BS, beam: [][beam])
    monkeypatch.setattr(decoding, "DECODERS", {"lazy": lazy, "broken": broken})
    ours, short, failed = decoding.run(decoding_job(peers=("lazy", "broken")), quiet)
    assert ours.rate is not None
    assert short.problem == "it wrote 5 tokens where 6 were asked for"
    assert failed.problem == "IndexError: list index out of range"
    assert (short.rate, failed.rate) == (None, None)


def test_decoding_is_drawn_and_told(tmp_path: Path) -> None:
    rows = [
        decoding.DecodeRow(name, title, beam, batch, seconds=0.1, tokens=32 * batch)
        for beam in (1, 4)
        for batch in (1, 64)
        for name, title in ((OURS, OURS), ("generate", "Hugging Face generate"))
    ]
    pictures.of_decoding(rows, tmp_path / "bars.png")
    assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG")
    assert tables.of_decoding(rows).row_count == 8
    assert rows[2].as_dict()["seconds_per_sentence"] == 0.1 / 64


# The commands.


def test_the_commands_speak_json_and_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flops, "sizes_of", lambda name, vocabulary: TINY._replace(vocabulary=vocabulary))
    picture = tmp_path / "bars.png"
    given = ["decode", "--batches", "1,2", "--beams", "1", "--length", "4", "--vocabulary", "53", "--peers", "none"]
    found = CliRunner().invoke(app, [*given, "--plot", str(picture), "--json"])
    assert found.exit_code == 0, found.output
    rows = json.loads(found.stdout)["rows"]
    assert [(row["batch"], row["tokens"]) for row in rows] == [(1, 4), (2, 8)]
    assert picture.exists()
    found = CliRunner().invoke(app, given)
    assert "saccade" in found.stdout
    assert "1.00x" in found.stdout


def test_the_accelerated_command_shows_what_it_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    rows = [
        AcceleratorRow(OURS, OURS, "2 x 3", 1, rate=200.0, step_seconds=0.1, share=0.5),
        AcceleratorRow("torch", "torch", "2 x 3", 1, rate=80.0, step_seconds=0.2),
    ]
    monkeypatch.setattr(accelerator, "run", lambda *_, **__: AcceleratorReport(1e12, rows))
    speed._show_accelerated(job(), False, tmp_path / "bars.png", False)
    assert "2.50 times the best peer's rate" in capsys.readouterr().out
    speed._show_accelerated(job(), False, None, True)
    assert json.loads(capsys.readouterr().out)["ratios"] == {"2 x 3": 2.5}


def test_what_goes_with_the_other_device_is_refused() -> None:
    for given, message in (
        (["train", "--size", "big"], "--size: given, but it goes with --device cuda"),
        (["train", "--growth"], "--growth: given, but it goes with --device cuda"),
        (["train", "--steps", "9"], "--steps: 9 given; on a cpu it must be 10 or more"),
        (["decode", "--batches", "1,many"], "--batches: '1,many' given; allowed: numbers above 0, with commas"),
        (
            ["decode", "--peers", "moses"],
            "--peers: 'moses' given; allowed: none, or some of "
            "native,native-int8,native-int8-shortlist,onnx,onnx-int8,generate,"
            "ctranslate2,ctranslate2-int8,ctranslate2-int8-shortlist",
        ),
    ):
        with pytest.raises(UserError, match=message):
            raise CliRunner().invoke(app, given).exception or AssertionError(given)
    with pytest.raises(UserError, match="--rounds: given, but it goes with --device cpu"):
        choices.refuse_options("cpu", rounds=2)
    with pytest.raises(UserError, match="--peers: 'loop' given; allowed: none, or some of torch,"):
        accelerator.choose_model_peers("torch, loop", is_recurrent=False)
    assert accelerator.choose_model_peers("torch, marian,", is_recurrent=False) == ("torch", "marian")
    assert accelerator.choose_model_peers("none", is_recurrent=True) == decoding.choose_decoders("none", "cpu") == ()
