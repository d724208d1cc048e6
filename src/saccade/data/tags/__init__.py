"""Tagged sentences: CoNLL columns, spans, and the words that a tagger reads."""
