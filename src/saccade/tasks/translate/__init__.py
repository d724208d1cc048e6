"""Text, or sound, to text."""
