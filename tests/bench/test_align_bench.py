"""The benchmark of aligners: eflomal stood in for by a few lines, and what is counted."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from runs import make_run
from saccade.bench import align
from saccade.bench.align import AlignFiles, AlignPlan
from saccade.bench.peers.environments import Environment, PeerError
from saccade.cli import app
from saccade.data.text.corpus import Pair
from saccade.inspection.align import chosen_head
from saccade.inspection.align.links import SYMMETRIZERS

BOTH = "A b c ||| b c\nd e ||| e D\n"
FIRST = frozenset({(0, 0)})
GOLD = "1-0 2-1\n1-0 0?1\n"
FAKE = """#!{python}
import sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
lines = [list(map(str.split, pair)) for pair in zip(open(given["-s"]), open(given["-t"]))]
links = [[(s, t) for s, a in enumerate(source) for t, b in enumerate(target) if a == b] for source, target in lines]
for flag in ("-f", "-r"):
    open(given[flag], "w").writelines(" ".join(f"{{s}}-{{t}}" for s, t in some) + "\\n" for some in links)
print(len(lines))
"""


@pytest.fixture
def plan(tmp_path: Path) -> AlignPlan:
    (tmp_path / "both.txt").write_text(BOTH, encoding="utf-8")
    (tmp_path / "gold.txt").write_text(GOLD, encoding="utf-8")
    runs = (make_run(tmp_path / "there"), make_run(tmp_path / "back"))
    files = AlignFiles(tmp_path / "both.txt", None, tmp_path / "gold.txt")
    return AlignPlan(runs, files, tmp_path / "peers")


def fake_eflomal(plan: AlignPlan, code: str = FAKE) -> Environment:
    """Links words that are spelled alike."""
    environment = Environment(plan.peers_folder / "eflomal", align.REQUIREMENTS)
    environment.binaries.mkdir(parents=True)
    (environment.binaries / "python").write_text("#!/bin/sh\necho 9.8.7\n", encoding="utf-8")
    (environment.binaries / "eflomal-align").write_text(code.format(python=sys.executable), encoding="utf-8")
    for path in environment.binaries.iterdir():
        path.chmod(0o755)
    (environment.folder / "installed.json").write_text(json.dumps(align.REQUIREMENTS), encoding="utf-8")
    return environment


@pytest.mark.skipif(sys.platform == "win32", reason="a script with #!")
def test_both_are_measured_by_the_same_gold(plan: AlignPlan) -> None:
    fake_eflomal(plan)
    by_agreement, by_gold, eflomal = align.run(plan, lambda _: None)
    assert (eflomal.title, eflomal.version, eflomal.problem) == ("eflomal", "9.8.7", None)
    assert list(eflomal.ways) == list(by_gold.ways) == ["forward", "reverse", *SYMMETRIZERS]
    scores = eflomal.ways["forward"]  # 1-0 2-1 and 1-0 of 1-0 2-1 and 1-0; d and D are not alike
    assert (scores.num_links, scores.num_sure, scores.in_sure, scores.in_possible) == (3, 3, 3, 3)
    assert by_gold.ways["forward"].aer <= by_agreement.ways["forward"].aer
    assert not any((run / chosen_head.NAME).exists() for run in plan.runs)


@pytest.mark.skipif(sys.platform == "win32", reason="a script with #!")
def test_eflomal_reads_the_gold_sentences_and_the_training_text(plan: AlignPlan) -> None:
    environment, pairs = fake_eflomal(plan), [Pair("A b", "a"), Pair("c", "c")]
    text = [*pairs, *align.read_training_text(plan.runs[0])]
    assert text[2:] == [Pair("a b c d e f g h", "a b c d e f g h")]
    assert align.run_eflomal(environment, text, pairs, is_lower=False) == [(frozenset(),) * 2, (FIRST,) * 2]
    assert align.run_eflomal(environment, text, pairs, is_lower=True)[0] == (FIRST,) * 2


def test_a_peer_that_does_not_install_has_its_reason(plan: AlignPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Environment) -> None:
        raise PeerError("pip ended with exit code 1: no C compiler")

    monkeypatch.setattr(Environment, "install", broken)
    arguments = ["bench", "align", plan.runs[0], "--reverse", plan.runs[1], "--input", plan.files.source]
    arguments += ["--gold", plan.files.gold, "--peers-folder", plan.peers_folder]
    shown = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert "missing: pip ended with exit code 1: no C compiler" in shown.stdout
    assert "grow-diag-final-and" in shown.stdout
    rows = json.loads(CliRunner().invoke(app, [*map(str, arguments), "--json"]).stdout)["rows"]
    assert [row["title"] for row in rows] == ["saccade, heads by agreement", "saccade, heads by gold", "eflomal"]
    assert rows[1]["ways"]["union"].keys() == {"aer", "precision", "recall"}
