"""Texts: pairs from files, tokenizers, word vectors."""
