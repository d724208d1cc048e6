"""The peers that the benchmarks compare us with."""
