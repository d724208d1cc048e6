"""Decoding, written once over a small protocol: any model with start, advance and logits can be decoded."""

from saccade.decoding.beam import BeamOptions, beam_search
from saccade.decoding.continuous.engine import Writer
from saccade.decoding.continuous.scheduler import Work
from saccade.decoding.ensemble import Ensemble
from saccade.decoding.greedy import greedy
from saccade.decoding.options import Hypothesis, Options
from saccade.decoding.sampling import SamplingOptions, sample
from saccade.decoding.search import chosen, search
from saccade.decoding.stepper import Attending, Started, State, Stepper

__all__ = [
    "Attending",
    "BeamOptions",
    "Ensemble",
    "Hypothesis",
    "Options",
    "SamplingOptions",
    "Started",
    "State",
    "Stepper",
    "Work",
    "Writer",
    "beam_search",
    "chosen",
    "greedy",
    "sample",
    "search",
]
