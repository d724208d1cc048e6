"""Tasks: a folder each, with its config, data, network, loss, validation and predictor; `TASKS` names them all."""

from saccade.tasks.answer.task import ANSWER
from saccade.tasks.caption.task import CAPTION
from saccade.tasks.classify.task import CLASSIFY
from saccade.tasks.glimpse.task import GLIMPSE
from saccade.tasks.point.task import POINT
from saccade.tasks.remember.task import REMEMBER
from saccade.tasks.speak.task import SPEAK
from saccade.tasks.tag.task import TAG
from saccade.tasks.translate.task import TRANSLATE
from saccade.tasks.write.task import WRITE

TASKS = {
    "translate": TRANSLATE,
    "classify": CLASSIFY,
    "tag": TAG,
    "glimpse": GLIMPSE,
    "caption": CAPTION,
    "write": WRITE,
    "answer": ANSWER,
    "remember": REMEMBER,
    "point": POINT,
    "speak": SPEAK,
}
