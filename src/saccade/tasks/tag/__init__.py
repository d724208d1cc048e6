"""Text to tags."""
