"""Models of other toolkits become runs, with a proof that they answer the same here."""
