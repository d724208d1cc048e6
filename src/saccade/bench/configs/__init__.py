"""Mutated configs and data files: training must refuse or survive each of them."""
