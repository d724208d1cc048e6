"""Recurrent layers: whole sequences, and step by step."""
