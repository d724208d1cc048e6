"""Attention of one query a row over a cache of fixed capacity."""
