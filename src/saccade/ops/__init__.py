"""Tensor operations that know no attention, and what makes them one kernel on CUDA."""
