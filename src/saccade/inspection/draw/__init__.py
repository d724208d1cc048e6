"""Draws weights, paths and tables as picture files and in the terminal."""
