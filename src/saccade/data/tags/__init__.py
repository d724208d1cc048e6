"""Tagged sentences: CoNLL columns, spans, and the input of a tagger."""
