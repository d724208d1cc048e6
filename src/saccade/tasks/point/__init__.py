"""Pointing: the elements of a set in an order, by a pointer network: numbers sorted, corners of a convex hull."""
