"""Views of recorded weights: pooled, rolled out, as a flow; what each head does."""
