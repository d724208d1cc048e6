"""Attention beside torch's own."""
