"""Data in and out: corpora, tokenizers, stores, batches, and files that are whole or not there."""
