"""Benchmarks of attention: compared with torch's own, and additive attention with its plain expression."""
