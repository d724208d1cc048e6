"""Benchmarks and fuzzing of a served model."""
