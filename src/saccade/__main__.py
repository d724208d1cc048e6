"""The command `saccade`, also as `python -m saccade`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from saccade.errors import describe_missing

COMPUTING = ("train", "predict", "evaluate", "look", "serve")  # commands that are worth a look at the machine
LEAST_WATCHED = 0.1  # seconds
SPINS = "1000"  # some microseconds; GNU's library spins 300 times as long by itself


@contextmanager
def choose_waiting() -> Iterator[None]:
    """Watch the machine in this block, and then let threads sleep while they wait, if others use it, else spin shortly.

    It must end before torch is loaded. Idle threads that spin are a third faster alone, and many times slower beside
    others, who may begin later: short spins are as fast as long ones alone (docs/log.md, equal trainings). How threads
    wait changes no result.
    """
    is_given = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys()
    if is_given or not (sys.argv[1:2] and sys.argv[1] in COMPUTING):
        yield
        return
    import psutil

    psutil.cpu_percent()  # the next call tells what was since this one
    began, used = time.perf_counter(), time.process_time()
    yield
    time.sleep(max(0.0, LEAST_WATCHED - (time.perf_counter() - began)))
    own = (time.process_time() - used) / (time.perf_counter() - began)
    if psutil.cpu_percent() / 100 * (os.cpu_count() or 1) - own > 0.5:  # cores that others keep busy
        os.environ["OMP_WAIT_POLICY"] = "passive"
    else:
        os.environ["GOMP_SPINCOUNT"] = SPINS


def main() -> None:
    """Run the command line, or name in one line the library that it needs."""
    try:
        with choose_waiting():
            from saccade.cli import main as run
    except ModuleNotFoundError as error:
        sys.stderr.write(f"saccade: {describe_missing('the command line', error)}\n")
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
