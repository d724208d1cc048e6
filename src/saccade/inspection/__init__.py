"""Looking inside: recording weights, measuring and drawing them."""
