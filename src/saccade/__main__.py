"""The command `saccade`, also as `python -m saccade`."""

from __future__ import annotations

import os
import sys

from saccade.errors import describe_missing

COMPUTING = ("train", "predict", "evaluate", "look", "serve")  # commands that are worth a look at the machine
SPINS = "1000"  # some microseconds; GNU's library spins 300 times as long by itself


def choose_waiting() -> None:
    """Let threads sleep while they wait, if others use this machine now, else spin shortly; before torch is loaded.

    Idle threads that spin are a third faster alone, and many times slower beside others, who may begin later: short
    spins are as fast as long ones alone (docs/log.md, equal trainings). How threads wait changes no result.
    """
    if sys.argv[1:2] and sys.argv[1] in COMPUTING and not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        import psutil

        if psutil.cpu_percent(interval=0.1) / 100 * (os.cpu_count() or 1) > 0.5:  # cores
            os.environ["OMP_WAIT_POLICY"] = "passive"
        else:
            os.environ["GOMP_SPINCOUNT"] = SPINS


def main() -> None:
    """Run the command line, or name in one line the library that it needs."""
    try:
        choose_waiting()
        from saccade.cli import main as run
    except ModuleNotFoundError as error:
        sys.stderr.write(f"saccade: {describe_missing('the command line', error)}\n")
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
