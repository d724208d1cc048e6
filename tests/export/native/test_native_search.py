"""The native search in the place of ours: the same outputs, scores and cuts for every option."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from exports import backwards, check_same, draw_sources, portable, recurrent, tagger, transformer
from runs import make_run
from saccade.cli import app
from saccade.data.batches import pad_sources
from saccade.decoding import BeamOptions, SamplingOptions, Stepper, search
from saccade.decoding.slices import ComputationEnded, supervise, tick_of
from saccade.errors import UserError
from saccade.export import engine as engines
from saccade.export.choice import TORCH, EngineChoice
from saccade.export.native import library, pack
from saccade.export.native import search as native_search
from saccade.export.native.engine import NativeEngine
from saccade.export.native.search import NativeSearch
from saccade.export.native.shortlist import Shortlist, name_tokenizers
from saccade.runs.load import load
from saccade.serving.models import load_runs
from saccade.tasks.base import Portable
from saccade.tasks.translate.predictor import Translator
from servers import serving

THREADS = (1, 2, 3)
RNN = ("an RNN",)
LOCAL = ("an RNN with local attention",)
GRU = {"kind": "rnn", "width": 16, "embedding_width": 8, "num_layers": 1}


def searcher(model: Portable, folder: Path, quantization: str = "float32", **how: Any) -> NativeSearch:
    path = folder / f"{quantization}.bin"
    pack.write(cast(pack.Searchable, model.network), path, quantization)
    return NativeSearch(NativeEngine(cast(pack.Searchable, model.network), path, **how))


@pytest.fixture(scope="module")
def model() -> Portable:
    return backwards()


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with nothing but the library, which takes eight seconds to compile."""
    built = library.cache_folder() / "native"
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "native").symlink_to(built.resolve())
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_length": 5},
        {"min_length": 6},
        {"no_repeat_ngram": 1, "max_length": 7},
        {"no_repeat_ngram": 2},
        {"writes_unknown": False},
        {"max_length_factor": 30.0, "max_rounds": 2},
        {"max_length_factor": 90.0, "max_rounds": 0, "max_length": 700},
        {"width": 4},
        {"width": 4, "min_length": 5, "writes_unknown": False},
        {"width": 4, "length_penalty": 0.0},
        {"width": 3, "length_penalty": 2.0, "num_best": 3},
        {"width": 2, "length_penalty": 3.0, "max_length_factor": 5.0, "max_rounds": 2},
        {"width": 4, "length_penalty": 4.0, "max_length_factor": 30.0, "max_rounds": 2, "num_best": 3},
        {"width": 4, "max_length": 6, "num_best": 2},
        {"width": 4, "no_repeat_ngram": 2},
        {"width": 4, "patience": 1.0, "length_penalty": 0.2, "length_offset": 0, "num_best": 2},
        {"width": 40, "num_best": 3},
        {"width": 5, "max_length_factor": 0.5, "max_length_extra": 1, "num_best": 4},
    ],
    ids=str,
)
def test_every_option_does_what_it_does_here(tmp_path: Path, model: Portable, options: dict[str, Any]) -> None:
    given, chosen = draw_sources(33, 12, random.Random(4)), BeamOptions(**options)
    natives = [searcher(model, tmp_path, threads=threads) for threads in THREADS]
    for longest in (0, 3):
        prefixes = [[4 + row % 7] * (row % (longest + 1)) for row in range(len(given))]
        ours = search(cast(Stepper, model.network), *pad_sources(given), chosen, prefixes)
        for native in natives:
            check_same(ours, native.search(given, prefixes, chosen, None))
            check_same(ours[:3], native.search(given[:3], prefixes[:3], chosen, None))


@pytest.mark.parametrize("attention", ["none", "bahdanau", "luong"])
@pytest.mark.parametrize(
    "options", [{}, {"width": 4, "num_best": 3}, {"width": 3, "min_length": 4, "length_penalty": 2.0}], ids=str
)
def test_rnns_are_searched_as_here(tmp_path: Path, options: dict[str, Any], attention: str) -> None:
    torch.manual_seed(2)
    rnn, chosen = portable(recurrent(attention, cell="lstm", layers=2)), BeamOptions(**options)
    given = draw_sources(33, 12, random.Random(4))
    prefixes = [[4 + row % 7] * (row % 4) for row in range(len(given))]
    ours = search(cast(Stepper, rnn.network), *pad_sources(given), chosen, prefixes)
    assert len({tuple(best[0].ids) for best in ours}) > 10
    for threads in (1, 3):
        native = searcher(rnn, tmp_path, threads=threads)
        check_same(ours, native.search(given, prefixes, chosen, None))
        check_same(ours[:2], native.search(given[:2], prefixes[:2], chosen, None))


@pytest.mark.parametrize("load", [0.0, 1e9])
def test_threads_share_steps_where_cores_are_free_with_the_same_bits(
    tmp_path: Path, model: Portable, load: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, options = draw_sources(2, 12, random.Random(7)), BeamOptions(width=2)
    alone = searcher(model, tmp_path, "int8", threads=1).search(given, [[], []], options, None)
    monkeypatch.setattr("os.getloadavg", lambda: (load, load, load))
    assert native_search._is_busy() == (load > 0)
    assert searcher(model, tmp_path, "int8", threads=3).search(given, [[], []], options, None) == alone


def test_samples_are_drawn_by_our_own_search(tmp_path: Path, model: Portable) -> None:
    native, given = searcher(model, tmp_path), draw_sources(7, 12, random.Random(4))
    options = SamplingOptions(num_best=3, seed=4)
    ours = search(cast(Stepper, model.network), *pad_sources(given), options)
    check_same(ours, native.search(given, [[] for _ in given], options, None))


@pytest.mark.parametrize("width", [1, 3])
def test_bits_are_those_of_a_sentence_alone(tmp_path: Path, model: Portable, width: int) -> None:
    given, options = draw_sources(50, 12, random.Random(6)), BeamOptions(width=width)
    for quantization in ("float32", "int8"):
        found = [
            searcher(model, tmp_path, quantization, threads=threads, kernels=kernels).search(
                given, [[] for _ in given], options, None
            )
            for threads in THREADS
            for kernels in library.list_kernels()
            if kernels != "plain"
        ]
        native = searcher(model, tmp_path, quantization)
        assert [native.search([one], [[]], options, None)[0] for one in given] == found[0]
        assert all(one == found[0] for one in found)


def test_blank_sources_stay_blank(tmp_path: Path, model: Portable) -> None:
    found = searcher(model, tmp_path).search([[], [4, 5], []], [[], [], []], BeamOptions(), None)
    assert [len(best) for best in found] == [0, 1, 0]


class Supervisor:
    """Counts the pauses; after some of them not all sources are wanted, or the search must end."""

    def __init__(self, count: int, *, drops: int | None = None, ends: int | None = None) -> None:
        self.pauses, self._count, self._drops, self._ends = 0, count, drops, ends

    def pause(self) -> None:
        self.pauses += 1
        if self._ends is not None and self.pauses > self._ends:
            raise ComputationEnded

    def find_wanted(self) -> list[bool] | None:
        if self._drops is None or self.pauses <= self._drops:
            return None
        return [number % 2 == 0 for number in range(self._count)]


@pytest.mark.parametrize("width", [1, 3])
def test_others_may_go_first_and_sources_may_be_dropped(tmp_path: Path, model: Portable, width: int) -> None:
    native, given = searcher(model, tmp_path), draw_sources(40, 12, random.Random(5))
    options = BeamOptions(width=width)
    prefixes: list[list[int]] = [[] for _ in given]
    whole = native.search(given, prefixes, options, None)
    by = Supervisor(40)
    with supervise(by):
        assert native.search(given, prefixes, options, tick_of(range(40))) == whole
    assert by.pauses > 3
    with supervise(Supervisor(40, drops=1)):
        found = native.search(given, prefixes, options, tick_of(range(40)))
    assert found[::2] == whole[::2]
    assert found[1::2] != whole[1::2]
    with supervise(Supervisor(40, ends=2)), pytest.raises(ComputationEnded):
        native.search(given, prefixes, options, tick_of(range(40)))


def test_learned_positions_end(tmp_path: Path) -> None:
    native = searcher(portable(transformer(positions="learned")), tmp_path)
    with pytest.raises(UserError, match="source: 64 tokens given; this model reads at most 63"):
        native.search([[4] * 64], [[]], BeamOptions(), None)
    ((one,),) = native.search([[4] * 63], [[]], BeamOptions(max_length_factor=9, max_rounds=0), None)
    assert len(one.log_probabilities) <= 64


def test_a_wrong_library_is_not_used(model: Portable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NativeEngine, "log_probabilities", lambda self, sources, targets: [[0.0]] * len(sources))
    with pytest.raises((UserError, ValueError), match=r"wrong on this machine|shorter"):
        engines.make_searcher(model, EngineChoice("native"))


def test_a_run_is_left_as_it_was(tmp_path: Path, empty_cache: Path) -> None:
    run = make_run(tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert load(run, engine="native").predict(["a b"])
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    assert sorted(path.suffix for path in (empty_cache / "packed").iterdir()) == [".bin", ".checked"]


def test_a_packed_model_is_checked_once_by_each_library(
    tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, checked = make_run(tmp_path / "run"), []
    monkeypatch.setattr(engines, "_check", lambda model, engine: checked.append(engine.name))
    for _ in range(2):
        load(run, engine="native")
    assert checked == ["native"]
    (mark,) = empty_cache.rglob("*.checked")
    mark.write_text("another library", encoding="utf-8")
    load(run, engine="native")
    assert checked == ["native"] * 2
    load(run, engine="native", quantization="int8")  # its numbers are others
    assert checked == ["native"] * 2


@pytest.mark.usefixtures("empty_cache")
def test_auto_goes_on_with_torch_where_the_library_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise UserError("engine: native is wrong on this machine")

    monkeypatch.setattr(engines, "_check", fail)
    run = make_run(tmp_path / "run")
    with pytest.warns(UserWarning, match="engine: auto takes torch, which is slower: .* wrong on this machine"):
        assert cast(Translator, load(run, engine="auto")).engine == "torch"
    with pytest.raises(UserError, match="wrong on this machine"):
        load(run, engine="native")
    assert cast(Translator, load(run, engine="auto", quantization="int8")).engine == "native"  # asked for


def test_a_server_answers_the_same(tmp_path: Path) -> None:
    run, answers = make_run(tmp_path / "run", "languages.source=en", "languages.target=fr"), []
    for choice in (TORCH, EngineChoice("native"), EngineChoice("native", "int8")):
        with serving(load_runs([run], engine=choice)) as served:
            asked = {"q": ["a b c", "", "h g f e", "d"], "source": "en", "target": "fr"}
            answers.append(served.post("/translate", **asked).json()["translatedText"])
            assert served.post("/v1/translate", q="a b", beam=2, no_repeat_ngram=2).status_code == 200
    assert answers[0] == answers[1]
    assert len(answers[2]) == 4


@pytest.mark.parametrize(
    ("overrides", "chosen", "reason"),
    [
        ((), "native", "the native library runs all of this Transformer, here with kernels for"),
        (("model.score=additive",), "torch", "the native library can't run model.score: additive is no dot product"),
        (RNN, "native", "the native library runs all of this RNN, here with kernels for"),
        (LOCAL, "torch", "the native library can't run an RNN with local attention"),
    ],
)
def test_auto_chooses_and_says_why(tmp_path: Path, overrides: tuple[str, ...], chosen: str, reason: str) -> None:
    models = {RNN: GRU, LOCAL: {**GRU, "scope": "local_m"}}
    run = (
        make_run(tmp_path / "run", model=models[overrides])
        if overrides in models
        else make_run(tmp_path / "run", *overrides)
    )
    done = CliRunner().invoke(app, ["explain", str(run)])
    assert done.stdout.startswith(f"auto takes {chosen}: {reason}")
    told = json.loads(CliRunner().invoke(app, ["explain", str(run), "--json"]).stdout)
    assert told["auto"] == chosen
    assert (told["engines"]["native"] is None) == (chosen == "native")
    assert told["engines"]["torch"] is None
    predictor = cast(Translator, load(run, engine="auto"))
    assert (predictor.searcher is not None) == (chosen == "native")
    assert predictor.predict(["a b"])[0].line() == load(run).predict(["a b"])[0].line()
    if chosen == "torch":
        with pytest.raises(UserError, match="quantization: int8 given; auto takes torch here, because the native"):
            load(run, engine="auto", quantization="int8")


def test_the_command_line_takes_auto(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, make, taken = make_run(tmp_path / "run"), engines.make_searcher, list[str]()

    def watch(model: Portable, choice: EngineChoice) -> Any:
        taken.append(choice.name)
        return make(model, choice)

    monkeypatch.setattr(engines, "make_searcher", watch)
    for arguments, expected in (([], ["native"]), (["--engine", "torch"], []), (["--device", "cpu"], ["native"])):
        done = CliRunner().invoke(app, ["predict", str(run), *arguments], input="a b\n")
        assert (done.exit_code, "engine" in done.stderr, taken) == (0, False, expected)
        taken.clear()


def test_auto_is_torch_for_ensembles_and_other_tasks(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    assert load(run, run, engine="auto").predict(["a"])
    with pytest.raises(UserError, match="engine: native given with an ensemble"):
        load(run, run, engine="native")
    assert engines.choose_engine(tagger())[1].startswith("the native library runs the encoder of this model")
    told = engines.explain_engines(tagger())
    assert told["native"] is None
    assert told["ctranslate2"] == "it searches for texts, and models of this task write none"
    chosen, reason = engines.choose_engine(tagger("bag"))
    assert (chosen, "without a recurrent or self-attentive encoder" in reason) == ("torch", True)


def test_without_a_compiler_the_engine_is_refused_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run")
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", "no-such-compiler")
    library.load_library.cache_clear()
    try:
        done = CliRunner().invoke(app, ["predict", str(run), "--engine", "native"], input="a b\n")
        with pytest.warns(
            UserWarning, match="engine: auto takes torch, which is slower: the native library can't be used"
        ):
            assert load(run, engine="auto").predict(["a b"])
    finally:
        library.load_library.cache_clear()
    assert isinstance(done.exception, UserError)
    assert "no C compiler was found (no-such-compiler); the engine torch can" in str(done.exception)


def allow_all(model: Portable, source: list[list[int]]) -> Shortlist:
    """Allow the given target ids of each source id, and the first four to all."""
    offset = np.cumsum([0, *map(len, source)], dtype=np.int32)
    listed = [number for ids in source for number in ids]
    return Shortlist(offset, np.array(listed, np.int32), np.arange(4, dtype=np.int32), name_tokenizers(model))


class Narrow:
    """The model, with the log-probabilities of a shortlist: one source at a time."""

    def __init__(self, network: Any, allowed: list[int]) -> None:
        self.start, self.advance, self._network = network.start, network.advance, network
        self._allowed = allowed

    def logits(self, vectors: torch.Tensor) -> torch.Tensor:
        logits_NV = self._network.logits(vectors)
        narrow_NV = torch.full_like(logits_NV, -torch.inf)
        narrow_NV[..., self._allowed] = logits_NV[..., self._allowed]
        return narrow_NV


@pytest.mark.parametrize("options", [{}, {"min_length": 6}, {"width": 3, "num_best": 2}], ids=str)
@pytest.mark.parametrize("threads", THREADS)
def test_a_shortlist_leaves_each_source_its_own_ids(
    tmp_path: Path, model: Portable, options: dict[str, Any], threads: int
) -> None:
    """As our search does with the logits of the others at -inf; the company changes no bit."""
    chosen = BeamOptions(**options)
    listed = [[4 + (number * step) % 7 for step in (1, 3)] if number > 3 else [] for number in range(15)]
    shortlist = allow_all(model, [sorted(set(ids)) for ids in listed])
    given = draw_sources(33, 6, random.Random(8))
    prefixes = [[4 + row % 7] * (row % 3) for row in range(len(given))]
    for quantization in ("float32", "int8"):
        native = searcher(model, tmp_path, quantization, threads=threads)
        native = NativeSearch(native._engine, shortlist)
        found = native.search(given, prefixes, chosen, None)
        assert [
            native.search([one], [prefix], chosen, None)[0] for one, prefix in zip(given, prefixes, strict=True)
        ] == found
        if quantization == "int8":
            continue
        for one, prefix, best in zip(given, prefixes, found, strict=True):
            narrow = Narrow(model.network, shortlist.allow([*one, 2], prefix).tolist())
            check_same(search(cast(Stepper, narrow), *pad_sources([one]), chosen, [prefix]), [best])


def test_a_shortlist_of_all_ids_changes_nothing(tmp_path: Path, model: Portable) -> None:
    shortlist = allow_all(model, [list(range(11))] * 15)
    native, given = searcher(model, tmp_path, "int8"), draw_sources(20, 12, random.Random(9))
    narrow = NativeSearch(native._engine, shortlist)
    for width in (1, 4):
        whole = native.search(given, [[] for _ in given], BeamOptions(width=width), None)
        check_same(whole, narrow.search(given, [[] for _ in given], BeamOptions(width=width), None))
    for options in (SamplingOptions(), BeamOptions(no_repeat_ngram=2), BeamOptions(width=33)):
        assert "with a shortlist: that search is done outside of the library" in str(narrow.refuse(options))


def test_a_shortlist_is_learned_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = make_run(tmp_path / "run")
    (tmp_path / "given.txt").write_text("a b c\nd e\n\nf\n", encoding="utf-8")
    (tmp_path / "wanted.txt").write_text("c b a\ne d\n\nf\n", encoding="utf-8")
    told = ["shortlist", "run", "ids.npz", "--input", "given.txt", "--target", "wanted.txt", "--common", "1"]
    done = CliRunner().invoke(app, told)
    assert "3 pairs: " in done.stdout
    portable_run = load(run).portable()
    assert isinstance(portable_run, Portable)
    learned = Shortlist.load(Path("ids.npz"), portable_run)
    for number, ids in enumerate(np.split(learned.target, learned.offset_N[1:-1])):
        assert {*ids.tolist()} <= {*range(4, 10), number}  # a to f; what both vocabularies have stands for itself
    assert len(learned.common) == 5
    asked = ["predict", "run", "--engine", "native", "--shortlist", "ids.npz"]
    done = CliRunner().invoke(app, asked, input="a b c\n")
    assert set(done.stdout.split()) <= set("abcdef")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "native", "--shortlist", "nothing.npz"], "shortlist: nothing.npz: there is no such file"),
        (["--engine", "native", "--shortlist", "run/config.yaml"], "this is no shortlist, or it is damaged"),
        (["--engine", "native", "--shortlist", "other.npz"], "it was learned for other tokenizers than the run's"),
        (["--engine", "torch", "--shortlist", "other.npz"], "shortlist: given with the engine torch; only the engine"),
    ],
)
def test_a_wrong_shortlist_is_refused(
    tmp_path: Path, model: Portable, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "run")
    allow_all(model, [[4]] * 15).save(Path("other.npz"))
    done = CliRunner().invoke(app, ["predict", "run", *arguments], input="a b\n")
    assert isinstance(done.exception, UserError)
    assert message in str(done.exception)


def test_a_damaged_shortlist_is_refused(tmp_path: Path, model: Portable) -> None:
    path, whole = tmp_path / "ids.npz", allow_all(model, [[4, 5]] * 15)
    wrong: list[dict[str, Any]] = [
        {"offset_N": whole.offset_N[:-1]},
        {"offset_N": whole.offset_N[::-1].copy()},
        {"target": whole.target + 7},
        {"target": whole.target - 5},
        {"common": whole.common[1:]},
        {"common": whole.common.astype(np.int64)},
    ]
    for change in wrong:
        parts: dict[str, Any] = {"offset_N": whole.offset_N, "target": whole.target, "common": whole.common, **change}
        Shortlist(names=whole.names, **parts).save(path)
        with pytest.raises(UserError, match="this is no shortlist, or it is damaged"):
            Shortlist.load(path, model)
    whole.save(path)
    assert Shortlist.load(path, model).names == whole.names
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(UserError, match="this is no shortlist, or it is damaged"):
        Shortlist.load(path, model)
