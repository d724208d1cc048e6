"""Models: what reads a source and writes a target."""
