"""The peers that benchmarks run beside us."""
