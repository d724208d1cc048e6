"""The command `saccade`, also as `python -m saccade`."""

from __future__ import annotations

import sys

from saccade.errors import describe_missing


def main() -> None:
    """Run the command line, or name in one line the library that it needs."""
    try:
        from saccade.cli import main as run
    except ModuleNotFoundError as error:
        sys.stderr.write(f"saccade: {describe_missing('the command line', error)}\n")
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
