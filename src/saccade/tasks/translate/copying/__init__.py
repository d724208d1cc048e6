"""What a model copies: its loss, and what is told of it."""
