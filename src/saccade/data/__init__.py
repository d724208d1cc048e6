"""Data in and out: files, and later corpora, tokenisers and batches."""
