"""The experiments of the lab, by name."""

from __future__ import annotations

from saccade.lab.claims.bottleneck import BOTTLENECK
from saccade.lab.claims.cost import COST
from saccade.lab.claims.explanation import EXPLANATION
from saccade.lab.claims.forgetting import FORGETTING
from saccade.lab.claims.glimpses import GLIMPSES_CLAIM
from saccade.lab.claims.gradients import GRADIENTS
from saccade.lab.claims.hard import HARD
from saccade.lab.claims.local import LOCAL
from saccade.lab.claims.order import ORDER
from saccade.lab.claims.penalty import PENALTY
from saccade.lab.claims.phrases.alignment import ALIGNMENT
from saccade.lab.claims.phrases.heads import HEADS_CLAIM
from saccade.lab.claims.phrases.smoothing import SMOOTH
from saccade.lab.claims.scale import SCALE
from saccade.lab.claims.stragglers import STRAGGLERS
from saccade.lab.claims.width import WIDTH
from saccade.lab.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    "gradients": GRADIENTS,
    "cost": COST,
    "scale": SCALE,
    "width": WIDTH,
    "order": ORDER,
    "bottleneck": BOTTLENECK,
    "forgetting": FORGETTING,
    "local": LOCAL,
    "hard": HARD,
    "penalty": PENALTY,
    "heads": HEADS_CLAIM,
    "alignment": ALIGNMENT,
    "explanation": EXPLANATION,
    "smoothing": SMOOTH,
    "glimpses": GLIMPSES_CLAIM,
    "stragglers": STRAGGLERS,
}
