"""What looking costs is measured on the same sentences."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from saccade.cli import app


def test_looking_is_measured_beside_plain_prediction() -> None:
    result = CliRunner().invoke(app, ["bench", "look", "--size", "tiny", "--sentences", "3", "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert [row["beam"] for row in rows] == [1, 5]
    for row in rows:
        assert row["ratio"] == row["recorded_seconds"] / row["plain_seconds"] > 0
