"""Confidence of a translator in its words: fitted on the validation set, and judged on the test set."""
