"""What every route shares: bodies, answers, limits, logs, metrics, documentation."""
