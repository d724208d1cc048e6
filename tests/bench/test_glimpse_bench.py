"""The bench of glimpses: operations that stay, beside ones that grow with the image's area."""

from __future__ import annotations

from pathlib import Path

import torch
from rich.console import Console

from saccade.bench import glimpse


def test_the_cost_stays_while_a_convolutional_networks_grows(tmp_path: Path) -> None:
    rows = glimpse.run(device=torch.device("cpu"), sides=(20, 40), batch=2, at_least=0.0)
    assert rows[0].operations == rows[1].operations
    assert 3.9 < rows[1].peer_operations / rows[0].peer_operations < 4.1
    assert all(row.seconds > 0 and row.peer_seconds > 0 for row in rows)
    assert rows[0].as_dict()["side"] == 20
    glimpse.plot(rows, tmp_path / "cost.png")
    assert (tmp_path / "cost.png").read_bytes().startswith(b"\x89PNG")
    console = Console(width=120, record=True, quiet=True)
    console.print(glimpse.table(rows))


def test_operations_by_hand() -> None:
    """One convolution of 5 x 5 over 1 to 32 channels, one over 32 to 64 at half the size, and the last layer."""
    row = glimpse.run(device=torch.device("cpu"), sides=(20,), batch=1, at_least=0.0)[0]
    assert row.peer_operations == 2 * (25 * 32 * 20 * 20 + 25 * 32 * 64 * 10 * 10 + 64 * 10)
