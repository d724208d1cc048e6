"""Texts with labels: readers of their files, and batches."""
