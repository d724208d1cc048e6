"""Several processes that serve the same runs at one port."""
