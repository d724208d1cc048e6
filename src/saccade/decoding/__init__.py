"""Decoding, written once over a small protocol: any model with start, advance and logits can be decoded."""

from saccade.decoding.beam import BeamOptions, Hypothesis, beam_search
from saccade.decoding.stepper import State, Stepper

__all__ = ["BeamOptions", "Hypothesis", "State", "Stepper", "beam_search"]
