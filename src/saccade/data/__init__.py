"""Reads data: corpora, tokenizers, stores on disk, and batches."""
