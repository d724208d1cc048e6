"""Fused spellings of what lies between the matrix products of a block."""
