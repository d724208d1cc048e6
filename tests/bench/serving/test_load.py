"""The load of a server: what clients count, and the whole of it on a small run."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import cast

import pytest
from typer.testing import CliRunner

from runs import make_run
from saccade.bench.serving.http_client import Reply, RunningServer
from saccade.bench.serving.load import Clients, LoadReport, Tally
from saccade.bench.tables import of_serving
from saccade.cli import app
from saccade.serving.models import LanguagePair

RUNNER = CliRunner()


def test_swapped_and_wrong_answers_are_counted() -> None:
    where = RunningServer("127.0.0.1", 1, cast(subprocess.Popen[bytes], None))
    clients = Clients(where, {"a": "x", "b": "y"}, LanguagePair("en", "fr"))
    tally = Tally([], Counter())
    for status, text, found in ((200, "a", "x"), (200, "a", "y"), (200, "b", "z"), (429, "a", ""), (500, "a", "")):
        clients.count(tally, text, Reply(status, json.dumps({"translatedText": found}).encode()), 0.25)
    tally.elapsed = 2.0
    shown = tally.as_dict()
    assert [shown[key] for key in ("answers", "refused", "errors", "swapped", "wrong")] == [3, 1, 1, 1, 1]
    assert shown["rate"] == 1.5


def test_percentiles_by_hand() -> None:
    tally = Tally([float(second) for second in range(100, 0, -1)], Counter())
    assert (tally.percentile(0.5), tally.percentile(0.99)) == (51, 100)
    assert Tally([], Counter()).percentile(0.5) == 0


@pytest.mark.usefixtures("quick_start")
def test_a_small_load(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "languages.source=en", "languages.target=fr", "decoding.beam=1")
    texts = tmp_path / "texts"
    texts.write_text("a b\nc d e\nf\n\na b\n", encoding="utf-8")
    few = ["--clients", "3", "--seconds", "1", "--alone", "1", "--requests", "30"]
    result = RUNNER.invoke(app, ["bench", "serve", str(run), "--texts", str(texts), *few, "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    for load in ("alone", "together"):
        assert found[load]["answers"] > 0
        assert [found[load][key] for key in ("errors", "lost", "swapped", "wrong")] == [0] * 4
    assert [row["requests"] for row in found["memory"]] == list(range(0, 31, 3))
    assert all(row["mebibytes"] > 10 for row in found["memory"])


def test_the_table() -> None:
    alone, together = Tally([0.1], Counter({200: 10}), elapsed=10), Tally([0.2], Counter({200: 80}), elapsed=10)
    table = of_serving(LoadReport(alone, together, [(0, 100.0)]))
    assert list(table.columns[2].cells)[-2:] == ["8.0", "100 MiB"]
