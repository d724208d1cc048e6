"""Tasks: a folder each, with its config, data, network, loss, validation and predictor; `TASKS` names them all."""

from saccade.tasks.table import TaskTable

TASKS = TaskTable(
    {
        "translate": "translate.task:TRANSLATE",
        "classify": "classify.task:CLASSIFY",
        "tag": "tag.task:TAG",
        "glimpse": "glimpse.task:GLIMPSE",
        "caption": "caption.task:CAPTION",
        "write": "write.task:WRITE",
        "answer": "answer.task:ANSWER",
        "remember": "remember.task:REMEMBER",
        "point": "point.task:POINT",
        "speak": "speak.task:SPEAK",
    }
)
