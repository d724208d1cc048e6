"""Texts that are spoken: a network writes frames of sound while it reads the characters."""
