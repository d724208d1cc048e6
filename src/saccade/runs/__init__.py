"""The life of a run: train, report, load, verify."""
