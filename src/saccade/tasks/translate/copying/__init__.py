"""Models that copy words of their sources: the loss, and what is told of the copies."""
