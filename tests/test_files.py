from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from saccade.errors import UserError
from saccade.files import lock_folder, replace_file

HOLD = "import sys, time, pathlib; from saccade.files import lock_folder\n"
HOLD += "with lock_folder(pathlib.Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"


def test_a_folder_locked_by_another_process_is_refused_until_that_one_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            with pytest.raises(UserError, match="another process is training in it"), lock_folder(tmp_path):
                pass
        finally:
            holder.send_signal(signal.SIGKILL)
    with lock_folder(tmp_path):
        pass


def test_a_folder_is_made_and_freed_when_the_block_fails(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"
    with pytest.raises(TimeoutError, match="of its own"), lock_folder(folder):
        raise TimeoutError("of its own")
    with lock_folder(folder):
        pass


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for text in ("old", "new"):
        with replace_file(path) as draft:
            draft.write_text(text, "utf-8")
    with pytest.raises(UnicodeEncodeError), replace_file(path) as draft:
        draft.write_text("half\udcff", "utf-8")
    assert path.read_text("utf-8") == "new"
    assert list(tmp_path.iterdir()) == [path]
