"""Sequences of bits that are given once and wanted back, once or several times."""
