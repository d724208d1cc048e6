"""Tests how far attention may be read as an explanation."""
