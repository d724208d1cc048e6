"""Picture to label, by glimpses."""
