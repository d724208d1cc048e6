"""Translate HTML and keep its tags."""
