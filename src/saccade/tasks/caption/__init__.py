"""Picture to sentence."""
