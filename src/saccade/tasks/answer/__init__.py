"""Questions about stories, answered by reading the sentences in hops."""
