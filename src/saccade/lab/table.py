"""The experiments of the lab, by name."""

from __future__ import annotations

from saccade.lab.claims.cost import COST
from saccade.lab.claims.gradients import GRADIENTS
from saccade.lab.claims.scale import SCALE
from saccade.lab.claims.stragglers import STRAGGLERS
from saccade.lab.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    "gradients": GRADIENTS,
    "cost": COST,
    "scale": SCALE,
    "stragglers": STRAGGLERS,
}
