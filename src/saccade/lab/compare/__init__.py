"""Compares trainings whose configs differ in chosen fields: sizes, learning rates, seeds, tests, a table."""
