"""What loading a run does, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from runs import make_run
from saccade.runs.load import load_run
from saccade.training.checkpoints import read_weights


@pytest.mark.parametrize("kind", ["transformer", "rnn"])
def test_no_weights_are_drawn_that_the_file_replaces(tmp_path: Path, kind: str) -> None:
    run = make_run(tmp_path / "run", model={"kind": kind, "size": "tiny"})
    kept = read_weights(run / "model.safetensors")
    load_run(run)  # what is imported at first may draw
    before, drawn = torch.get_rng_state(), torch.nn.init.kaiming_uniform_(torch.zeros(3, 3)).count_nonzero()
    torch.set_rng_state(before)
    network = load_run(run).portable().network
    if kind == "transformer":
        assert torch.equal(torch.get_rng_state(), before)
    for name, weight in kept.items():
        assert torch.equal(network.state_dict()[name], weight)
    assert drawn == torch.nn.init.kaiming_uniform_(torch.zeros(3, 3)).count_nonzero() == 9  # elsewhere they are
