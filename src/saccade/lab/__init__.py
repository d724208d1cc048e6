"""Experiments that show what attention does, each with a picture at its end."""
