"""The task of text to text, or sound to text."""
