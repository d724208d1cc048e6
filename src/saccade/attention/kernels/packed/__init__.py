"""Attention over sentences packed into one row."""
