"""The task of classification: from a text to a label."""
