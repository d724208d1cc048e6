"""Data sets that recipes learn from: made by the package, or brought from where they are public."""
