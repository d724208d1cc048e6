"""Decoding, written once over a small protocol: any model with start, advance and logits can be decoded."""

from saccade.decoding.beam import BeamOptions, beam_search
from saccade.decoding.continuous.engine import DecodingEngine
from saccade.decoding.continuous.scheduler import DecodingWork
from saccade.decoding.ensemble import Ensemble
from saccade.decoding.greedy import greedy
from saccade.decoding.options import Cut, DecodingOptions, Hypothesis
from saccade.decoding.sampling import SamplingOptions, sample
from saccade.decoding.search import OPTION_NAMES, Searcher, choose_options, count_steps, search
from saccade.decoding.stepper import DecoderState, StartedStepper, Stepper

__all__ = [
    "OPTION_NAMES",
    "BeamOptions",
    "Cut",
    "DecoderState",
    "DecodingEngine",
    "DecodingOptions",
    "DecodingWork",
    "Ensemble",
    "Hypothesis",
    "SamplingOptions",
    "Searcher",
    "StartedStepper",
    "Stepper",
    "beam_search",
    "choose_options",
    "count_steps",
    "greedy",
    "sample",
    "search",
]
