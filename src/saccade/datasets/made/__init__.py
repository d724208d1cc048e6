"""Data that the package makes itself: small, free of rights, the same for the same seed."""
