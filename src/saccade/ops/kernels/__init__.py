"""Triton kernels around matrix products, and how they are launched."""
