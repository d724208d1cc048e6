"""Fused spellings of (score, normaliser) pairs, and `select`, which says which one runs and why."""
