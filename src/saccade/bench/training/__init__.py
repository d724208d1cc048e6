"""Benchmarks of training, compared with other toolkits and models."""
