"""Benchmarks against peers: both sides run in the same process or session, and ratios are reported."""
