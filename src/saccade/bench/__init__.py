"""Side-by-side benchmarks against peers: ratios from one run, never absolute claims."""
