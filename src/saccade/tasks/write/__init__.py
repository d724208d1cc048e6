"""Language models: they learn to write on from the beginning of a text."""
