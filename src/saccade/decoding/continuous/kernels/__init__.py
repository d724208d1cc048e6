"""Faster spellings of what decoding computes, in Triton."""
