"""Answers many files, one after the other or on several machines: each is written whole, in order, and only once."""
