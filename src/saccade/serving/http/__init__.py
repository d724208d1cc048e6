"""HTTP parts that all routes share: bodies, responses, limits, logs, metrics, documentation."""
