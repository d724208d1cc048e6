"""The training benchmark: what is read from the peers' logs, what is counted, and our own side at a tiny size."""

from __future__ import annotations

import gzip
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from saccade.bench.peers import toolkits
from saccade.bench.peers.configs import ToolkitJob
from saccade.bench.peers.environments import Environment, PeerError
from saccade.bench.peers.toolkits import PEERS, Toolkit, ToolkitPeer
from saccade.bench.training import toolkits as training
from saccade.bench.training.toolkits import ToolkitPlan, ToolkitRow
from saccade.errors import UserError
from saccade.tasks.translate import corpora
from saccade.tasks.translate.tokenizers import prepare_tokenizers

OPENNMT_LINE = (
    "[{} INFO] Step {}; acc: 1.3; ppl: 5749.2; xent: 8.7; lr: 0.00194; sents:    1195; bsz: {}; {} tok/s;     43 sec;\n"
)
OPENNMT_LOG = (
    "[2026-01-31 23:59:50,000 INFO] Starting training on CPU, could be very slow\n"
    + OPENNMT_LINE.format("2026-01-31 23:59:58,500", "10/   30", "1787/1800/120", "421/438")
    + OPENNMT_LINE.format("2026-02-01 00:00:00,500", "20/   30", "1638/1700/116", "8100/8500")
    + OPENNMT_LINE.format("2026-02-01 00:00:04,500", "30/   30", " 543/ 900/12", "2400/2250")
    + "[2026-02-01 00:00:09,500 INFO] Saving checkpoint peer/model_step_30.pt\n"
)
EOLE_LINE = OPENNMT_LINE.replace("lr: 0.00194", "aux: 0.000; mtp: 0.000; attn_ent: 0.000; lr: 1.94e-03")
EOLE_LOG = EOLE_LINE.format("2026-01-31 10:00:01,250", "10/   20", "1787/1864/120", "421/438") + EOLE_LINE.format(
    "2026-01-31 10:00:03,250", "20/   20", "1638/1757/116", "734/8785"
)
JOEY_LINE = (
    "2026-01-31 {} - INFO - joeynmt.training - Epoch   1, Step:       {}, Batch Loss:     8.120000, "
    "Batch Acc: 0.010000, Tokens per Sec:     {}, Lr: 0.000050\n"
)
JOEY_LOG = (
    "2026-01-31 10:00:00,000 - INFO - joeynmt.training - EPOCH 1\n"
    + JOEY_LINE.format("10:00:05,000", 10, 3000)
    + JOEY_LINE.format("10:00:09,000", 20, 4000)
    + JOEY_LINE.format("10:00:11,500", 30, 6000)
)


def test_opennmt_counts_real_target_tokens_by_its_own_clock() -> None:
    trained = toolkits.read_opennmt(OPENNMT_LOG)
    assert [(mark.step, mark.tokens) for mark in trained.marks] == [(10, 18_000), (20, 35_000), (30, 44_000)]
    assert trained.printed_rate == (8500 + 2250) / 2  # the first line holds the set-up
    counted = training.measure_steady(trained, warmup=10)
    assert (counted.tokens, counted.seconds) == (26_000, 6.0)
    assert training.measure_steady(trained, warmup=11).rate == 9_000 / 4.0


def test_eole_writes_the_same_line_with_more_in_it() -> None:
    counted = training.measure_steady(toolkits.read_opennmt(EOLE_LOG), warmup=5)
    assert (counted.tokens, counted.seconds, counted.printed_rate) == (17_570, 2.0, 8785)


def test_joeynmt_counts_by_rate_and_clock() -> None:
    trained = toolkits.read_joeynmt(JOEY_LOG)
    assert [mark.step for mark in trained.marks] == [10, 20, 30]
    counted = training.measure_steady(trained, warmup=10)
    assert (counted.tokens, counted.seconds) == (4 * 4000 + 2.5 * 6000, 6.5)


def test_a_log_without_progress_is_a_failure_not_a_rate() -> None:
    with pytest.raises(PeerError, match="ends at step 0"):
        training.measure_steady(toolkits.read_joeynmt("nothing to see"), warmup=0)
    with pytest.raises(PeerError, match="ends at step 30"):
        training.measure_steady(toolkits.read_opennmt(OPENNMT_LOG), warmup=30)


@pytest.mark.parametrize("name", PEERS)
def test_every_config_names_the_same_model(name: str) -> None:
    job = ToolkitJob(steps=41, report_every=7, width=136, hidden_width=264, num_heads=8, tokens_per_batch=2063)
    text = yaml.safe_dump(PEERS[name].config(job))
    for number in ("41", "136", "264", "2063"):
        assert f" {number}\n" in text


def multi30k(folder: Path) -> Path:
    """A small parallel text: digits spelled in two alphabets."""
    lines = [f"{number * 7919 % 100_003:b}" for number in range(1, 400)]
    for language, letters in (("de", "xy"), ("en", "pq")):
        text = "".join(" ".join(line.translate(str.maketrans("01", letters))) + "\n" for line in lines)
        (folder / f"train.{language}.gz").write_bytes(gzip.compress(text.encode()))
    return folder


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[str, Any] = {"width": 8, "hidden_width": 16, "num_heads": 2, "num_layers": 1, "vocabulary_size": 266}
    monkeypatch.setattr(
        ToolkitPlan, "job", lambda plan: ToolkitJob(steps=plan.warmup + plan.steps, report_every=2, **sizes)
    )


def plan(folder: Path, *names: str) -> ToolkitPlan:
    return ToolkitPlan(multi30k(folder), names, folder / "peers", steps=6, warmup=2, threads=1)


@pytest.mark.usefixtures("small")
def test_our_side_counts_every_real_token_of_the_counted_steps(tmp_path: Path) -> None:
    (row,) = training.run(plan(tmp_path), lambda _: None)
    assert row.problem is None
    assert len(row.rounds) == 2
    assert all(one.seconds > 0 for one in row.rounds)
    assert row.rounds[0].tokens == row.rounds[1].tokens > 0  # one seed, the same batches
    assert row.rate == max(one.rate for one in row.rounds)


@pytest.mark.usefixtures("small")
def test_torchs_own_transformer_trains_on_the_same_sentences(tmp_path: Path) -> None:
    ours, theirs = training.run(plan(tmp_path, "torch"), lambda _: None)
    assert (ours.problem, theirs.problem) == (None, None)
    assert theirs.title == "torch.nn.Transformer"
    assert theirs.rate
    config = training._config(plan(tmp_path).job(), training._files(tmp_path))
    both = prepare_tokenizers(config, tmp_path / "run")
    (store,) = corpora.stores(config, both, tmp_path / "run" / "store")
    work = training.read_lengths(store, 2048)
    assert (work.tokens, len(work.source_N)) == (2048, 399)
    read = store.target[5]  # without </s>
    assert work.target_N[5] == len(read) + 1


@pytest.mark.usefixtures("small")
def test_marks_are_the_tokens_that_the_loop_counts(tmp_path: Path) -> None:
    config = training._config(plan(tmp_path).job(), training._files(tmp_path))
    marks = training.train_ours(config, tmp_path / "run").marks
    assert [mark.step for mark in marks] == list(range(1, 9))
    assert all(earlier.tokens < later.tokens for earlier, later in itertools.pairwise(marks))
    assert marks[-1].tokens <= 8 * 2048


@pytest.mark.usefixtures("small")
def test_a_peer_that_does_not_install_is_a_row_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Environment) -> None:
        raise PeerError("pip ended with exit code 1: no such package")

    monkeypatch.setattr(Environment, "install", broken)
    said: list[str] = []
    ours, theirs = training.run(plan(tmp_path, "eole"), said.append)
    assert ours.rate
    assert theirs.rate is None
    assert theirs.problem == "pip ended with exit code 1: no such package"
    assert any("installing Eole" in line for line in said)
    assert json.loads(json.dumps(theirs.as_dict()))["rounds"] == []


FAKE = """
steps = int(open("peer.yaml").read().split(":")[1])
for step in range(2, steps + 1, 2):
    print(f"[2026-01-31 10:00:{step:02},000 INFO] Step {step}/ {steps}; bsz: 1/ 50/ 2; 9/ 49 tok/s; 1 sec;")
"""


def fake_toolkit(folder: Path, code: str) -> Toolkit:
    """A peer that is this Python, running a few lines of its own."""
    peer = ToolkitPeer(
        "Fake", "pytest", (), lambda job: {"steps": job.steps}, ("python", "-c", code), toolkits.read_opennmt
    )
    toolkit = Toolkit.at(peer, folder)
    toolkit.environment.binaries.mkdir(parents=True)
    (toolkit.environment.binaries / "python").symlink_to(sys.executable)
    (folder / "installed.json").write_text("[]", "utf-8")
    return toolkit


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links")
def test_a_peer_is_run_and_read(tmp_path: Path) -> None:
    toolkit, job = fake_toolkit(tmp_path / "fake", FAKE), ToolkitJob(steps=6, report_every=2)
    assert toolkit.environment.is_ready
    counted = training.measure_steady(toolkit.train(job, tmp_path, 1), warmup=2)
    assert (counted.tokens, counted.seconds, counted.printed_rate) == (200, 4.0, 49)


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links")
def test_a_peer_that_fails_says_why(tmp_path: Path) -> None:
    toolkit = fake_toolkit(tmp_path / "other", "import sys; print('out of memory'); sys.exit(3)")
    with pytest.raises(PeerError, match="python ended with exit code 3: out of memory"):
        toolkit.train(ToolkitJob(steps=6, report_every=2), tmp_path, 1)
    with pytest.raises(PeerError, match="0 reports of progress"):
        fake_toolkit(tmp_path / "mute", "pass").train(ToolkitJob(steps=6, report_every=2), tmp_path, 1)


def test_mistakes_name_the_place(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--data: there is no file at .*train\.de\.gz"):
        training.run(ToolkitPlan(tmp_path, (), tmp_path), lambda _: None)
    with pytest.raises(
        UserError,
        match=r"--peers: 'moses' given; allowed: none, or some of opennmt_py,eole,joeynmt,torch,torch-compiled",
    ):
        training.choose_toolkits("eole, moses")
    assert training.choose_toolkits("eole, joeynmt,") == ("eole", "joeynmt")
    assert training.choose_toolkits("none") == ()


def test_the_picture_has_a_bar_for_whoever_ran(tmp_path: Path) -> None:
    rows = [
        ToolkitRow("saccade", rounds=[training.Round(10.0, 2.0, None)]),
        ToolkitRow("Eole", problem="no such package"),
    ]
    training.plot(rows, tmp_path / "bars.png")
    assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG")
