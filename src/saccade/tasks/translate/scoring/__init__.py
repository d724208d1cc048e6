"""Scores of outputs: the metrics, the choice of the one that a run goes by, and all scores of a set."""
