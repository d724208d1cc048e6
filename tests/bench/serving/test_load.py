"""The load of a server: what clients count, and the whole of it on a small run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import cast

import pytest
from typer.testing import CliRunner

from runs import make_run
from saccade.bench.serving.attacks import WAYS, Attack, attacks
from saccade.bench.serving.http_client import Connection, Reply, RunningServer
from saccade.bench.serving.load import Clients, LoadCounts, LoadPlan, LoadReport
from saccade.bench.serving.resistance import AttackRow
from saccade.bench.tables import of_attacks, of_serving
from saccade.cli import app
from saccade.errors import UserError
from saccade.export.choice import EngineChoice
from saccade.serving.models import LanguagePair
from saccade.serving.settings import Settings

RUNNER = CliRunner()


def test_swapped_and_wrong_answers_are_counted() -> None:
    where = RunningServer("127.0.0.1", 1, cast(subprocess.Popen[bytes], None))
    clients = Clients(where, {"a": "x", "b": "y"}, LanguagePair("en", "fr"))
    tally = LoadCounts([], Counter())
    for status, text, found in ((200, "a", "x"), (200, "a", "y"), (200, "b", "z"), (429, "a", ""), (500, "a", "")):
        clients.count(tally, text, Reply(status, json.dumps({"translatedText": found}).encode()), 0.25)
    tally.elapsed = 2.0
    shown = tally.as_dict()
    assert [shown[key] for key in ("answers", "refused", "errors", "swapped", "wrong")] == [3, 1, 1, 1, 1]
    assert shown["rate"] == 1.5


def test_percentiles_by_hand() -> None:
    tally = LoadCounts([float(second) for second in range(100, 0, -1)], Counter())
    assert (tally.percentile(0.5), tally.percentile(0.99)) == (51, 100)
    assert LoadCounts([], Counter()).percentile(0.5) == 0


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


def test_a_process_that_is_killed_under_load(tmp_path: Path) -> None:
    """Others answer; what was under way is 503, and the server has counted it."""
    run = make_run(tmp_path / "run", "languages.source=en", "languages.target=fr", "decoding.beam=1")
    texts = tmp_path / "texts"
    texts.write_text("a b\nc d e\nf\n", encoding="utf-8")
    few = ["--clients", "9", "--seconds", "2", "--alone", "1", "--requests", "30", "--processes", "2", "--kill"]
    result = RUNNER.invoke(app, ["bench", "serve", str(run), "--texts", str(texts), *few, "--threads", "1", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    together = found["together"]
    assert together["answers"] > 9
    assert [together[key] for key in ("lost", "swapped", "wrong")] == [0] * 3
    assert together["errors"] == together["unavailable"] == found["losses"]["503"]
    assert (found["losses"]["processes"], found["losses"]["cut"]) == (1, 0)
    assert all(row["mebibytes"] > 10 for row in found["memory"])


def test_one_process_alone_is_not_killed() -> None:
    with pytest.raises(UserError, match="--kill: given with --processes 1"):
        LoadPlan(run=Path("run"), kill=True)


@pytest.mark.usefixtures("quick_start")
def test_attacks_on_a_small_server(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "languages.source=en", "languages.target=fr", "decoding.beam=1")
    texts = tmp_path / "texts"
    texts.write_text("a b\nc d e\nf\n", encoding="utf-8")
    few = ["--clients", "3", "--seconds", "1", "--quiet", "1", "--pause", "0.05", "--kinds", "letters,slow heads"]
    result = RUNNER.invoke(app, ["bench", "attack", str(run), "--texts", str(texts), *few, "--json"])
    found = json.loads(result.stdout)
    assert [row["attack"] for row in found] == ["letters", "slow heads"]
    for row in found:
        assert row["times"] == row["attacked"]["p99"] / row["quiet"]["p99"]
        for load in ("quiet", "attacked"):
            assert row[load]["answers"] > 0
            assert [row[load][key] for key in ("refused", "errors", "lost", "swapped", "wrong")] == [0] * 5
    assert result.exit_code == any(row["bad"] for row in found)


def test_an_attack_is_bad_where_others_wait_long_or_lose_something() -> None:
    quiet = LoadCounts([0.1], Counter({200: 1}), elapsed=1)
    waiting, refused = (
        LoadCounts([0.6], Counter({200: 1}), elapsed=1),
        LoadCounts([0.1], Counter({200: 1, 429: 1}), elapsed=1),
    )
    rows = [AttackRow(name, quiet, found) for name, found in (("a", quiet), ("b", waiting), ("c", refused))]
    assert [row.is_bad for row in rows] == [False, True, True]
    assert list(of_attacks(rows).columns[5].cells) == ["1.0", "6.0", "1.0"]


@pytest.mark.parametrize(("way", "num_sent", "is_open"), [("leave", 7, False), ("ignore", 7, True), ("hold", 6, True)])
def test_what_an_attacker_does(way: str, num_sent: int, is_open: bool) -> None:
    """`leave` sends all and closes, `ignore` sends all and stays, `hold` stays without the last byte."""

    async def test() -> None:
        seen: asyncio.Queue[tuple[int, bool]] = asyncio.Queue()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"POST /there HTTP/1.1\r\n")
            body = await reader.readexactly(num_sent)
            with contextlib.suppress(TimeoutError):
                body += await asyncio.wait_for(reader.read(1), 0.3)
            await seen.put((len(body), not reader.at_eof()))
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        connection = await Connection.open(*server.sockets[0].getsockname(), address="127.0.0.3")
        task = asyncio.create_task(WAYS[way](connection, Attack("/there", b"1234567", 1, way)))
        if way == "leave":
            await task
            connection.close()
        assert await seen.get() == (num_sent, is_open)
        task.cancel()
        connection.close()
        server.close()

    asyncio.run(asyncio.wait_for(test(), 30))


def test_attacks_stay_within_what_is_allowed() -> None:
    """Else they would be refused at the door."""
    for name, attack in attacks(LanguagePair("en", "fr")).items():
        largest = 64 * 1024 + 16 * Settings().max_characters if attack.path != "/v1/look" else Settings().max_body
        assert len(attack.body) <= largest, name
        if attack.path in ("/translate", "/detect") and attack.body:
            assert len(json.loads(attack.body)["q"]) <= Settings().max_characters, name


def test_the_table() -> None:
    alone, together = (
        LoadCounts([0.1], Counter({200: 10}), elapsed=10),
        LoadCounts([0.2], Counter({200: 80}), elapsed=10),
    )
    table = of_serving(LoadReport(alone, together, [(0, 100.0)], {"503": 7}))
    assert list(table.columns[2].cells)[-3:] == ["8.0", "7", "100 MiB"]


def test_a_server_under_load_has_the_engine_that_was_asked_for() -> None:
    plain, chosen = LoadPlan(run=Path("run")), EngineChoice("native", "int8")
    assert plain.arguments == ["run", "--quiet", "--engine", "auto", "--quantization", "float32"]
    plan = LoadPlan(run=Path("run"), engine=chosen, options=["--threads", "2"])
    assert plan.arguments[2:] == ["--engine", "native", "--quantization", "int8", "--threads", "2"]
