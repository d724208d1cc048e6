"""Triton kernels of recurrent layers."""
