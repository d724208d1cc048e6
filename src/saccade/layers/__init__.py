"""Layers that models are built from."""
