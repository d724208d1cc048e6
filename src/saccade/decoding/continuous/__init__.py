"""Continuous batching: many sentences through a fixed number of slots; equal to greedy and beam search."""
