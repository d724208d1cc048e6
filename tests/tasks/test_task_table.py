"""The table of tasks imports the code of a task when it is asked for, and not before."""

from __future__ import annotations

import subprocess
import sys

import pytest

from saccade.tasks import TASKS
from saccade.tasks.base import Task
from saccade.tasks.table import TaskTable

CODE = """
import sys
from saccade.tasks import TASKS
assert "tag" in list(TASKS) and TASKS["translate"].config
print(sorted({name.split(".")[2] for name in sys.modules if name.startswith("saccade.tasks.")} & {*TASKS}))
"""


def test_one_task_does_not_import_the_others() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['translate']"


def test_every_task_is_where_the_table_says() -> None:
    assert all(isinstance(task, Task) for task in TASKS.values())


def test_tasks_can_be_added_and_taken_away() -> None:
    table = TaskTable({"one": "tag.task:TAG", "none": "tag.task:NOTHING"})
    assert (list(table), len(table), table["one"]) == (["one", "none"], 2, TASKS["tag"])
    with pytest.raises(AttributeError, match="NOTHING"):
        table["none"]
    del table["none"]
    table["two"] = TASKS["tag"]
    assert dict(table) == {"one": TASKS["tag"], "two": TASKS["tag"]}
    with pytest.raises(KeyError):
        table["none"]
